//! Discovery, and objects whose type is only known at run time.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{everywhere, map};

#[tokio::test]
async fn both_kinds_of_discovery_agree() {
    everywhere(async |client: Client| {
        let legacy = Discovery::new(client.clone()).run().await.unwrap();
        let aggregated = Discovery::new(client).run_aggregated().await.unwrap();
        let resources = |discovery: &Discovery| {
            let mut all = Vec::new();
            for group in discovery.groups_alphabetical() {
                for (resource, capabilities) in group.recommended_resources() {
                    let mut operations = capabilities.operations.clone();
                    operations.sort();
                    all.push((resource.api_version, resource.kind, resource.plural, operations));
                }
            }
            all.sort();
            all
        };
        assert_eq!(resources(&legacy), resources(&aggregated));
        assert!(legacy.has_group("apps") && legacy.has_group("") && !legacy.has_group("nope"));

        let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let (resource, capabilities) = aggregated.resolve_gvk(&deployment).unwrap();
        assert_eq!(resource.plural, "deployments");
        assert_eq!(capabilities.scope, Scope::Namespaced);
        assert!(capabilities.supports_operation(verbs::WATCH));
        let mut subresources: Vec<&str> = capabilities.subresources.iter().map(|(r, _)| r.plural.as_str()).collect();
        subresources.sort_unstable();
        assert_eq!(subresources, ["scale", "status"]);
    })
    .await;
}

#[tokio::test]
async fn versions_are_as_upstream_says() {
    everywhere(async |client: Client| {
        let version = client.apiserver_version().await.unwrap();
        assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
        let groups = client.list_api_groups().await.unwrap();
        assert!(groups.groups.iter().any(|group| group.name == "apiextensions.k8s.io"));
        let core = client.list_core_api_resources("v1").await.unwrap();
        assert!(core.resources.iter().any(|resource| resource.name == "pods/eviction"));
    })
    .await;
}

#[tokio::test]
async fn dynamic_objects_are_written_and_read() {
    everywhere(async |client: Client| {
        let resource = ApiResource::erase::<ConfigMap>(&());
        let maps: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let object = DynamicObject::new("one", &resource).data(json!({"data": {"a": "b"}}));
        let created = maps.create(&PostParams::default(), &object).await.unwrap();
        assert_eq!(created.data["data"]["a"], "b");
        let patch = Patch::Merge(json!({"data": {"c": "d"}}));
        maps.patch("one", &PatchParams::default(), &patch).await.unwrap();
        let typed: Api<ConfigMap> = Api::default_namespaced(client.clone());
        typed.create(&PostParams::default(), &map("two")).await.unwrap();
        let list = maps.list(&ListParams::default()).await.unwrap();
        assert_eq!(list.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(list.items[0].data["data"], json!({"a": "b", "c": "d"}));

        // Found by discovery instead of by a type.
        let discovery = Discovery::new(client.clone()).filter(&["apps"]).run_aggregated().await.unwrap();
        let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let (resource, _) = discovery.resolve_gvk(&kind).unwrap();
        let deployments: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        let created = deployments.create(&PostParams::default(), &deployment(&resource)).await.unwrap();
        assert_eq!(created.data["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(created.metadata.generation, Some(1));
        assert!(created.managed_fields().iter().all(|entry| entry.operation.as_deref() == Some("Update")));
    })
    .await;
}

fn deployment(resource: &ApiResource) -> DynamicObject {
    DynamicObject::new("web", resource).data(json!({"spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        },
    }}))
}
