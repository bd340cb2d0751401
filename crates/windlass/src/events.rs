//! Kubernetes events about objects: what `kubectl describe` shows at the end.
//!
//! A [`Recorder`] never waits and never fails: it hands the event to a bounded buffer, and a task
//! of the manager writes it. Before that a correlator with client-go's numbers keeps a busy
//! reconciler from flooding the server: at most 25 events at once and one per five minutes after
//! that for each object and reporter; from the tenth on, different messages of one reason within ten
//! minutes are combined; the same event again becomes a series on the first one.
//!
//! A server that does not answer is waited for, two minutes for each event. What it does not accept is
//! not reported at all: so reasons and actions that are missing or too long are filled in or cut off,
//! and in `events.k8s.io` a reporter whose name is no qualified name (63 letters, digits, `-`, `_` and
//! `.`, perhaps after a domain and a slash) reports under the one that is most like it. What is refused
//! all the same is counted (`windlass_events_dropped_total`) and, now and then, warned of.

mod attempts;
mod correlator;
mod valid;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::{mpsc, oneshot};

pub use writer::{Broadcaster, EventApi};

use crate::fence::{Fence, Fences};
use crate::key::ObjectKey;
use crate::object::{AsObject, Object, types_of};

/// Whether an event reports normal operation or a problem.
///
/// ```
/// use windlass::events::EventType;
///
/// assert_eq!(EventType::Warning.as_str(), "Warning");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Things are as they should be.
    Normal,
    /// Something may go wrong.
    Warning,
}

impl EventType {
    /// The word the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event to be [published](Recorder::publish): what happened to an object.
///
/// ```
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use kube::Resource as _;
/// use windlass::events::{NewEvent, Recorder};
///
/// fn scheduled(recorder: &Recorder, pod: &Pod, node: &Node) {
///     let note = format!("assigned to {}", node.metadata.name.as_deref().unwrap_or_default());
///     let event = NewEvent::normal("Scheduled", note).action("Binding").related(node.object_ref(&()));
///     recorder.publish(pod.object_ref(&()), event);
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct NewEvent {
    /// Whether it is worth attention.
    pub event_type: EventType,
    /// Why, as one `CamelCase` word; at most 128 bytes are kept.
    pub reason: String,
    /// What was done, as one `CamelCase` word; at most 128 bytes are kept.
    pub action: String,
    /// What to tell people; at most 1,024 bytes are kept.
    pub note: String,
    /// Another object that is involved.
    pub related: Option<ObjectReference>,
}

impl NewEvent {
    /// An event whose action is the same word as its reason.
    pub fn new(event_type: EventType, reason: impl Into<String>, note: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { event_type, action: reason.clone(), reason, note: note.into(), related: None }
    }

    /// Things are as they should be.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Normal, reason, note)
    }

    /// Something may go wrong.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Warning, reason, note)
    }

    /// What was done, as one `CamelCase` word.
    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: action.into(), ..self }
    }

    /// Another object that is involved.
    pub fn related(self, object: ObjectReference) -> Self {
        Self { related: Some(object), ..self }
    }
}

/// An event and the object it is about.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::events::{Record, Recorder};
///
/// let (recorder, mut records) = Recorder::capture("petstore");
/// recorder.warning(&ConfigMap::default(), "Lost", "no such store");
/// let Record { regarding, event, reporter, .. } = records.try_recv().unwrap();
/// assert_eq!(regarding.kind.as_deref(), Some("ConfigMap"));
/// assert_eq!((&*reporter, event.reason.as_str()), ("petstore", "Lost"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// The object.
    pub regarding: ObjectReference,
    /// The event.
    pub event: NewEvent,
    /// Who reports it.
    pub reporter: Arc<str>,
    /// The machine that it is reported from, if the recorder was [given](Recorder::on_host) one.
    pub host: Option<Arc<str>>,
}

/// The machine that an event is reported from. Requests that write events of a recorder with a
/// [host](Recorder::on_host) have it as an extension, for clients that act for several machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportingHost(pub Arc<str>);

/// What waits for the writer.
#[derive(Debug)]
enum Item {
    Event(Box<(Record, Fences)>),
    /// A caller wants to know when everything before is written.
    Flush(oneshot::Sender<()>),
}

/// How long events that wait may take to be written when there is no more time.
const DRAIN: Duration = Duration::from_secs(2);

/// Events that may wait to be written; what comes on top is dropped and counted.
const BUFFER: usize = 1000;

/// Reports events in the name of one component. Clones share the buffer.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::events::Recorder;
///
/// let (recorder, mut events) = Recorder::capture("petstore");
/// let pet = ConfigMap::default();
/// recorder.normal(&pet, "Fed", "ate 2 kg");
/// assert_eq!(events.try_recv().unwrap().event.note, "ate 2 kg");
/// ```
#[derive(Debug, Clone)]
pub struct Recorder {
    reporter: Arc<str>,
    host: Option<Arc<str>>,
    buffer: Buffer,
    /// What its events must pass, when they are reported and when they are written.
    fences: Fences,
    dropped: Arc<AtomicU64>,
}

/// Where a recorder's events go.
#[derive(Debug, Clone)]
enum Buffer {
    Written(mpsc::Sender<Item>),
    Captured(mpsc::Sender<Record>),
}

impl Recorder {
    fn new(reporter: &str, buffer: Buffer, dropped: Arc<AtomicU64>) -> Self {
        Self { reporter: reporter.into(), host: None, buffer, fences: Fences::default(), dropped }
    }

    /// The same for events of another machine: an agent for several nodes reports each event from its node. Unless set,
    /// the machine is the one that the process runs on.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Pod;
    /// use windlass::events::Recorder;
    ///
    /// let (recorder, mut events) = Recorder::capture("kubelet");
    /// recorder.on_host("node-0").normal(&Pod::default(), "Started", "Container started");
    /// assert_eq!(events.try_recv().unwrap().host.as_deref(), Some("node-0"));
    /// ```
    #[must_use]
    pub fn on_host(&self, host: impl Into<Arc<str>>) -> Self {
        Self { host: Some(host.into()), ..self.clone() }
    }

    /// A recorder whose events go to a channel, for tests.
    pub fn capture(reporter: &str) -> (Self, mpsc::Receiver<Record>) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        (Self::new(reporter, Buffer::Captured(sender), Arc::default()), receiver)
    }

    /// The same, with all events behind a fence.
    pub(crate) fn fenced(&self, fence: &Fence) -> Self {
        Self { fences: self.fences.and(fence), ..self.clone() }
    }

    /// Waits until what was reported is written, or until that has taken too long.
    pub(crate) async fn flush(&self) {
        if let Buffer::Written(buffer) = &self.buffer {
            flush(buffer).await;
        }
    }

    /// A recorder whose events go nowhere.
    pub fn discard() -> Self {
        Self::capture("").0
    }

    /// Reports something ordinary. The action is the reason. The object may be of a kind known only at run time: then
    /// it says itself what it is, as what was read does. An event about an object that does not is dropped, counted
    /// and logged.
    pub fn normal<Form>(&self, object: &impl AsObject<Form, Object: Object>, reason: &str, note: impl Into<String>) {
        self.event(object.as_object(), EventType::Normal, reason, note.into());
    }

    /// Reports something that may need attention. The action is the reason. See [`normal`](Self::normal).
    pub fn warning<Form>(&self, object: &impl AsObject<Form, Object: Object>, reason: &str, note: impl Into<String>) {
        self.event(object.as_object(), EventType::Warning, reason, note.into());
    }

    /// Reports an event in full.
    pub fn publish(&self, regarding: ObjectReference, event: NewEvent) {
        let record = Record { regarding, event, reporter: Arc::clone(&self.reporter), host: self.host.clone() };
        let sent = self.fences.pass().is_ok()
            && match &self.buffer {
                Buffer::Written(buffer) => {
                    buffer.try_send(Item::Event(Box::new((record, self.fences.clone())))).is_ok()
                }
                Buffer::Captured(buffer) => buffer.try_send(record).is_ok(),
            };
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn event<K: Object>(&self, object: &K, event_type: EventType, reason: &str, note: String) {
        let Some(types) = types_of(object) else {
            tracing::warn!(object = %ObjectKey::of(object), reason, "an event about an object of no known kind is dropped");
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let meta = object.meta();
        let regarding = ObjectReference {
            api_version: Some(types.api_version),
            kind: Some(types.kind),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        };
        self.publish(regarding, NewEvent::new(event_type, reason, note));
    }
}

/// Waits until everything that is in a buffer is written, for as long as [`DRAIN`].
async fn flush(buffer: &mpsc::Sender<Item>) {
    let (done, written) = oneshot::channel();
    let flushing = async {
        // Without a writer there is nothing to wait for.
        if buffer.send(Item::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    };
    if tokio::time::timeout(DRAIN, flushing).await.is_err() {
        tracing::warn!("events not written in time");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{ApiResource, DynamicObject};

    use super::*;
    use crate::draft::Draft;

    #[test]
    fn events_are_about_objects_in_every_form() {
        let (recorder, mut records) = Recorder::capture("test");
        let mut map = ConfigMap::default();
        map.metadata.name = Some("x".into());
        let shared = Arc::new(map.clone());
        recorder.normal(&map, "Seen", "");
        recorder.normal(&shared, "Seen", "");
        recorder.warning(&Draft::new(shared), "Lost", "");
        let mut dynamic = DynamicObject::new("x", &ApiResource::erase::<ConfigMap>(&()));
        recorder.normal(&dynamic, "Seen", "");
        for _ in 0..4 {
            let regarding = records.try_recv().expect("an event").regarding;
            let told = (regarding.api_version.as_deref(), regarding.kind.as_deref(), regarding.name.as_deref());
            assert_eq!(told, (Some("v1"), Some("ConfigMap"), Some("x")));
        }
        dynamic.types = None;
        recorder.normal(&dynamic, "Seen", "");
        assert!(records.try_recv().is_err(), "of no known kind");
        assert_eq!(recorder.dropped.load(Ordering::Relaxed), 1);
    }
}
