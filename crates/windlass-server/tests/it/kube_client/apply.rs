//! Server-side apply.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{check_refused, everywhere, map, refused};

fn data(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}))
}

#[tokio::test]
async fn owners_share_and_take_fields() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let (ours, theirs) = (PatchParams::apply("ours"), PatchParams::apply("theirs"));
        let created = maps.patch("one", &ours, &data(&json!({"a": "1", "b": "1"}))).await.unwrap();
        assert_eq!(created.managed_fields()[0].operation.as_deref(), Some("Apply"));
        let same = maps.patch("one", &ours, &data(&json!({"a": "1", "b": "1"}))).await.unwrap();
        assert_eq!(same.resource_version(), created.resource_version());

        let conflict = refused(maps.patch("one", &theirs, &data(&json!({"a": "2"}))).await);
        assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
        let cause = &conflict.details.unwrap().causes[0];
        assert_eq!((cause.reason.as_str(), cause.field.as_str()), ("FieldManagerConflict", ".data.a"));
        let forced = maps.patch("one", &theirs.clone().force(), &data(&json!({"a": "2"}))).await.unwrap();
        assert_eq!(forced.data.unwrap()["a"], "2");
        // What its only owner no longer applies goes; what another took stays.
        let left = maps.patch("one", &ours, &data(&json!({"c": "1"}))).await.unwrap();
        let left: Vec<(String, String)> = left.data.unwrap().into_iter().collect();
        assert_eq!(left, [("a".into(), "2".into()), ("c".into(), "1".into())]);
    })
    .await;
}

#[tokio::test]
async fn typed_objects_are_applied() {
    everywhere(async |client: Client| {
        let deployments: Api<Deployment> = Api::default_namespaced(client);
        let wanted = |image: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                    {"name": "web", "image": image},
                ]}},
            }})
        };
        let typed: Deployment = serde_json::from_value(wanted("nginx:1")).unwrap();
        let params = PatchParams::apply("it");
        let first = deployments.patch("web", &params, &Patch::Apply(&typed)).await.unwrap();
        assert_eq!(first.metadata.generation, Some(1));
        // Another manager adds a container, which ours knows nothing of.
        let side = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [
            {"name": "side", "image": "busybox"},
        ]}}}});
        deployments.patch("web", &PatchParams::apply("side"), &Patch::Apply(side)).await.unwrap();
        let second = deployments.patch("web", &params, &Patch::Apply(wanted("nginx:2"))).await.unwrap();
        let containers = second.spec.unwrap().template.spec.unwrap().containers;
        let images: Vec<&str> = containers.iter().map(|container| container.image.as_deref().unwrap()).collect();
        assert_eq!(images, ["nginx:2", "busybox"]);
        assert_eq!(second.metadata.generation, Some(3));
    })
    .await;
}

#[tokio::test]
async fn applies_that_make_no_sense_are_refused() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.create(&PostParams::default(), &map("one")).await.unwrap();
        check_refused(maps.patch("one", &PatchParams::default(), &data(&json!({}))).await, 422, "Invalid");
        // Upstream gives this one no reason either.
        let typo = Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "dta": {"a": "1"}}));
        let unknown = refused(maps.patch("one", &PatchParams::apply("it"), &typo).await);
        assert!(unknown.message.ends_with(".dta: field not declared in schema"), "{}", unknown.message);
        let other = Patch::Apply(json!({"apiVersion": "v1", "kind": "Secret", "data": {}}));
        check_refused(maps.patch("one", &PatchParams::apply("it"), &other).await, 400, "BadRequest");
    })
    .await;
}
