//! Events about pods, as a kubelet reports them: 50 per second at most, and 100 at once.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::events::{EventType, NewEvent, Recorder};

use crate::pod::Notice;
use crate::runtime::Role;

/// The kubelet's `eventBurst`.
const BURST: f64 = 100.0;
/// The kubelet's `eventRecordQPS`.
const PER_SECOND: f64 = 50.0;

/// See the [module documentation](self).
pub(crate) struct Reporter {
    recorder: Recorder,
    bucket: Mutex<(f64, Instant)>,
}

impl Reporter {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, bucket: Mutex::new((BURST, Instant::now())) }
    }

    /// Whether one more event may be reported now.
    fn admits(&self) -> bool {
        let now = Instant::now();
        let mut bucket = self.bucket.lock();
        let since: Duration = now.saturating_duration_since(bucket.1);
        let tokens = (bucket.0 + since.as_secs_f64() * PER_SECOND).min(BURST);
        let admitted = tokens >= 1.0;
        *bucket = (if admitted { tokens - 1.0 } else { tokens }, now);
        admitted
    }

    /// Reports something about a pod or one of its containers, from the pod's node.
    pub(crate) fn report(&self, pod: &Pod, notice: Notice) {
        if !self.admits() {
            return;
        }
        let container =
            notice.container.zip(pod.spec.as_ref()).and_then(|(index, spec)| crate::containers::container(spec, index));
        let field_path = container.map(|(role, container)| {
            let list = match role {
                Role::Main => "containers",
                Role::Ephemeral => "ephemeralContainers",
                Role::Init | Role::Sidecar => "initContainers",
            };
            format!("spec.{list}{{{}}}", container.name)
        });
        let meta = &pod.metadata;
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path,
        };
        let event_type = if notice.warning { EventType::Warning } else { EventType::Normal };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        self.recorder.on_host(node).publish(regarding, NewEvent::new(event_type, notice.reason, notice.message));
    }
}
