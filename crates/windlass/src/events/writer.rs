//! The task that writes events, in one of the two APIs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::api::events::v1::{Event as NewEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::correlator::{Correlator, Decision};
use super::{BUFFER, Buffer, DRAIN, Item, Record, Recorder};
use crate::lease::{FenceClosed, Fences};

/// Which API events are written to.
///
/// ```
/// # fn example(client: kube::Client) -> Result<(), windlass::manager::ManagerError> {
/// use windlass::{Manager, events::EventApi};
///
/// let manager = Manager::builder(client).events(EventApi::CoreV1).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventApi {
    /// `events.k8s.io/v1`.
    #[default]
    EventsV1,
    /// The core group's older `v1` events.
    CoreV1,
}

/// How often a write is tried.
const ATTEMPTS: u32 = 4;
/// What 253 letters leave for a subject besides the time.
const LONGEST_SUBJECT: usize = 253 - 17;
/// Bytes of a note that the API accepts.
const NOTE_BYTES: usize = 1024;

/// Writes the events of all its recorders to one cluster. A manager has one for each of its clusters.
///
/// ```no_run
/// # use windlass::events::{Broadcaster, EventApi};
/// # async fn example(client: kube::Client, shutdown: tokio_util::sync::CancellationToken) {
/// let broadcaster = Broadcaster::new(EventApi::EventsV1);
/// let recorder = broadcaster.recorder("petstore-operator");
/// broadcaster.run(client, shutdown).await;
/// # }
/// ```
#[derive(Debug)]
pub struct Broadcaster {
    api: EventApi,
    sender: mpsc::Sender<Item>,
    receiver: Mutex<Option<mpsc::Receiver<Item>>>,
    dropped: Arc<AtomicU64>,
}

impl Broadcaster {
    /// A broadcaster that writes nothing before it runs.
    pub fn new(api: EventApi) -> Self {
        let (sender, receiver) = mpsc::channel(BUFFER);
        Self { api, sender, receiver: Mutex::new(Some(receiver)), dropped: Arc::default() }
    }

    /// One for another cluster. What is dropped is counted together.
    pub(crate) fn beside(&self) -> Self {
        Self { dropped: Arc::clone(&self.dropped), ..Self::new(self.api) }
    }

    /// A recorder that reports in a component's name.
    pub fn recorder(&self, reporter: &str) -> Recorder {
        Recorder::new(reporter, Buffer::Written(self.sender.clone()), Arc::clone(&self.dropped))
    }

    /// Events that were not written: there were too many of them, or of one object, the lease was lost,
    /// the server refused, or the end came.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything reported so far is written, or until that has taken too long.
    pub(crate) async fn flush(&self) {
        if self.receiver.lock().is_none() {
            super::flush(&self.sender).await;
        }
    }

    /// Writes events until the token is cancelled and what was waiting then is written. Works
    /// once; a second call returns at once.
    pub async fn run(&self, client: kube::Client, shutdown: CancellationToken) {
        let Some(mut receiver) = self.receiver.lock().take() else {
            return;
        };
        let clients = vec![(Fences::default(), client.clone())];
        let correlator = Correlator::default();
        let mut writer = Writer {
            unfenced: client.clone(),
            client,
            clients,
            api: self.api,
            instance: instance(),
            correlator,
            started: (Timestamp::now(), Instant::now()),
            dropped: Arc::clone(&self.dropped),
        };
        let drain = async {
            shutdown.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::pin!(drain);
        loop {
            // Cancel-safe: `recv` takes a record only when it returns one.
            let record = tokio::select! {
                biased;
                record = receiver.recv() => record,
                () = shutdown.cancelled() => None,
            };
            let (record, fences) = match record {
                Some(Item::Event(event)) => *event,
                Some(Item::Flush(written)) => {
                    let _ = written.send(());
                    continue;
                }
                None => break,
            };
            writer.pass_through(&fences);
            // A server that does not answer must not keep the process from stopping.
            tokio::select! {
                () = writer.write(record) => {}
                () = &mut drain => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        receiver.close();
        while let Ok(item) = receiver.try_recv() {
            if let Item::Event(_) = item {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Where this process runs, as the reporting instance.
fn instance() -> String {
    let host =
        std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/etc/hostname").ok()).unwrap_or_default();
    host.trim().to_owned()
}

struct Writer {
    unfenced: kube::Client,
    /// For the record at hand.
    client: kube::Client,
    /// One for every fence that was met: there are as many as leases.
    clients: Vec<(Fences, kube::Client)>,
    api: EventApi,
    instance: String,
    correlator: Correlator,
    /// When it began, by both clocks.
    started: (Timestamp, Instant),
    dropped: Arc<AtomicU64>,
}

impl Writer {
    /// The time that limits and series go by: the runtime's, as all waiting does, so that a test
    /// that moves its clock moves them too. Events themselves are stamped with the wall clock's.
    fn now(&self) -> Timestamp {
        let (wall, since) = self.started;
        wall.checked_add(since.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// Writes what follows through these fences.
    fn pass_through(&mut self, fences: &Fences) {
        if let Some((_, client)) = self.clients.iter().find(|(known, _)| known == fences) {
            self.client = client.clone();
            return;
        }
        self.client = fences.guard(self.unfenced.clone());
        self.clients.push((fences.clone(), self.client.clone()));
    }

    async fn write(&mut self, mut record: Record) {
        truncate(&mut record.event.note, NOTE_BYTES);
        let (now, wall) = (self.now(), Timestamp::now());
        let result = match self.correlator.decide(&record, now) {
            Decision::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Decision::Create { series, note, count } => {
                let created = self.create(&record, note, count, wall).await;
                created.map(|name| self.correlator.created(&series, name))
            }
            Decision::Extend { series, name, note, count, first } => {
                match self.extend(&record, &name, &note, count, wall).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        // Events expire on the server.
                        tracing::trace!(%first, "event series expired");
                        let created = self.create(&record, note, count, wall).await;
                        created.map(|name| self.correlator.created(&series, name))
                    }
                    other => other,
                }
            }
        };
        if let Err(error) = result {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, reason = %record.event.reason, "event not written");
        }
    }

    async fn create(
        &self,
        record: &Record,
        mut note: String,
        count: i32,
        now: Timestamp,
    ) -> Result<String, kube::Error> {
        truncate(&mut note, NOTE_BYTES);
        let regarding = &record.regarding;
        let name = event_name(regarding, now);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace(regarding).to_owned()),
            ..ObjectMeta::default()
        };
        match self.api {
            EventApi::EventsV1 => {
                let event = NewEvent {
                    metadata,
                    action: Some(record.event.action.clone()),
                    event_time: Some(MicroTime(now)),
                    note: Some(note),
                    reason: Some(record.event.reason.clone()),
                    regarding: Some(regarding.clone()),
                    related: record.event.related.clone(),
                    reporting_controller: Some(record.reporter.to_string()),
                    reporting_instance: Some(self.reporting_instance(record)),
                    series: (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(now) }),
                    type_: Some(record.event.event_type.as_str().to_owned()),
                    ..NewEvent::default()
                };
                let api: Api<NewEvent> = Api::namespaced(self.client.clone(), namespace(regarding));
                retry(|| api.create(&POST, &event)).await?;
            }
            EventApi::CoreV1 => {
                let event = CoreEvent {
                    metadata,
                    action: Some(record.event.action.clone()),
                    count: Some(count),
                    first_timestamp: Some(Time(now)),
                    last_timestamp: Some(Time(now)),
                    involved_object: regarding.clone(),
                    message: Some(note),
                    reason: Some(record.event.reason.clone()),
                    related: record.event.related.clone(),
                    reporting_component: Some(record.reporter.to_string()),
                    reporting_instance: Some(self.reporting_instance(record)),
                    source: Some(EventSource { component: Some(record.reporter.to_string()), host: None }),
                    type_: Some(record.event.event_type.as_str().to_owned()),
                    ..CoreEvent::default()
                };
                let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace(regarding));
                retry(|| api.create(&POST, &event)).await?;
            }
        }
        Ok(name)
    }

    async fn extend(
        &self,
        record: &Record,
        name: &str,
        note: &str,
        count: i32,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        let namespace = namespace(&record.regarding);
        let params = PatchParams::default();
        match self.api {
            EventApi::EventsV1 => {
                let series = EventSeries { count, last_observed_time: MicroTime(now) };
                let patch: Patch<Value> = Patch::Merge(json!({"series": series}));
                let api: Api<NewEvent> = Api::namespaced(self.client.clone(), namespace);
                retry(|| api.patch(name, &params, &patch)).await?;
            }
            EventApi::CoreV1 => {
                let patch: Patch<Value> = Patch::Merge(json!({
                    "count": count, "lastTimestamp": Time(now), "message": note,
                }));
                let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
                retry(|| api.patch(name, &params, &patch)).await?;
            }
        }
        Ok(())
    }

    fn reporting_instance(&self, record: &Record) -> String {
        let mut text = if self.instance.is_empty() {
            record.reporter.to_string()
        } else {
            format!("{}-{}", record.reporter, self.instance)
        };
        truncate(&mut text, 128);
        text
    }
}

const POST: PostParams = PostParams { dry_run: false, field_manager: None };

/// The subject's name and the time; of a subject whose name is too long for that, or no name that
/// events can have (as `system:node`), the uid.
fn event_name(regarding: &ObjectReference, now: Timestamp) -> String {
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let fits = |name: &&str| {
        name.len() <= LONGEST_SUBJECT
            && name.split('.').all(|part| {
                let edges = [part.as_bytes().first(), part.as_bytes().last()];
                edges.into_iter().all(|edge| edge.copied().is_some_and(plain))
                    && part.bytes().all(|letter| plain(letter) || letter == b'-')
            })
    };
    let names = [regarding.name.as_deref(), regarding.uid.as_deref()];
    let subject = names.into_iter().flatten().find(fits).unwrap_or("unnamed");
    format!("{subject}.{:x}", now.as_nanosecond())
}

/// Events about cluster-scoped objects live in `default`.
fn namespace(regarding: &ObjectReference) -> &str {
    match regarding.namespace.as_deref() {
        None | Some("") => "default",
        Some(namespace) => namespace,
    }
}

/// Tries again what may work later; an answer of the server is final.
async fn retry<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    for tried in 1..ATTEMPTS {
        match attempt().await {
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(kube::Error::Api(status));
            }
            Err(kube::Error::Service(error)) if error.is::<FenceClosed>() => return Err(kube::Error::Service(error)),
            Err(_) => tokio::time::sleep(Duration::from_millis(250 << tried)).await,
            done => return done,
        }
    }
    attempt().await
}

fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let mut end = bytes;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;
    use crate::lease::Fence;

    #[test]
    fn names_that_events_cannot_have_give_way_to_the_uid() {
        let name = |name: &str| {
            let regarding = ObjectReference { name: Some(name.into()), uid: Some("1-2".into()), ..Default::default() };
            event_name(&regarding, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(name("web-0.example"), "web-0.example.0");
        for odd in ["system:node", "", "Web", "a..b", "-a", &"n".repeat(237)] {
            assert_eq!(name(odd), "1-2.0", "{odd}");
        }
        assert_eq!(name(&"n".repeat(236)).len(), 238);
        assert_eq!(event_name(&ObjectReference::default(), Timestamp::UNIX_EPOCH), "unnamed.0");
    }

    /// A server that stores every event; and their reasons.
    fn server() -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let written: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&written);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let event: NewEvent = serde_json::from_slice(&body).unwrap();
                log.lock().push(event.reason.unwrap());
                Ok::<_, Infallible>(http::Response::new(Body::from(body)))
            }
        });
        (kube::Client::new(service, "default"), written)
    }

    #[tokio::test(start_paused = true)]
    async fn limits_go_by_the_clock_that_tests_move() {
        let (client, written) = server();
        let broadcaster = Arc::new(Broadcaster::new(EventApi::EventsV1));
        let recorder = broadcaster.recorder("test");
        let shutdown = CancellationToken::new();
        let running = Arc::clone(&broadcaster);
        let stop = shutdown.clone();
        let running = tokio::spawn(async move { running.run(client, stop).await });
        let object = ConfigMap::default();
        let publish = |count: usize| (0..count).for_each(|n| recorder.normal(&object, &format!("Reason{n}"), ""));
        publish(30);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((written.lock().len(), broadcaster.dropped()), (25, 5));
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
        publish(30);
        shutdown.cancel();
        running.await.unwrap();
        assert_eq!(written.lock().len(), 25 + 24, "one for each five minutes");
        assert_eq!(broadcaster.dropped(), 5 + 6);
    }

    #[tokio::test(start_paused = true)]
    async fn events_behind_a_closed_fence_are_not_written() {
        let (client, written) = server();
        let broadcaster = Broadcaster::new(EventApi::EventsV1);
        let (lost, held) = (Fence::closed(), Fence::closed());
        let recorder = broadcaster.recorder("test");
        let (losing, holding) = (recorder.fenced(&lost), recorder.fenced(&held));
        for fence in [&lost, &held] {
            fence.open_until(Instant::now() + Duration::from_secs(60));
        }
        let object = ConfigMap::default();
        losing.normal(&object, "ReportedBefore", "");
        holding.normal(&object, "Held", "");
        recorder.normal(&object, "Unfenced", "");
        lost.close();
        losing.normal(&object, "ReportedAfter", "");
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        broadcaster.run(client, shutdown).await;
        assert_eq!(*written.lock(), ["Held", "Unfenced"]);
        assert_eq!(broadcaster.dropped(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn events_for_which_there_is_no_time_are_counted() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let broadcaster = Broadcaster::new(EventApi::EventsV1);
        for n in 0..3 {
            broadcaster.recorder("test").normal(&ConfigMap::default(), &format!("Reason{n}"), "");
        }
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        broadcaster.run(kube::Client::new(silent, "default"), shutdown).await;
        assert_eq!(broadcaster.dropped(), 3);
    }
}
