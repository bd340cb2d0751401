//! The task that writes events, in one of the two APIs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::api::events::v1::{Event as EventV1, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempts::persist;
use super::correlator::{Correlator, Decision};
use super::{BUFFER, Buffer, DRAIN, Item, Record, Recorder, ReportingHost, valid};
use crate::fence::{FenceClosed, Fences};

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
#[non_exhaustive]
pub enum EventApi {
    /// `events.k8s.io/v1`.
    #[default]
    EventsV1,
    /// The core group's older `v1` events.
    CoreV1,
}

/// What 253 letters leave for a subject besides the time.
const LONGEST_SUBJECT: usize = 253 - 17;
/// How long to say nothing more about a kind of failure.
const QUIET: Duration = Duration::from_secs(60);
/// For how long no events are sent to a namespace that refused one because it is being deleted: thousands of objects may be
/// deleted with it.
const TERMINATING: Duration = Duration::from_secs(1);

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
            instance: crate::host::name(),
            correlator,
            complaints: Complaints::default(),
            terminating: Terminating::default(),
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

struct Writer {
    unfenced: kube::Client,
    /// For the record at hand.
    client: kube::Client,
    /// One for every fence that was met, and is open: there are as many as leases.
    clients: Vec<(Fences, kube::Client)>,
    api: EventApi,
    instance: String,
    correlator: Correlator,
    complaints: Complaints,
    terminating: Terminating,
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
        // Terms come and go.
        self.clients.retain(|(fences, _)| fences.pass().is_ok());
        self.clients.push((fences.clone(), self.client.clone()));
    }

    async fn write(&mut self, mut record: Record) {
        if self.terminating.has(namespace(&record.regarding), Instant::now()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        valid::complete(&mut record.event);
        let (now, wall) = (self.now(), Timestamp::now());
        let wall_first = |first| wall.checked_sub(now.duration_since(first)).unwrap_or(wall);
        let result = match self.correlator.decide(&record, now) {
            Decision::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Decision::Create { series, note, count, first } => {
                let times = Times { count, first: wall_first(first), last: wall };
                let created = self.create(&record, note, times).await;
                created.map(|name| self.correlator.created(&series, name))
            }
            Decision::Extend { series, name, note, count, first } => {
                let times = Times { count, first: wall_first(first), last: wall };
                match self.extend(&record, &name, &note, times).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        // Events expire on the server.
                        let created = self.create(&record, note, times).await;
                        created.map(|name| self.correlator.created(&series, name))
                    }
                    other => other,
                }
            }
        };
        if let Err(error) = result {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if matches!(&error, kube::Error::Api(status) if is_about_a_terminating_namespace(status)) {
                self.terminating.note(namespace(&record.regarding), Instant::now());
            }
            self.complain(&record, &error);
        }
    }

    /// Says that an event was not written: aloud, but not about each.
    fn complain(&mut self, record: &Record, error: &kube::Error) {
        let (reporter, reason) = (&*record.reporter, record.event.reason.as_str());
        let kind = match error {
            // What a replica that has lost its lease does.
            kube::Error::Service(error) if error.is::<FenceClosed>() => None,
            // What is deleted with its namespace is no longer of interest there.
            kube::Error::Api(status) if is_about_a_terminating_namespace(status) => None,
            kube::Error::Api(status) => Some(status.reason.as_str()),
            _ => Some(""),
        };
        if let Some(more) = kind.and_then(|kind| self.complaints.tell(kind, Instant::now())) {
            tracing::warn!(%error, reporter, reason, more, "event not written");
        } else {
            tracing::debug!(%error, reporter, reason, "event not written");
        }
    }

    async fn create(&self, record: &Record, mut note: String, times: Times) -> Result<String, kube::Error> {
        let Times { count, first, last: now } = times;
        valid::note(&mut note);
        let regarding = &record.regarding;
        let name = event_name(regarding, now);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace(regarding).to_owned()),
            ..ObjectMeta::default()
        };
        match self.api {
            EventApi::EventsV1 => {
                let reporter = valid::reporter(&record.reporter);
                let event = EventV1 {
                    metadata,
                    action: Some(record.event.action.clone()),
                    event_time: Some(MicroTime(first)),
                    note: Some(note),
                    reason: Some(record.event.reason.clone()),
                    regarding: Some(regarding.clone()),
                    related: record.event.related.clone(),
                    reporting_instance: Some(valid::instance(
                        &reporter,
                        record.host.as_deref().unwrap_or(&self.instance),
                    )),
                    reporting_controller: Some(reporter.into_owned()),
                    series: (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(now) }),
                    type_: Some(record.event.event_type.as_str().to_owned()),
                    ..EventV1::default()
                };
                self.send(record, |to| to.create(&POST, encoded(&event)?).map_err(kube::Error::BuildRequest)).await?;
            }
            EventApi::CoreV1 => {
                let event = CoreEvent {
                    metadata,
                    action: Some(record.event.action.clone()),
                    count: Some(count),
                    first_timestamp: Some(Time(first)),
                    last_timestamp: Some(Time(now)),
                    involved_object: regarding.clone(),
                    message: Some(note),
                    reason: Some(record.event.reason.clone()),
                    related: record.event.related.clone(),
                    reporting_component: Some(record.reporter.to_string()),
                    reporting_instance: Some(valid::instance(
                        &record.reporter,
                        record.host.as_deref().unwrap_or(&self.instance),
                    )),
                    source: Some(EventSource {
                        component: Some(record.reporter.to_string()),
                        host: record.host.as_deref().map(str::to_owned),
                    }),
                    type_: Some(record.event.event_type.as_str().to_owned()),
                    ..CoreEvent::default()
                };
                self.send(record, |to| to.create(&POST, encoded(&event)?).map_err(kube::Error::BuildRequest)).await?;
            }
        }
        Ok(name)
    }

    async fn extend(&self, record: &Record, name: &str, note: &str, times: Times) -> Result<(), kube::Error> {
        let Times { count, last: now, .. } = times;
        let patch: Patch<Value> = Patch::Merge(match self.api {
            EventApi::EventsV1 => json!({"series": EventSeries { count, last_observed_time: MicroTime(now) }}),
            EventApi::CoreV1 => json!({"count": count, "lastTimestamp": Time(now), "message": note}),
        });
        let params = PatchParams::default();
        self.send(record, |to| to.patch(name, &params, &patch).map_err(kube::Error::BuildRequest)).await
    }

    /// Sends a request about an event of a record until it is answered.
    async fn send(
        &self,
        record: &Record,
        make: impl Fn(&Request) -> Result<http::Request<Vec<u8>>, kube::Error>,
    ) -> Result<(), kube::Error> {
        let namespace = Some(namespace(&record.regarding));
        let to = Request::new(match self.api {
            EventApi::EventsV1 => EventV1::url_path(&(), namespace),
            EventApi::CoreV1 => CoreEvent::url_path(&(), namespace),
        });
        let attempt = || {
            let request = make(&to).map(|mut request| {
                if let Some(host) = &record.host {
                    request.extensions_mut().insert(ReportingHost(Arc::clone(host)));
                }
                request
            });
            async move { self.client.request_text(request?).await }
        };
        persist(attempt).await
    }
}

fn encoded(event: &impl Serialize) -> Result<Vec<u8>, kube::Error> {
    serde_json::to_vec(event).map_err(kube::Error::SerdeError)
}

/// How often something happened, and when.
#[derive(Debug, Clone, Copy)]
struct Times {
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// The kinds of failures that were told of lately.
#[derive(Debug, Default)]
struct Complaints(HashMap<String, (Instant, u64)>);

impl Complaints {
    /// Whether to tell of one more of a kind; and if so, how many there were since the last.
    fn tell(&mut self, kind: &str, now: Instant) -> Option<u64> {
        if let Some((at, more)) = self.0.get_mut(kind)
            && now.duration_since(*at) < QUIET
        {
            *more += 1;
            return None;
        }
        let told = self.0.insert(kind.to_owned(), (now, 0));
        // There are few kinds, unless a server makes them up.
        self.0.retain(|_, (at, _)| now.duration_since(*at) < 10 * QUIET);
        Some(told.map_or(0, |(_, more)| more))
    }
}

/// The namespaces that refused events lately because they are being deleted.
#[derive(Debug, Default)]
struct Terminating(HashMap<String, Instant>);

impl Terminating {
    fn note(&mut self, namespace: &str, now: Instant) {
        self.0.retain(|_, at| now.duration_since(*at) < TERMINATING);
        self.0.insert(namespace.to_owned(), now);
    }

    fn has(&self, namespace: &str, now: Instant) -> bool {
        self.0.get(namespace).is_some_and(|at| now.duration_since(*at) < TERMINATING)
    }
}

const POST: PostParams = PostParams { dry_run: false, field_manager: None };

/// The subject's name and the time; of a subject whose name is too long for that, or no name that
/// events can have (as `system:node`), the uid.
fn event_name(regarding: &ObjectReference, now: Timestamp) -> String {
    let fits = |name: &&str| name.len() <= LONGEST_SUBJECT && valid::is_subdomain(name);
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

/// Whether a write was refused because the namespace is being deleted, or is gone.
fn is_about_a_terminating_namespace(status: &kube::core::Status) -> bool {
    let mut details = status.details.iter();
    details.any(|details| {
        let is_gone = status.is_not_found() && details.kind == "namespaces";
        is_gone || details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;
    use crate::fence::Fence;

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
                let event: EventV1 = serde_json::from_slice(&body).unwrap();
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

    /// Runs until what was reported is written.
    async fn write(broadcaster: &Broadcaster, client: kube::Client) {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        broadcaster.run(client, shutdown).await;
    }

    #[tokio::test]
    async fn whatever_controllers_are_called_their_events_are_accepted() {
        let server = windlass_server::Server::builder().start().await.unwrap();
        // However long the server takes, events are written before the end.
        let answers = Arc::new(tokio::sync::Semaphore::new(0));
        let (service, answered) = (server.service(), Arc::clone(&answers));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (mut service, answered) = (service.clone(), Arc::clone(&answered));
            async move {
                let answer = tower::Service::call(&mut service, request).await;
                answered.add_permits(1);
                answer
            }
        });
        let client = kube::Client::new(service, "default");
        let reporters = ["petstore", "pet store", "", "é", "example.com/pets", "a/b/c", &"n".repeat(300)];
        for api in [EventApi::EventsV1, EventApi::CoreV1] {
            let broadcaster = Broadcaster::new(api);
            for (n, reporter) in reporters.iter().enumerate() {
                let regarding = ObjectReference { name: Some(format!("o{n}")), ..ObjectReference::default() };
                for (reason, action) in [("Fed", ""), ("", "Feeding"), ("", ""), (&*"r".repeat(200), "")] {
                    let (event_type, note) = (super::super::EventType::Normal, String::new());
                    let (reason, action) = (reason.to_owned(), action.to_owned());
                    let event = super::super::NewEvent { event_type, reason, action, note, related: None };
                    broadcaster.recorder(reporter).publish(regarding.clone(), event);
                }
            }
            let shutdown = CancellationToken::new();
            let written = async {
                answers.acquire_many(4 * 7).await.unwrap().forget();
                shutdown.cancel();
            };
            tokio::join!(broadcaster.run(client.clone(), shutdown.clone()), written);
            assert_eq!(broadcaster.dropped(), 0, "{api:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_dropped_at_first_keep_their_first_timestamp() {
        let written: Arc<Mutex<Vec<CoreEvent>>> = Arc::default();
        let log = Arc::clone(&written);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                log.lock().push(serde_json::from_slice(&body).unwrap());
                Ok::<_, Infallible>(http::Response::new(Body::from(body)))
            }
        });
        let broadcaster = Arc::new(Broadcaster::new(EventApi::CoreV1));
        let (recorder, shutdown) = (broadcaster.recorder("test"), CancellationToken::new());
        let (running, stop) = (Arc::clone(&broadcaster), shutdown.clone());
        let client = kube::Client::new(service, "default");
        let running = tokio::spawn(async move { running.run(client, stop).await });
        let object = ConfigMap::default();
        (0..25).for_each(|n| recorder.normal(&object, &format!("Reason{n}"), ""));
        recorder.normal(&object, "Late", "");
        tokio::time::sleep(Duration::from_secs(301)).await;
        recorder.normal(&object, "Late", "");
        shutdown.cancel();
        running.await.unwrap();
        let written = written.lock();
        let late = written.last().unwrap();
        assert_eq!((late.reason.as_deref(), late.count), (Some("Late"), Some(2)));
        let (first, last) = (late.first_timestamp.as_ref().unwrap().0, late.last_timestamp.as_ref().unwrap().0);
        assert_eq!(last.duration_since(first).as_secs(), 301);
    }

    #[tokio::test(start_paused = true)]
    async fn one_post_that_is_never_answered_stops_no_other_events() {
        let (client, written) = server();
        let first = std::sync::atomic::AtomicBool::new(true);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (client, silent) = (client.clone(), first.swap(false, Ordering::Relaxed));
            async move { if silent { std::future::pending().await } else { client.send(request).await } }
        });
        let broadcaster = Arc::new(Broadcaster::new(EventApi::EventsV1));
        let (recorder, shutdown) = (broadcaster.recorder("test"), CancellationToken::new());
        let (running, stop) = (Arc::clone(&broadcaster), shutdown.clone());
        let running = tokio::spawn(async move { running.run(kube::Client::new(service, "default"), stop).await });
        (0..3).for_each(|n| recorder.normal(&ConfigMap::default(), &format!("Reason{n}"), ""));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*written.lock(), ["Reason0", "Reason1", "Reason2"]);
        shutdown.cancel();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_does_not_wait_for_an_absent_server() {
        let away = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        });
        let broadcaster = Broadcaster::new(EventApi::EventsV1);
        broadcaster.recorder("test").normal(&ConfigMap::default(), "Fed", "");
        let begin = Instant::now();
        write(&broadcaster, kube::Client::new(away, "default")).await;
        assert_eq!((broadcaster.dropped(), begin.elapsed().as_secs()), (1, DRAIN.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminating_namespace_is_tried_once_a_second() {
        let asked: Arc<AtomicU64> = Arc::default();
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "", "details": {"causes": [{"reason": "NamespaceTerminating"}]},
            });
            let answer = http::Response::builder().status(403).body(Body::from(status.to_string().into_bytes()));
            async { answer }
        });
        let broadcaster = Arc::new(Broadcaster::new(EventApi::EventsV1));
        let (recorder, shutdown) = (broadcaster.recorder("test"), CancellationToken::new());
        let (running, stop) = (Arc::clone(&broadcaster), shutdown.clone());
        let running = tokio::spawn(async move { running.run(kube::Client::new(service, "default"), stop).await });
        for second in 1..=3 {
            (0..5).for_each(|n| recorder.normal(&ConfigMap::default(), &format!("Reason{n}"), ""));
            tokio::time::sleep(Duration::from_millis(1001)).await;
            assert_eq!((asked.load(Ordering::Relaxed), broadcaster.dropped()), (second, 5 * second));
        }
        shutdown.cancel();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_told_of_once_in_a_while() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        let mut tell = |kind, seconds| complaints.tell(kind, start + Duration::from_secs(seconds));
        assert_eq!(tell("Forbidden", 0), Some(0));
        assert_eq!((tell("Forbidden", 1), tell("Forbidden", 59)), (None, None));
        assert_eq!(tell("Invalid", 2), Some(0), "another one");
        assert_eq!(tell("Forbidden", 61), Some(2));
        assert_eq!(tell("Forbidden", 62), None);
    }
}
