//! Objects of a cluster: made, changed, and waited for while controllers act in their own time.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, NamespaceResourceScope};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longer than anything may take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Waits until an object, or its absence, is as wanted.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool + Send + Sync)
where
    K: kube::Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
{
    until_within(api, name, LONG, wanted).await;
}

/// Waits at most that long until an object, or its absence, is as wanted: with a paused clock, time is cheap.
pub(crate) async fn until_within<K>(
    api: &Api<K>,
    name: &str,
    limit: Duration,
    wanted: impl Fn(Option<&K>) -> bool + Send + Sync,
) where
    K: kube::Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
{
    let waiting = kube::runtime::wait::await_condition(api.clone(), name, |object: Option<&K>| wanted(object));
    let waited = tokio::time::timeout(limit, waiting).await;
    waited.unwrap_or_else(|_| panic!("{name} is not as wanted after {limit:?}")).unwrap();
}

/// Waits until an object is gone.
pub(crate) async fn until_gone<K>(api: &Api<K>, name: &str)
where
    K: kube::Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
{
    until(api, name, |object| object.is_none()).await;
}

/// Waits until an object is there, and returns it.
pub(crate) async fn until_there<K>(api: &Api<K>, name: &str) -> K
where
    K: kube::Resource + Clone + Debug + Send + Sync + DeserializeOwned + 'static,
{
    until(api, name, |object| object.is_some()).await;
    api.get(name).await.unwrap()
}

/// Waits until the pods that a selector selects are as wanted.
pub(crate) async fn until_pods(pods: &Api<Pod>, selector: &str, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    let waiting = async {
        loop {
            let found = pods.list(&ListParams::default().labels(selector)).await.unwrap().items;
            if wanted(&found) {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("the pods become as wanted")
}

/// Waits for an event with a reason, about an object whose name begins so, with a text in its message.
pub(crate) async fn until_event(client: &kube::Client, reason: &str, name: &str, text: &str) {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let mut seen = Vec::new();
    let waiting = async {
        loop {
            let found = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await.unwrap();
            seen = found.items;
            let is_it = |event: &Event| {
                let about = event.involved_object.name.as_deref().is_some_and(|about| about.starts_with(name));
                about && event.message.as_deref().is_some_and(|message| message.contains(text))
            };
            if seen.iter().any(is_it) {
                return;
            }
            // Lets a paused clock move on.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, waiting).await;
    let messages: Vec<_> = seen.iter().map(|event| (&event.involved_object.name, &event.message)).collect();
    assert!(waited.is_ok(), "no event {reason} about {name} says {text:?}: {messages:#?}");
}

/// Whether a pod is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status == "True")
}

/// Does what a kubelet does: every pod that a selector selects and that is not ready becomes so.
pub(crate) async fn make_ready(pods: &Api<Pod>, selector: &str) {
    for pod in pods.list(&ListParams::default().labels(selector)).await.unwrap() {
        let status = serde_json::json!({"status": {"phase": "Running", "conditions": [{
            "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}});
        if !is_ready(&pod) && pod.metadata.deletion_timestamp.is_none() {
            // A pod that went meanwhile need not be ready.
            let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
        }
    }
}

/// Ends a pod.
pub(crate) async fn end_pod(pods: &Api<Pod>, pod: &Pod, phase: &str) {
    let status = Patch::Merge(serde_json::json!({"status": {"phase": phase}}));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await.unwrap();
}

/// An object from JSON.
pub(crate) fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Creates an object from JSON.
pub(crate) async fn create<K>(api: &Api<K>, value: Value) -> K
where
    K: kube::Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &object(value)).await.unwrap()
}

/// Changes an object by a merge patch.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: Clone + Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

/// All objects of a kind in a namespace.
pub(crate) fn namespaced<K>(client: &kube::Client, namespace: &str) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), namespace)
}

/// The definition of a custom resource of group `example.com`, version `v1`.
pub(crate) fn definition(kind: &str, scope: &str) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    object(serde_json::json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    }))
}

/// Installs a custom resource of group `example.com`, version `v1`, and returns its API.
pub(crate) async fn install(client: &kube::Client, kind: &str, scope: &str) -> Api<DynamicObject> {
    use kube::runtime::wait::Condition as _;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = crds.create(&PostParams::default(), &definition(kind, scope)).await.unwrap();
    until(&crds, &definition.name_any(), |crd| kube::runtime::conditions::is_crd_established().matches_object(crd))
        .await;
    let resource = kube::api::ApiResource {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: kind.to_owned(),
        plural: definition.spec.names.plural,
    };
    match scope {
        "Namespaced" => Api::default_namespaced_with(client.clone(), &resource),
        _ => Api::all_with(client.clone(), &resource),
    }
}
