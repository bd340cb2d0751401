//! Does what a stage says to an object.

use std::collections::HashMap;

use http::{Method, Request};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use kube::api::{ApiResource, GroupVersionKind};
use kube::discovery::{self, Scope};
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass::ObjectKey;
use windlass::events::{EventType, NewEvent, Recorder};
use windlass_node::PodAccess;

use super::functions::ObjectFunctions;
use super::metadata;
use crate::stage::{Action, Patch, Stage};

const FIELD_MANAGER: &str = "kwok";

/// Makes the requests of stages.
pub(super) struct Actor {
    client: kube::Client,
    pub(super) access: PodAccess,
    recorder: Recorder,
    /// What is served of the kinds that stages apply: group and version, and kind.
    served: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

/// An object that stages are carried out for.
pub(super) struct Subject<'a> {
    pub(super) object: Value,
    path: String,
    pod: Option<&'a Pod>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(resource: &ApiResource, key: &ObjectKey, mut object: Value, pod: Option<&'a Pod>) -> Self {
        // The cache leaves these out.
        object["apiVersion"] = resource.api_version.as_str().into();
        object["kind"] = resource.kind.as_str().into();
        Self { object, path: path(resource, key.namespace(), key.name()), pod }
    }

    fn reference(&self) -> ObjectReference {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &self.object["metadata"];
        ObjectReference {
            api_version: text(&self.object["apiVersion"]),
            kind: text(&self.object["kind"]),
            name: text(&metadata["name"]),
            namespace: text(&metadata["namespace"]),
            uid: text(&metadata["uid"]),
            resource_version: text(&metadata["resourceVersion"]),
            field_path: None,
        }
    }
}

fn path(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let base = if resource.group.is_empty() { "/api" } else { "/apis" };
    let below = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    format!("{base}/{}{below}/{}/{name}", resource.api_version, resource.plural)
}

impl Actor {
    pub(super) fn new(client: kube::Client, access: PodAccess, recorder: Recorder) -> Self {
        Self { client, access, recorder, served: Mutex::default() }
    }

    pub(super) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Whether stages are for an object: of pods and nodes, those of the agent.
    pub(super) fn is_ours(&self, pod: Option<&Pod>, node: Option<&Node>) -> bool {
        let of_pod = pod.map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()));
        let of_node = node.map(|node| node.metadata.name.as_deref());
        of_pod.or(of_node).is_none_or(|name| name.is_some_and(|name| self.access.has_node(name)))
    }

    /// Does what a stage says.
    pub(super) async fn play(&self, subject: &Subject<'_>, stage: &Stage) -> Result<(), kube::Error> {
        let node = subject.pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let node = node.unwrap_or_else(|| metadata(&subject.object, "name"));
        let functions = ObjectFunctions { access: &self.access, pod: subject.pod, node };
        let actions = match stage.actions(&subject.object, &functions) {
            Ok(actions) => actions,
            Err(error) => {
                tracing::warn!(stage = stage.name(), object = subject.path, %error, "a stage cannot be carried out");
                return Ok(());
            }
        };
        for action in actions {
            match action {
                Action::Event(event) => {
                    let kind = if event.kind == "Warning" { EventType::Warning } else { EventType::Normal };
                    self.recorder.publish(subject.reference(), NewEvent::new(kind, event.reason, event.message));
                }
                Action::Patch(patch) => self.patch(&subject.path, &patch).await?,
                Action::Apply(patch) => self.apply(&patch).await?,
                Action::Delete => self.delete(subject).await?,
            }
        }
        Ok(())
    }

    async fn patch(&self, path: &str, patch: &Patch) -> Result<(), kube::Error> {
        let below = if patch.subresource.is_empty() { String::new() } else { format!("/{}", patch.subresource) };
        let force = if patch.content_type == crate::stage::APPLY_PATCH { "&force=true" } else { "" };
        let path = format!("{path}{below}?fieldManager={FIELD_MANAGER}{force}");
        let mut request = Request::builder().method(Method::PATCH).uri(path).header("content-type", patch.content_type);
        if let Some(user) = &patch.as_user {
            request = request.header("impersonate-user", user);
        }
        self.send(request, &patch.body).await
    }

    /// Creates or patches another object.
    async fn apply(&self, patch: &Patch) -> Result<(), kube::Error> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&patch.body["apiVersion"]), text(&patch.body["kind"]));
        let (resource, scope) = self.served(&version, &kind).await?;
        let namespace = patch.body["metadata"]["namespace"].as_str().unwrap_or("default");
        let namespace = (scope == Scope::Namespaced).then_some(namespace);
        self.patch(&path(&resource, namespace, metadata(&patch.body, "name")), patch).await
    }

    /// How a kind is served.
    pub(super) async fn served(&self, version: &str, kind: &str) -> Result<(ApiResource, Scope), kube::Error> {
        let key = (version.to_owned(), kind.to_owned());
        if let Some(known) = self.served.lock().get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &kind).await?;
        let served = (resource, capabilities.scope);
        self.served.lock().insert(key, served.clone());
        Ok(served)
    }

    /// Deletes an object at once, if it is still the same.
    pub(super) async fn delete(&self, subject: &Subject<'_>) -> Result<(), kube::Error> {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": {"uid": metadata(&subject.object, "uid")},
        });
        let request = Request::builder().method(Method::DELETE).uri(&subject.path);
        self.send(request.header("content-type", "application/json"), &options).await
    }

    async fn send(&self, request: http::request::Builder, body: &Value) -> Result<(), kube::Error> {
        let request = request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)?;
        match self.client.request::<Value>(request).await {
            // Gone, or another of its name: the watch shows it.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 422 || status.code == 400 => {
                tracing::warn!(message = %status.message, "the API server refuses what a stage does");
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
