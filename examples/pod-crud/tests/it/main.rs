// SPDX-License-Identifier: Apache-2.0

//! Tests of the program, each on a cluster of its own in this process.

#[cfg(target_os = "linux")]
mod in_cluster;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::sync::mpsc;
use windlass::kube::Api;
use windlass::serde_json::{from_value, json};
use windlass_testing::{Env, Fault, Requests};

use pod_crud::{crud, dynamic, informer, protobuf, watch};

fn pods(env: &Env) -> Api<Pod> {
    Api::namespaced(env.kube(), "default")
}

#[windlass_testing::test]
async fn a_pod_is_created_read_updated_and_deleted(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let pod = pods.get(crud::NAME).await.expect("read");
    assert_eq!(pod.metadata.labels, Some([("k".into(), "v".into())].into()));
    let labels = [("patch".into(), "v1".into())].into();
    let labelled = crud::label(&pods, crud::NAME, &labels).await.expect("updated");
    assert_eq!(labelled.metadata.labels, Some(labels));
    crud::delete(&pods, crud::NAME).await.expect("deleted");
    env.wait_gone::<Pod>(crud::NAME).await;
    assert!(crud::delete(&pods, crud::NAME).await.is_err());
}

#[windlass_testing::test(bare)]
async fn an_update_that_meets_another_writer_is_tried_again(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let conflicts = env.fail(Requests::of::<Pod>().verbs(["update"])).times(3).with(Fault::conflict());
    let labels = [("patch".into(), "v1".into())].into();
    crud::label(&pods, crud::NAME, &labels).await.expect("updated");
    assert_eq!(conflicts.hits(), 3);

    // Two programs at once: one of them is told to look again, and nothing of either is lost but the labels.
    let (one, other) = ([("a".into(), "1".into())].into(), [("a".into(), "2".into())].into());
    let (first, second) = tokio::join!(crud::label(&pods, crud::NAME, &one), crud::label(&pods, crud::NAME, &other));
    assert!(first.is_ok() && second.is_ok());
}

#[windlass_testing::test(bare)]
async fn a_watch_tells_changes_and_goes_on_where_it_ended(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let mut told = Vec::new();
    let once = |told: &mut Vec<String>, text: String| {
        told.push(text);
        false
    };
    let mut version = watch::START.to_owned();
    watch::follow(&pods, &mut version, |text| once(&mut told, text)).await.expect("watched");
    crud::label(&pods, crud::NAME, &[("a".into(), "b".into())].into()).await.expect("updated");
    watch::follow(&pods, &mut version, |text| once(&mut told, text)).await.expect("watched");
    env.delete::<Pod>(crud::NAME).await;
    watch::follow(&pods, &mut version, |text| once(&mut told, text)).await.expect("watched");
    assert_eq!(told, ["added: foo", "modified: foo", "deleted: foo"]);
}

/// The server sends one every minute, which takes no time with a clock that jumps.
#[windlass_testing::test(bare, paused)]
async fn a_bookmark_moves_the_version_of_a_watch_on(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let mut other = ConfigMap::default();
    other.metadata.name = Some("other".into());
    let other = env.create(other).await.metadata.resource_version.expect("a version");
    let mut told = Vec::new();
    let mut version = watch::START.to_owned();
    let until_bookmark = |text: String| {
        told.push(text);
        told.len() < 2
    };
    watch::follow(&pods, &mut version, until_bookmark).await.expect("watched");
    assert_eq!(told, ["added: foo".to_owned(), format!("bookmark: up to {version}")]);
    // The watch has told no change of Pods since, and yet it is past the ConfigMap.
    let number = |version: &str| version.parse::<u64>().expect("a number");
    assert!(number(&version) >= number(&other), "{version} is before {other}");
}

#[windlass_testing::test(bare)]
async fn a_watch_survives_a_restart_failures_and_an_expired_version(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let (sender, mut told) = mpsc::unbounded_channel();
    let failing = env.fail(Requests::of::<Pod>().verbs(["watch"])).times(1).with(Fault::status(503));
    let watched = pods.clone();
    let tell = move |text: String| text.starts_with("bookmark") || sender.send(text).is_ok();
    let watching = tokio::spawn(async move { watch::follow_on(&watched, tell).await });
    assert_eq!(told.recv().await.as_deref(), Some("added: foo"));
    assert_eq!(failing.hits(), 1);
    // What happens while the server is away is told afterwards.
    env.restart_server().await;
    crud::label(&pods, crud::NAME, &[("a".into(), "b".into())].into()).await.expect("updated");
    assert_eq!(told.recv().await.as_deref(), Some("modified: foo"));
    // Everything is told again if the server no longer knows what has changed.
    let expired = env.fail(Requests::of::<Pod>().verbs(["watch"])).times(1).with(Fault::expired());
    env.restart_server().await;
    assert_eq!(told.recv().await.as_deref(), Some("added: foo"));
    assert_eq!(expired.hits(), 1);
    watching.abort();
}

#[windlass_testing::test]
async fn a_run_that_was_interrupted_is_taken_up(env: Env) {
    let pods = pods(&env);
    let before = crud::create(&pods).await.expect("created");
    let again = crud::create(&pods).await.expect("it is there");
    assert_eq!(again.metadata.uid, before.metadata.uid);
    crud::delete(&pods, crud::NAME).await.expect("deleted");
}

#[windlass_testing::test(bare)]
async fn an_informer_tells_changes_and_has_a_cache(env: Env) {
    let pods = pods(&env);
    crud::create(&pods).await.expect("created");
    let (sender, mut told) = mpsc::unbounded_channel();
    let sender = Arc::new(sender);
    let (factory, informer) = informer::pods(env.kube(), move |text| drop(sender.send(text)));
    factory.start();
    factory.wait_synced().await.expect("synced");
    assert_eq!(informer.lister().len(), 1);
    assert_eq!(told.recv().await.as_deref(), Some("add pod: default/foo"));
    crud::label(&pods, crud::NAME, &[("a".into(), "b".into())].into()).await.expect("updated");
    assert_eq!(told.recv().await.as_deref(), Some("update pod: default/foo"));
    // What happens while the watch is down is told afterwards.
    env.restart_server().await;
    env.delete::<Pod>(crud::NAME).await;
    assert_eq!(told.recv().await.as_deref(), Some("delete pod: default/foo"));
    factory.stop().await;
}

#[windlass_testing::test(bare, paused)]
async fn an_informer_tells_everything_again_after_half_an_hour(env: Env) {
    crud::create(&pods(&env)).await.expect("created");
    let (sender, mut told) = mpsc::unbounded_channel();
    let (factory, _informer) = informer::pods(env.kube(), move |text| drop(sender.send(text)));
    factory.start();
    factory.wait_synced().await.expect("synced");
    assert_eq!(told.recv().await.as_deref(), Some("add pod: default/foo"));
    // Periods differ by up to a tenth, so that not all programs do it at once.
    env.advance(Duration::from_secs(20 * 60)).await;
    assert!(told.try_recv().is_err());
    assert_eq!(told.recv().await.as_deref(), Some("update pod: default/foo"));
    factory.stop().await;
}

/// The definition of the example `at`, as its document shows it.
fn definition() -> CustomResourceDefinition {
    from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "ats.cnat.programming-kubernetes.info" },
        "spec": {
            "group": "cnat.programming-kubernetes.info",
            "scope": "Namespaced",
            "names": { "kind": "At", "listKind": "AtList", "plural": "ats", "singular": "at" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": { "type": "object", "properties": { "schedule": { "type": "string" } } } },
                } },
            }],
        },
    }))
    .expect("a definition")
}

#[windlass_testing::test(bare)]
async fn the_dynamic_client_reads_a_kind_that_it_has_no_type_for(env: Env) {
    env.install_crd(definition()).await;
    assert!(dynamic::at(env.kube(), "default", "example-at").await.expect("asked").is_none());
    let at = json!({
        "apiVersion": "cnat.programming-kubernetes.info/v1alpha1", "kind": "At",
        "metadata": { "name": "example-at", "namespace": "default" },
        "spec": { "schedule": "2019-07-03T02:00:00Z" },
    });
    let resource = windlass::kube::api::ApiResource::from_gvk(&windlass::kube::api::GroupVersionKind::gvk(
        "cnat.programming-kubernetes.info",
        "v1alpha1",
        "At",
    ));
    let ats: Api<windlass::kube::api::DynamicObject> = Api::namespaced_with(env.kube(), "default", &resource);
    ats.create(&Default::default(), &from_value(at).expect("an At")).await.expect("created");
    let at = dynamic::at(env.kube(), "default", "example-at").await.expect("asked").expect("it is there");
    assert_eq!(dynamic::schedule(&at), Some("2019-07-03T02:00:00Z"));
}

#[windlass_testing::test(bare)]
async fn protobuf_is_for_kinds_of_kubernetes_only(env: Env) {
    env.install_crd(definition()).await;
    let encoding = async |path| protobuf::content_type(&env.kube(), path).await.expect("an answer");
    assert_eq!(encoding("/api/v1/namespaces/default/pods").await, "application/vnd.kubernetes.protobuf");
    let ats = "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats";
    assert_eq!(encoding(ats).await, "application/json");
}
