//! Typed objects: create, read, change, delete.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::{check_refused, everywhere, map, pod, refused};

#[tokio::test]
async fn an_object_is_created_read_replaced_and_deleted() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let created = maps.create(&PostParams::default(), &map("one")).await.unwrap();
        assert_eq!(created.namespace().as_deref(), Some("default"));
        assert!(created.uid().is_some() && created.creation_timestamp().is_some());
        assert_eq!(maps.get("one").await.unwrap(), created);
        assert_eq!(maps.get_opt("two").await.unwrap(), None);

        let mut changed = created.clone();
        changed.data.as_mut().unwrap().insert("b".into(), "2".into());
        let replaced = maps.replace("one", &PostParams::default(), &changed).await.unwrap();
        assert_eq!(replaced.data, changed.data);
        assert_ne!(replaced.resource_version(), created.resource_version());
        // Writing what is there already is no write.
        let again = maps.replace("one", &PostParams::default(), &replaced).await.unwrap();
        assert_eq!(again.resource_version(), replaced.resource_version());

        let deleted = maps.delete("one", &DeleteParams::default()).await.unwrap();
        assert!(deleted.right().unwrap().is_success());
        assert_eq!(maps.get_opt("one").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn refusals_say_why() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let post = PostParams::default();
        let created = maps.create(&post, &map("one")).await.unwrap();
        check_refused(maps.create(&post, &map("one")).await, 409, "AlreadyExists");
        check_refused(maps.get("nope").await, 404, "NotFound");
        check_refused(maps.delete("nope", &DeleteParams::default()).await, 404, "NotFound");
        let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "nowhere");
        check_refused(elsewhere.create(&post, &map("one")).await, 404, "NotFound");

        let mut newer = created.clone();
        newer.data = None;
        maps.replace("one", &post, &newer).await.unwrap();
        let conflict = refused(maps.replace("one", &post, &created).await);
        assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
        assert!(conflict.message.contains("the object has been modified"), "{}", conflict.message);

        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut bad = pod("one");
        bad.spec.as_mut().unwrap().containers[0].image = None;
        bad.spec.as_mut().unwrap().restart_policy = Some("Sometimes".into());
        let invalid = refused(pods.create(&post, &bad).await);
        assert_eq!((invalid.code, invalid.reason.as_str()), (422, "Invalid"));
        let causes = invalid.details.unwrap().causes;
        let mut fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["spec.containers[0].image", "spec.restartPolicy"]);
    })
    .await;
}

#[tokio::test]
async fn every_patch_is_applied() {
    everywhere(async |client: Client| {
        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &pod("one")).await.unwrap();
        let params = PatchParams::default();
        let merge = Patch::Merge(json!({"metadata": {"labels": {"tier": "front", "app": null}}}));
        let patched = pods.patch("one", &params, &merge).await.unwrap();
        assert_eq!(patched.labels().iter().collect::<Vec<_>>(), [(&"tier".to_owned(), &"front".to_owned())]);

        let strategic = Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}));
        let patched = pods.patch("one", &params, &strategic).await.unwrap();
        let container = &patched.spec.as_ref().unwrap().containers[0];
        assert_eq!(container.image.as_deref(), Some("nginx:2"));
        assert_eq!(container.termination_message_path.as_deref(), Some("/dev/termination-log"));

        let operations = json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(operations).unwrap());
        assert_eq!(pods.patch("one", &params, &patch).await.unwrap().annotations()["a"], "b");
        let operations = json!([{"op": "test", "path": "/metadata/name", "value": "two"}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(operations).unwrap());
        check_refused(pods.patch("one", &params, &patch).await, 422, "Invalid");
        check_refused(pods.patch("nope", &params, &merge).await, 404, "NotFound");
    })
    .await;
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        assert!(maps.create(&dry, &map("one")).await.unwrap().uid().is_some());
        assert_eq!(maps.get_opt("one").await.unwrap(), None);
        let created = maps.create(&PostParams::default(), &map("one")).await.unwrap();
        let patch = Patch::Merge(json!({"data": {"a": "2"}}));
        let patched = maps.patch("one", &PatchParams::default().dry_run(), &patch).await.unwrap();
        assert_eq!(patched.data.unwrap()["a"], "2");
        maps.delete("one", &DeleteParams::default().dry_run()).await.unwrap();
        assert_eq!(maps.get("one").await.unwrap(), created);
    })
    .await;
}

#[tokio::test]
async fn names_are_generated() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let mut one = map("x");
        one.metadata.name = None;
        one.metadata.generate_name = Some("made-".into());
        let first = maps.create(&PostParams::default(), &one).await.unwrap();
        let second = maps.create(&PostParams::default(), &one).await.unwrap();
        assert!(first.name_any().starts_with("made-") && first.name_any().len() == 10, "{}", first.name_any());
        assert_ne!(first.name_any(), second.name_any());
    })
    .await;
}

#[tokio::test]
async fn deletion_keeps_to_preconditions_and_finalizers() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let mut one = map("one");
        one.metadata.finalizers = Some(vec!["test.windlass.dev/hold".into()]);
        let created = maps.create(&PostParams::default(), &one).await.unwrap();
        let other = Preconditions { uid: Some("another".into()), resource_version: None };
        check_refused(maps.delete("one", &DeleteParams::default().preconditions(other)).await, 409, "Conflict");

        let same = Preconditions { uid: created.uid(), resource_version: created.resource_version() };
        let deleted = maps.delete("one", &DeleteParams::default().preconditions(same)).await.unwrap();
        let held = deleted.left().expect("it is still there");
        assert!(held.metadata.deletion_timestamp.is_some());
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        maps.patch("one", &PatchParams::default(), &release).await.unwrap();
        assert_eq!(maps.get_opt("one").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for name in ["one", "two", "three"] {
            maps.create(&PostParams::default(), &map(name)).await.unwrap();
        }
        let some = ListParams::default().labels("app in (one, three)");
        let deleted = maps.delete_collection(&DeleteParams::default(), &some).await.unwrap();
        let deleted = deleted.left().expect("what was deleted");
        assert_eq!(deleted.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["one", "three"]);
        let left = maps.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["two"]);
    })
    .await;
}

#[tokio::test]
async fn an_entry_is_committed_or_conflicts() {
    everywhere(async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let mut entry = maps.entry("one").await.unwrap().or_insert(|| map("one"));
        entry.commit(&PostParams::default()).await.unwrap();
        let mut stale = maps.entry("one").await.unwrap().and_modify(|map| map.data = None).or_insert(|| map("one"));
        entry.get_mut().labels_mut().insert("b".into(), "c".into());
        entry.commit(&PostParams::default()).await.unwrap();
        assert!(stale.commit(&PostParams::default()).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn built_in_kinds_get_their_defaults() {
    everywhere(async |client: Client| {
        let post = PostParams::default();
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).unwrap();
        let secret = secrets.create(&post, &secret).await.unwrap();
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
        assert_eq!(secret.data.unwrap()["a"].0, b"b");
        let services: Api<Service> = Api::default_namespaced(client.clone());
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        let service = services.create(&post, &serde_json::from_value(service).unwrap()).await.unwrap();
        let spec = service.spec.unwrap();
        assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
        assert_eq!(spec.cluster_ips.unwrap(), [spec.cluster_ip.unwrap()]);
        let namespaces: Api<Namespace> = Api::all(client);
        let namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        let namespace = namespaces.create(&post, &namespace).await.unwrap();
        assert_eq!(namespace.labels()["kubernetes.io/metadata.name"], "n");
        assert_eq!(namespace.status.unwrap().phase.as_deref(), Some("Active"));
    })
    .await;
}
