//! Carries out the stages of pods.
//!
//! A pod that a stage is for as soon as it was bound is *led* by stages: the node agent leaves it alone. All other pods are run
//! by the agent, and stages can still change them, as those that make pods fail do. A pod is looked at whenever it changes or
//! its stage is due; there is no task and no timer per pod.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::cache::Lister;
use windlass::events::{EventType, NewEvent, Recorder};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};
use windlass_node::PodAccess;

use crate::objects;
use crate::stage::{Action, Patch, Stage, choose};
use crate::template::Functions;

/// Pods that are worked on at the same time.
const WORKERS: usize = 32;
/// The least time between two stages of which the first says that the second follows at once.
const IMMEDIATE: Duration = Duration::from_millis(100);
const FIELD_MANAGER: &str = "kwok";

/// The stages of a cluster, ready to be used. Clones are the same.
#[derive(Clone)]
pub struct Stages {
    inner: Arc<Inner>,
}

/// A stage and the version that it was compiled from; `None` if it cannot be used.
type Compiled = (String, Option<Arc<Stage>>);

struct Inner {
    lister: Lister<objects::Stage>,
    /// By name.
    compiled: Mutex<HashMap<String, Compiled>>,
}

impl std::fmt::Debug for Stages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stages").finish_non_exhaustive()
    }
}

impl Stages {
    /// The stages that a manager watches.
    pub fn new(manager: &Manager) -> Self {
        Self { inner: Arc::new(Inner { lister: manager.lister(), compiled: Mutex::default() }) }
    }

    /// Those for a kind of the core group, by name.
    fn of(&self, kind: &str) -> Vec<Arc<Stage>> {
        if self.inner.lister.is_empty() {
            return Vec::new();
        }
        let mut stages: Vec<Arc<Stage>> = Vec::new();
        let mut compiled = self.inner.compiled.lock();
        for stage in self.inner.lister.list() {
            let about = &stage.spec.resource_ref;
            if about.kind != kind || !matches!(about.api_group.as_str(), "" | "v1") {
                continue;
            }
            let name = stage.metadata.name.clone().unwrap_or_default();
            let version = stage.metadata.resource_version.clone().unwrap_or_default();
            let entry = compiled.entry(name.clone()).or_default();
            if entry.0 != version || version.is_empty() {
                let read = Stage::compile(&name, &stage.spec, &Names).unwrap_or_else(|error| {
                    tracing::warn!(stage = %name, %error, "a stage cannot be used");
                    None
                });
                *entry = (version, read.map(Arc::new));
            }
            stages.extend(entry.1.clone());
        }
        drop(compiled);
        stages.sort_by(|left, right| left.name().cmp(right.name()));
        stages
    }

    /// Whether a pod is led by stages: one is for it as it was when it was bound. What has become of it since does not
    /// matter, so that a restart changes nothing.
    pub fn lead(&self, pod: &Pod) -> bool {
        let stages = self.of("Pod");
        if stages.is_empty() {
            return false;
        }
        let Ok(mut object) = serde_json::to_value(pod) else { return false };
        object["status"] = json!({"phase": "Pending"});
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
        }
        stages.iter().any(|stage| stage.matches(&object))
    }
}

/// Has stages carried out for the pods that an agent's nodes have. Requests are made with this client.
pub fn add(
    manager: &mut Manager,
    client: kube::Client,
    stages: &Stages,
    access: PodAccess,
) -> Result<(), ManagerError> {
    let pods: Lister<Pod> = manager.lister();
    let player = Player {
        client,
        access,
        stages: stages.clone(),
        recorder: manager.recorder("kwok"),
        playing: Mutex::default(),
    };
    manager.add(
        Controller::<Pod>::new("kwok-pods")
            // A stage that changes may be for any pod.
            .watches::<objects::Stage, _, _>(move |_, _| pods.keys())
            .concurrency(WORKERS)
            .complete(player),
    )
}

struct Player {
    client: kube::Client,
    access: PodAccess,
    stages: Stages,
    recorder: Recorder,
    playing: Mutex<HashMap<ObjectKey, Playing>>,
}

/// Where a pod is.
struct Playing {
    uid: String,
    /// The version of the pod that this is about.
    version: String,
    next: Next,
}

enum Next {
    /// A stage is due then.
    Due(Arc<Stage>, Instant),
    /// Its stage was carried out, and the watch shows what came of it.
    Played,
}

impl Reconcile<Pod> for Player {
    async fn reconcile(&self, pod: Arc<Pod>, _: Context) -> windlass::Result {
        let key = ObjectKey::of(&*pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let stages = self.stages.of("Pod");
        if stages.is_empty() || !node.is_some_and(|node| self.access.has_node(node)) {
            self.forget(&key);
            return Ok(Outcome::Done);
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let version = pod.metadata.resource_version.clone().unwrap_or_default();
        let is_led = self.stages.lead(&pod);
        if is_led {
            // The address that it has is taken, also after a restart.
            self.access.lend_address(&pod);
        }
        let object = serde_json::to_value(&*pod)?;
        let now = Instant::now();
        let mut random = |below: u64| fastrand::u64(..below.max(1));
        let chosen = {
            let mut playing = self.playing.lock();
            let known = playing.get(&key).filter(|known| known.uid == uid && known.version == version);
            let due = match known.map(|known| &known.next) {
                Some(Next::Played) => return Ok(Outcome::Done),
                Some(Next::Due(stage, at)) if stages.iter().any(|other| Arc::ptr_eq(other, stage)) => {
                    Some((Arc::clone(stage), *at))
                }
                _ => choose(&stages, &object, &mut random).map(|stage| {
                    let delay = stage.delay(&object, Timestamp::now(), &mut random);
                    (Arc::clone(stage), now + delay)
                }),
            };
            match &due {
                Some((stage, at)) => {
                    let next = Next::Due(Arc::clone(stage), *at);
                    playing.insert(key.clone(), Playing { uid: uid.clone(), version: version.clone(), next });
                }
                None => {
                    playing.insert(
                        key.clone(),
                        Playing { uid: uid.clone(), version: version.clone(), next: Next::Played },
                    );
                }
            }
            due
        };
        let Some((stage, at)) = chosen else {
            // Nothing would ever end a pod that nobody else runs.
            if is_led && pod.metadata.deletion_timestamp.is_some() {
                self.delete(&key, &uid).await?;
            }
            return Ok(Outcome::Done);
        };
        if at > now {
            return Ok(Outcome::RequeueAfter(at - now));
        }
        self.play(&key, &pod, &object, &stage).await?;
        let is_immediate = stage.is_immediate();
        let mut playing = self.playing.lock();
        if is_immediate {
            playing.remove(&key);
            return Ok(Outcome::RequeueAfter(IMMEDIATE));
        }
        playing.insert(key, Playing { uid, version, next: Next::Played });
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: ObjectKey, _: Context) -> windlass::Result {
        self.forget(&key);
        Ok(Outcome::Done)
    }
}

impl Player {
    fn forget(&self, key: &ObjectKey) {
        if let Some(known) = self.playing.lock().remove(key) {
            self.access.return_address(&known.uid);
        }
    }

    /// Does what a stage says.
    async fn play(&self, key: &ObjectKey, pod: &Arc<Pod>, object: &Value, stage: &Stage) -> Result<(), kube::Error> {
        let functions = PodFunctions { access: &self.access, pod };
        let actions = match stage.actions(object, &functions) {
            Ok(actions) => actions,
            Err(error) => {
                tracing::warn!(stage = stage.name(), pod = %key, %error, "a stage cannot be carried out");
                return Ok(());
            }
        };
        for action in actions {
            match action {
                Action::Event(event) => {
                    let kind = if event.kind == "Warning" { EventType::Warning } else { EventType::Normal };
                    self.recorder.publish(reference(pod), NewEvent::new(kind, event.reason, event.message));
                }
                Action::Patch(patch) => self.patch(key, &patch).await?,
                Action::Delete => self.delete(key, pod.metadata.uid.as_deref().unwrap_or_default()).await?,
            }
        }
        Ok(())
    }

    async fn patch(&self, key: &ObjectKey, patch: &Patch) -> Result<(), kube::Error> {
        let below = if patch.subresource.is_empty() { String::new() } else { format!("/{}", patch.subresource) };
        let path = format!("{}{below}?fieldManager={FIELD_MANAGER}", path(key));
        let mut request = Request::builder().method(Method::PATCH).uri(path).header("content-type", patch.content_type);
        if let Some(user) = &patch.as_user {
            request = request.header("impersonate-user", user);
        }
        self.send(request, &patch.body).await
    }

    /// Deletes a pod at once, if it is still the same.
    async fn delete(&self, key: &ObjectKey, uid: &str) -> Result<(), kube::Error> {
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
        });
        let request =
            Request::builder().method(Method::DELETE).uri(path(key)).header("content-type", "application/json");
        self.send(request, &options).await
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

fn reference(pod: &Pod) -> ObjectReference {
    let meta = &pod.metadata;
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

fn path(key: &ObjectKey) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", key.namespace().unwrap_or_default(), key.name())
}

/// The names of kwok's functions about nodes and pods.
pub(crate) struct Names;

const FUNCTIONS: [&str; 12] = [
    "NodeIP",
    "NodeIPs",
    "NodeName",
    "NodePort",
    "NodeIPWith",
    "NodeIPsWith",
    "PodIP",
    "PodIPs",
    "PodIPWith",
    "PodIPsWith",
    "Version",
    "StartTime",
];

impl Functions for Names {
    fn has(&self, name: &str) -> bool {
        FUNCTIONS.contains(&name)
    }

    fn call(&self, name: &str, _: &[Value]) -> Result<Value, String> {
        Err(format!("{name} has no answer here"))
    }
}

/// Kwok's functions, for one pod.
struct PodFunctions<'a> {
    access: &'a PodAccess,
    pod: &'a Pod,
}

impl Functions for PodFunctions<'_> {
    fn has(&self, name: &str) -> bool {
        Names.has(name)
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        let own = self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let node = arguments.first().and_then(Value::as_str).unwrap_or(own);
        let address = match name {
            "NodeIP" | "NodeIPs" | "NodeIPWith" | "NodeIPsWith" => self.access.node_address(node),
            "PodIP" | "PodIPs" | "PodIPWith" | "PodIPsWith" => self.access.lend_address(self.pod),
            "NodeName" => return Ok(own.into()),
            "NodePort" => return Ok(10250.into()),
            "Version" => return Ok(concat!("v", env!("CARGO_PKG_VERSION")).into()),
            "StartTime" => return Ok(Timestamp::now().to_string().into()),
            _ => return Err("is not defined".to_owned()),
        };
        let address = address.map(|address| address.to_string());
        Ok(if name.contains("IPs") {
            address.into_iter().collect::<Vec<_>>().into()
        } else {
            address.unwrap_or_default().into()
        })
    }
}
