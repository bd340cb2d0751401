//! What follows from decisions: bindings, conditions, events, and the deletion of victims.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::client::Body;
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass::ObjectKey;
use windlass::cache::Lister;
use windlass::events::{NewEvent, Recorder};

use crate::allowance::Allowance;
use crate::pod::PodInfo;
use crate::queue::Reported;
use crate::schedule::{Failure, Nomination};
use crate::shared_state::{SharedState, now};
use crate::volume::{PodVolumes, SELECTED_NODE};

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// How long the volumes of a pod may take to be bound.
const VOLUME_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest note of an event.
const LONGEST_NOTE: usize = 1024;

/// Why a pod could not be bound to its node.
#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error("running Bind plugin \"DefaultBinder\": {}", .0.message)]
    Refused(Box<Status>),
    #[error("running Bind plugin \"DefaultBinder\": {0}")]
    Client(#[source] Box<kube::Error>),
    #[error("running PreBind plugin \"VolumeBinding\": binding volumes: {0}")]
    Volumes(String),
    #[error("running PreBind plugin \"DynamicResources\": {0}")]
    Devices(#[source] Box<kube::Error>),
}

impl BindError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 404)
    }
}

/// Sends what decisions ask for.
pub(crate) struct Writer {
    client: kube::Client,
    shared: Arc<SharedState>,
    recorders: HashMap<String, Recorder>,
    claims: Lister<PersistentVolumeClaim>,
    /// How many events about pods that were scheduled may be reported.
    allowance: Mutex<Allowance>,
}

impl Writer {
    pub(crate) fn new(
        client: kube::Client,
        shared: Arc<SharedState>,
        recorders: HashMap<String, Recorder>,
        claims: Lister<PersistentVolumeClaim>,
    ) -> Self {
        Self { client, shared, recorders, claims, allowance: Mutex::default() }
    }

    /// Binds a pod to a node, its volumes first.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str, volumes: &PodVolumes) {
        let bound = async {
            if !volumes.is_empty() {
                self.bind_volumes(pod, node, volumes).await?;
            }
            if !pod.devices.is_empty() {
                self.reserve_devices(pod).await?;
            }
            self.post_binding(pod, node).await
        };
        let Err(error) = bound.await else {
            if self.allowance.lock().take(now()) {
                let note = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
                self.publish(pod, NewEvent::normal("Scheduled", note).action("Binding"));
            }
            return;
        };
        self.shared.state.lock().unbind(pod, volumes, node, now());
        self.shared.wake.notify_one();
        if !error.is_gone() {
            let message = error.to_string();
            tracing::warn!(namespace = %pod.namespace, name = %pod.name, %node, %error, "pod could not be bound");
            self.warn(pod, &message);
            let before = self.reported(pod);
            self.set_condition(pod, "SchedulerError", &message, &before, None).await;
        }
    }

    fn reported(&self, pod: &PodInfo) -> Reported {
        self.shared.state.lock().queue.get(&pod.uid).map(|entry| entry.reported.clone()).unwrap_or_default()
    }

    async fn post_binding(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": &*pod.namespace, "name": &*pod.name, "uid": &*pod.uid},
            "target": {"kind": "Node", "name": node},
        });
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(binding.to_string().into_bytes()));
        let request = request.expect("invariant: names of pods and namespaces are valid in paths");
        let answer = self.client.send(request).await.map_err(|error| BindError::Client(Box::new(error)))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await.unwrap_or_default();
        let mut status: Status = serde_json::from_slice(&body).unwrap_or_default();
        status.code = code;
        Err(BindError::Refused(Box::new(status)))
    }

    /// Claims existing volumes, has others made, and waits until all claims are bound.
    async fn bind_volumes(&self, pod: &PodInfo, node: &str, volumes: &PodVolumes) -> Result<(), BindError> {
        let failed = |error: kube::Error| BindError::Volumes(error.to_string());
        let mut changed = self.shared.claims.subscribe();
        for ((namespace, name), volume) in &volumes.bindings {
            let claim = self.claims.get(&ObjectKey::new(&**namespace, &**name));
            let claim = claim.ok_or_else(|| BindError::Volumes(format!("persistentvolumeclaim {name:?} not found")))?;
            self.claim_volume(volume, &claim).await.map_err(failed)?;
        }
        for (namespace, name) in &volumes.provisions {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            claims.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
        }
        let bound = async {
            loop {
                changed.mark_unchanged();
                if let Some(outcome) = self.shared.state.lock().cluster.volumes.outcome(volumes, node) {
                    return outcome.map_err(BindError::Volumes);
                }
                if changed.changed().await.is_err() {
                    return Err(BindError::Volumes("the scheduler stops".to_owned()));
                }
            }
        };
        let limited = tokio::time::timeout(VOLUME_TIMEOUT, bound).await;
        tracing::debug!(namespace = %pod.namespace, name = %pod.name, "volumes of the pod are settled");
        limited.unwrap_or_else(|_| Err(BindError::Volumes("context deadline exceeded".to_owned())))
    }

    /// Writes into resource claims that the pod uses them.
    async fn reserve_devices(&self, pod: &PodInfo) -> Result<(), BindError> {
        let unreserved = self.shared.state.lock().cluster.devices.unreserved(pod);
        let resource = ApiResource::erase::<ResourceClaim>(&());
        let claims: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &pod.namespace, &resource);
        for (name, uid) in unreserved {
            let consumer = json!({"resource": "pods", "name": &*pod.name, "uid": &*pod.uid});
            let patch = json!({"metadata": {"uid": &*uid}, "status": {"reservedFor": [consumer]}});
            let written = claims.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch)).await;
            written.map_err(|error| BindError::Devices(Box::new(error)))?;
        }
        Ok(())
    }

    async fn claim_volume(&self, volume: &str, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut volume = volumes.get(volume).await?;
        let Some(spec) = &mut volume.spec else { return Ok(()) };
        let meta = &claim.metadata;
        let reserved = spec.claim_ref.as_ref().is_some_and(|one| {
            one.name == meta.name
                && one.namespace == meta.namespace
                && one.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == meta.uid.as_ref())
        });
        spec.claim_ref = Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        });
        if !reserved {
            let annotations = volume.metadata.annotations.get_or_insert_default();
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        let name = volume.metadata.name.clone().unwrap_or_default();
        volumes.replace(&name, &PostParams::default(), &volume).await.map(drop)
    }

    /// Says why a pod has to wait, and removes its victims.
    pub(crate) async fn fail(&self, pod: &PodInfo, failure: &Failure, before: &Reported, outbid: &[Arc<PodInfo>]) {
        if let Some(claim) = &failure.missing_claim
            && self.claim_exists(&pod.namespace, claim).await
        {
            // The watch of claims was behind that of pods. The claim comes with it, and the pod is tried again.
            self.shared.state.lock().queue.report(&pod.uid, before.clone());
            return;
        }
        self.warn(pod, &failure.message);
        let nominated = match &failure.nomination {
            Nomination::Keep => None,
            Nomination::Clear => before.nominated.is_some().then_some(Value::Null),
            Nomination::Preempt { node, .. } => (before.nominated.as_deref() != Some(node)).then(|| json!(&**node)),
        };
        self.set_condition(pod, "Unschedulable", &failure.message, before, nominated).await;
        for other in outbid {
            self.patch_status(other, json!({"nominatedNodeName": null})).await;
        }
        let Nomination::Preempt { node, victims } = &failure.nomination else { return };
        for victim in victims.iter().filter(|victim| !victim.deleting) {
            if let Err(error) = self.preempt(pod, victim, node).await {
                tracing::warn!(namespace = %victim.namespace, name = %victim.name, %error, "pod could not be preempted");
                self.shared.state.lock().queue.requeue(&pod.uid, now());
                self.shared.wake.notify_one();
                return;
            }
        }
    }

    async fn claim_exists(&self, namespace: &str, name: &str) -> bool {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        matches!(claims.get_metadata_opt(name).await, Ok(Some(_)))
    }

    async fn preempt(&self, pod: &PodInfo, victim: &PodInfo, node: &str) -> Result<(), kube::Error> {
        let message = format!("{}: preempting to accommodate a higher priority pod", pod.scheduler);
        let condition = condition("DisruptionTarget", "True", "PreemptionByScheduler", &message, true);
        self.patch_status(victim, json!({"conditions": [condition]})).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &victim.namespace);
        let same = Preconditions { uid: Some(victim.uid.to_string()), resource_version: None };
        let how = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        match pods.delete(&victim.name, &how).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let note = format!("Preempted by pod {} on node {node}", pod.uid);
        let event = NewEvent::normal("Preempted", note).action("Preempting").related(reference(pod));
        self.recorder(pod, |recorder| recorder.publish(reference(victim), event));
        Ok(())
    }

    async fn set_condition(
        &self,
        pod: &PodInfo,
        reason: &str,
        message: &str,
        before: &Reported,
        nominated: Option<Value>,
    ) {
        let same = before.why.as_ref().is_some_and(|(old, text)| old == reason && text == message);
        if same && nominated.is_none() {
            return;
        }
        let mut status = json!({});
        if !same {
            status["conditions"] = json!([condition("PodScheduled", "False", reason, message, !before.unscheduled)]);
        }
        if let Some(nominated) = nominated {
            status["nominatedNodeName"] = nominated;
        }
        self.patch_status(pod, status).await;
    }

    async fn patch_status(&self, pod: &PodInfo, status: Value) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let patch = Patch::Strategic(json!({"metadata": {"uid": &*pod.uid}, "status": status}));
        match pods.patch_status(&pod.name, &PatchParams::default(), &patch).await {
            Ok(_) => {}
            // The pod is gone, or is another one now.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => {
                tracing::warn!(namespace = %pod.namespace, name = %pod.name, %error, "status of the pod was not written");
            }
        }
    }

    fn warn(&self, pod: &PodInfo, message: &str) {
        self.publish(pod, NewEvent::warning("FailedScheduling", shortened(message)).action("Scheduling"));
    }

    fn publish(&self, pod: &PodInfo, event: NewEvent) {
        self.recorder(pod, |recorder| recorder.publish(reference(pod), event));
    }

    fn recorder(&self, pod: &PodInfo, publish: impl FnOnce(&Recorder)) {
        if let Some(recorder) = self.recorders.get(&*pod.scheduler) {
            publish(recorder);
        }
    }
}

/// A condition; its transition time is left as it is unless the status is new.
fn condition(kind: &str, status: &str, reason: &str, message: &str, new: bool) -> Value {
    let mut condition = json!({"type": kind, "status": status, "reason": reason, "message": message});
    if new {
        condition["lastProbeTime"] = Value::Null;
        condition["lastTransitionTime"] = json!(Time(Timestamp::now()));
    }
    condition
}

fn reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.to_string()),
        name: Some(pod.name.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// As upstream shortens notes.
fn shortened(message: &str) -> String {
    if message.len() <= LONGEST_NOTE {
        return message.to_owned();
    }
    let mut end = LONGEST_NOTE - 4;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &message[..end])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::{Response, StatusCode};
    use windlass::cache::{CacheOptions, Caches};
    use windlass::informer::InformerFactory;
    use windlass::metrics::Registry;

    use super::*;
    use crate::reason::Causes;

    /// The requests that follow when the scheduler does not know the claim of a pod, and the API server may.
    async fn requests_about_a_missing_claim(exists: bool) -> Vec<String> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let server = tower::service_fn(move |request: Request<Body>| {
            told.lock().push(format!("{} {}", request.method(), request.uri().path()));
            let claim =
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "late"}});
            let missing =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
            let (status, body) = if exists { (StatusCode::OK, claim) } else { (StatusCode::NOT_FOUND, missing) };
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            async move { answer }
        });
        let client = kube::Client::new(server, "default");
        let claims = InformerFactory::over(Caches::new(client.clone(), CacheOptions::default())).informer().lister();
        let shared = Arc::new(SharedState::new(&BTreeSet::new(), &Registry::default()));
        let writer = Writer::new(client, shared, HashMap::new(), claims);
        let pod = PodInfo { namespace: "ns".into(), name: "user".into(), ..PodInfo::new(&Pod::default()) };
        let failure = Failure {
            message: "0/1 nodes are available".to_owned(),
            causes: Causes::volumes(),
            nomination: Nomination::Keep,
            missing_claim: Some("late".into()),
        };
        writer.fail(&pod, &failure, &Reported::default(), &[]).await;
        std::mem::take(&mut *seen.lock())
    }

    #[tokio::test]
    async fn claims_that_the_watch_has_not_shown_are_not_reported() {
        let claim = "GET /api/v1/namespaces/ns/persistentvolumeclaims/late";
        assert_eq!(requests_about_a_missing_claim(true).await, [claim]);
        let status = "PATCH /api/v1/namespaces/ns/pods/user/status";
        assert_eq!(requests_about_a_missing_claim(false).await, [claim, status]);
    }

    #[test]
    fn long_notes_are_cut_between_letters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"ä".repeat(LONGEST_NOTE));
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with("ä ..."), "{}", cut.len());
    }
}
