//! Reflectors against a scripted server, on a paused clock.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::Status;

use super::decode::{Broken, Decoded, Event, Fresh, Page};
use super::source::{EventStream, Part};
use super::*;

/// What the server answers to the next request, in order; it fails a test that asks otherwise.
enum Answer {
    List(Result<Page, u16>),
    /// The events of a watch; `open` leaves it open after them.
    Watch {
        from: Option<&'static str>,
        events: Result<Vec<Event>, u16>,
        open: bool,
    },
}

#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    /// Told when the script is used up.
    done: tokio::sync::Notify,
    /// Whether the kind is gone, if the server can tell.
    gone: Option<bool>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Self::of(answers, None)
    }

    fn of(answers: impl IntoIterator<Item = Answer>, gone: Option<bool>) -> Arc<Self> {
        let answers = Mutex::new(answers.into_iter().collect());
        Arc::new(Self { answers, done: tokio::sync::Notify::new(), gone })
    }

    fn next(&self) -> Option<Answer> {
        let mut answers = self.answers.lock();
        let answer = answers.pop_front();
        if answers.is_empty() {
            self.done.notify_one();
        }
        answer
    }
}

fn status(code: u16) -> kube::Error {
    let reason = match code {
        410 => "Expired",
        403 => "Forbidden",
        404 => "NotFound",
        _ => "Invalid",
    };
    kube::Error::Api(Status::failure("scripted", reason).with_code(code).boxed())
}

impl ListWatch for Script {
    fn list<'a>(&'a self, _: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>> {
        async move {
            match self.next() {
                Some(Answer::List(page)) => page.map_err(status),
                Some(Answer::Watch { from, .. }) => panic!("list instead of watch from {from:?}"),
                None => futures::future::pending().await,
            }
        }
        .boxed()
    }

    fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>> {
        async { Ok("1000".to_owned()) }.boxed()
    }

    fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>> {
        async { self.gone.ok_or_else(|| status(503)) }.boxed()
    }

    fn watch<'a>(&'a self, from: Option<&'a str>, _: u32) -> BoxFuture<'a, Result<EventStream, kube::Error>> {
        async move {
            match self.next() {
                Some(Answer::Watch { from: expected, events, open }) => {
                    assert_eq!(from, expected);
                    let events = stream::iter(events.map_err(status)?.into_iter().map(Ok));
                    Ok(if open { events.chain(stream::pending()).boxed() } else { events.boxed() })
                }
                Some(Answer::List(_)) => panic!("watch from {from:?} instead of list"),
                None => futures::future::pending().await,
            }
        }
        .boxed()
    }
}

fn maps() -> Kind {
    Kind::of::<ConfigMap>(&())
}

/// A kind that may be gone.
fn custom() -> Kind {
    let resource = ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("example.com", "v1", "Pet"));
    Kind { resource, ..maps() }
}

fn object(name: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("d".into()),
            name: Some(name.into()),
            uid: Some(name.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn applied(name: &str, version: u64) -> Event {
    Event::Applied(Decoded::Object(object(name, version).into()))
}

fn deleted(name: &str, version: u64) -> Event {
    Event::Deleted(Decoded::Object(object(name, version).into()))
}

fn broken(name: &str, version: u64) -> Broken {
    Broken {
        key: ObjectKey::new("d", name),
        uid: name.into(),
        resource_version: version.to_string(),
        error: "scripted".into(),
    }
}

fn end(version: u64) -> Event {
    Event::Bookmark { resource_version: version.to_string(), initial_end: true }
}

fn bookmark(version: u64) -> Event {
    Event::Bookmark { resource_version: version.to_string(), initial_end: false }
}

fn gone() -> Event {
    Event::Error(Status::failure("too old", "Expired").with_code(410).boxed())
}

fn watch(from: Option<&'static str>, events: Vec<Event>, open: bool) -> Answer {
    Answer::Watch { from, events: Ok(events), open }
}

fn page(items: &[(&str, u64)], version: &str, continue_token: Option<&str>) -> Answer {
    Answer::List(Ok(Page {
        items: items.iter().map(|(name, version)| Decoded::Object(object(name, *version).into())).collect(),
        resource_version: version.into(),
        continue_token: continue_token.map(str::to_owned),
    }))
}

struct Bench {
    reflector: Arc<Reflector>,
    log: Arc<Mutex<Vec<String>>>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    script: Arc<Script>,
}

impl Bench {
    fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with_resync(answers, None)
    }

    fn with_resync(answers: impl IntoIterator<Item = Answer>, resync: Option<Duration>) -> Self {
        Self::of(maps(), Script::new(answers), resync)
    }

    fn of(kind: Kind, script: Arc<Script>, resync: Option<Duration>) -> Self {
        let reflector = Reflector::new(kind, Selection::default(), None, Settings { resync, ..Settings::default() });
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&log);
        let handler = move |change: &Told| sink.lock().push(describe_change(change));
        reflector.subscribe(Arc::new(handler)).forever();
        let shutdown = CancellationToken::new();
        let task =
            tokio::spawn(Arc::clone(&reflector).run(Arc::clone(&script) as Arc<dyn ListWatch>, shutdown.clone()));
        Self { reflector, log, shutdown, task, script }
    }

    /// Waits until the script is used up and what it said is digested.
    async fn settle(&self) -> Vec<String> {
        self.script.done.notified().await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *self.log.lock())
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn describe_change(change: &Told) -> String {
    let show = |object: &Shared| {
        let meta = object.metadata();
        format!("{}@{}", meta.name.as_deref().unwrap(), meta.resource_version.as_deref().unwrap())
    };
    match change {
        Change::Added { object, initial } => {
            format!("+{}{}", show(object), if *initial { "!" } else { "" })
        }
        Change::Updated { new, .. } => format!("~{}", show(new)),
        Change::Resync { object } => format!("={}", show(object)),
        Change::Deleted { object } => format!("-{}", show(object)),
    }
}

#[tokio::test(start_paused = true)]
async fn streams_the_initial_state_then_changes() {
    let bench = Bench::start([watch(
        None,
        vec![applied("a", 1), applied("b", 2), end(5), applied("a", 6), deleted("b", 7), applied("c", 8)],
        true,
    )]);
    assert_eq!(bench.settle().await, ["+a@1!", "+b@2!", "~a@6", "-b@7", "+c@8"]);
    assert!(bench.reflector.is_synced());
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn falls_back_to_pages_on_servers_without_streaming_lists() {
    let bench = Bench::start([
        Answer::Watch { from: None, events: Err(422), open: false },
        page(&[("a", 1)], "", Some("more")),
        page(&[("b", 2)], "9", None),
        watch(Some("9"), vec![applied("b", 10)], true),
    ]);
    assert_eq!(bench.settle().await, ["+a@1!", "+b@2!", "~b@10"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_resumes_from_the_last_bookmark() {
    let bench = Bench::start([
        watch(None, vec![applied("a", 1), end(5), bookmark(20)], false),
        watch(Some("20"), vec![applied("a", 21)], false),
        watch(Some("21"), vec![applied("a", 22)], true),
    ]);
    assert_eq!(bench.settle().await, ["+a@1!", "~a@21", "~a@22"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn gone_in_mid_stream_relists_without_dropping_the_cache() {
    let bench = Bench::start([
        watch(None, vec![applied("a", 1), applied("b", 2), applied("c", 3), end(5), applied("a", 6), gone()], false),
        // The second list is cut before its end: nothing may disappear because of that.
        watch(None, vec![applied("a", 6)], false),
        watch(None, vec![applied("a", 6), applied("c", 9), end(10)], true),
    ]);
    assert_eq!(bench.settle().await, ["+a@1!", "+b@2!", "+c@3!", "~a@6", "~c@9", "-b@2"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_does_not_stop_the_rest() {
    let bench = Bench::start([watch(
        None,
        vec![
            applied("a", 1),
            Event::Applied(Decoded::Broken(broken("bad", 2))),
            end(5),
            Event::Applied(Decoded::Broken(broken("a", 6))),
            applied("b", 7),
            Event::Deleted(Decoded::Broken(broken("a", 8))),
        ],
        true,
    )]);
    assert_eq!(bench.settle().await, ["+a@1!", "+b@7", "-a@1"]);
    assert_eq!(bench.reflector.decode_errors(), 3);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_sees_what_is_known_and_may_leave() {
    let bench = Bench::start([watch(None, vec![applied("a", 1), end(5)], true)]);
    bench.settle().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let subscription =
        bench.reflector.subscribe(Arc::new(move |change: &Told| sink.lock().push(describe_change(change))));
    assert_eq!(*seen.lock(), ["+a@1!"]);
    drop(subscription);
    assert_eq!(bench.reflector.handlers.lock().len(), 1);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_sync_names_the_kind_and_the_reason() {
    let bench =
        Bench::start(std::iter::repeat_with(|| Answer::Watch { from: None, events: Err(404), open: false }).take(50));
    let error = bench.reflector.wait_synced(Duration::from_secs(60)).await.unwrap_err().to_string();
    assert!(error.contains("configmaps/v1"), "{error}");
    assert!(error.contains("CustomResourceDefinition"), "{error}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_server_does_not_understand_is_reported() {
    let refused = std::iter::repeat_with(|| Answer::List(Err(400)));
    let bench =
        Bench::start([Answer::Watch { from: None, events: Err(400), open: false }].into_iter().chain(refused.take(50)));
    let error = bench.reflector.wait_synced(Duration::from_secs(60)).await.unwrap_err().to_string();
    assert!(error.contains("scripted"), "{error}");
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_cannot_be_watched_are_reported() {
    let bench = Bench::start([
        Answer::Watch { from: None, events: Err(405), open: false },
        page(&[("a", 1)], "9", None),
        Answer::Watch { from: Some("9"), events: Err(405), open: false },
    ]);
    assert_eq!(bench.settle().await, ["+a@1!"]);
    assert_eq!(bench.reflector.sync.borrow().last_error.as_deref(), Some("scripted"));
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_informer_does_not_keep_anybody_waiting() {
    let bench = Bench::start([]);
    let reflector = Arc::clone(&bench.reflector);
    let waiting = tokio::spawn(async move { reflector.wait_synced(Duration::from_secs(600)).await });
    tokio::task::yield_now().await;
    bench.stop().await;
    assert!(matches!(waiting.await.unwrap(), Err(SyncError::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_resync_reminds_of_everything_periodically() {
    let bench = Bench::with_resync([watch(None, vec![applied("a", 1), end(5)], true)], Some(Duration::from_secs(60)));
    bench.settle().await;
    tokio::time::sleep(Duration::from_secs(67)).await;
    assert_eq!(*bench.log.lock(), ["=a@1"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_handler_does_not_stop_the_others() {
    let bench = Bench::start([watch(None, vec![applied("a", 1), end(5), applied("a", 2)], true)]);
    bench.reflector.subscribe(Arc::new(|_: &Told| panic!("a bug of the user's"))).forever();
    assert_eq!(bench.settle().await, ["+a@1!", "~a@2"]);
    bench.stop().await;
}

/// A server whose kind is missing for a while.
fn absent() -> [Answer; 6] {
    let missing = || Answer::Watch { from: None, events: Err(404), open: false };
    [
        watch(None, vec![applied("a", 1), end(5), gone()], false),
        missing(),
        missing(),
        missing(),
        missing(),
        watch(None, vec![applied("b", 20), end(21)], true),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_may_come_back() {
    let bench = Bench::of(custom(), Script::of(absent(), Some(true)), None);
    assert_eq!(bench.settle().await, ["+a@1!", "-a@1", "+b@20"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unserved_kinds_not_known_to_be_gone_keep_objects() {
    for gone in [Some(false), None] {
        let bench = Bench::of(custom(), Script::of(absent(), gone), None);
        // Only the list that shows that the object is gone ends it.
        assert_eq!(bench.settle().await, ["+a@1!", "+b@20", "-a@1"]);
        bench.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn built_in_kinds_are_never_taken_to_be_gone() {
    let bench = Bench::of(maps(), Script::of(absent(), Some(true)), None);
    // Only the list that shows that the object is gone ends it.
    assert_eq!(bench.settle().await, ["+a@1!", "+b@20", "-a@1"]);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscription_may_be_dropped_in_its_own_handler() {
    let bench = Bench::start([watch(None, vec![applied("a", 1), end(5), applied("a", 2), applied("a", 3)], true)]);
    let (slot, heard) = (Arc::new(Mutex::new(None::<Subscription>)), Arc::new(Mutex::new(Vec::new())));
    let (own, log) = (Arc::clone(&slot), Arc::clone(&heard));
    let subscription = bench.reflector.subscribe(Arc::new(move |change: &Told| {
        log.lock().push(describe_change(change));
        if matches!(change, Change::Updated { .. }) {
            drop(own.lock().take());
        }
    }));
    *slot.lock() = Some(subscription);
    assert_eq!(bench.settle().await, ["+a@1!", "~a@2", "~a@3"]);
    assert_eq!(*heard.lock(), ["+a@1!", "~a@2"]);
    assert_eq!(bench.reflector.handlers.lock().len(), 1);
    bench.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_starts_over() {
    struct Panics(AtomicBool, Arc<Script>);
    impl ListWatch for Panics {
        fn list<'a>(&'a self, part: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>> {
            self.1.list(part)
        }
        fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>> {
            self.1.version()
        }
        fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>> {
            self.1.is_gone()
        }
        fn watch<'a>(&'a self, from: Option<&'a str>, seconds: u32) -> BoxFuture<'a, Result<EventStream, kube::Error>> {
            assert!(self.0.swap(true, Ordering::Relaxed), "a bug of the user's");
            self.1.watch(from, seconds)
        }
    }
    let script = Script::new([watch(None, vec![applied("a", 1), end(5)], true)]);
    let reflector = Reflector::new(maps(), Selection::default(), None, Settings::default());
    let shutdown = CancellationToken::new();
    let source = Arc::new(Panics(AtomicBool::new(false), script));
    let task = tokio::spawn(Arc::clone(&reflector).run(source, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(60)).await.unwrap();
    assert_eq!((reflector.read(Store::len), reflector.panics()), (1, 1));
    shutdown.cancel();
    task.await.unwrap();
}

#[test]
fn what_a_transform_makes_unreadable_is_kept_in_memory() {
    let resource = ApiResource::erase::<ConfigMap>(&());
    let spoil: Transform<DynamicObject> = Arc::new(|object| object.data["metadata"] = "twice".into());
    let settings = Settings { transform: Some(any_transform(spoil)), ..Settings::default() };
    let kind = Kind::of::<DynamicObject>(&resource);
    let reflector = Reflector::new(kind, Selection::default(), None, settings);
    let mut map = DynamicObject::new("a", &resource).within("d").data(serde_json::json!({}));
    map.metadata.resource_version = Some("1".into());
    let json = serde_json::to_vec(&map).unwrap();
    let fresh = task::transform(&reflector, Fresh { object: Arc::new(map), json: Some(json.into()) });
    reflector.change(|store| store.upsert(fresh, true).into_iter().flatten());
    reflector.sweep();
    reflector.sweep();
    let key = ObjectKey::new("d", "a");
    let kept: Arc<DynamicObject> = typed(reflector.read(|store| store.get(&key)).unwrap());
    assert_eq!(kept.data["metadata"], "twice");
    let deleted = reflector.store.write().remove(&key, None, "2");
    assert!(matches!(deleted, Some(Change::Deleted { .. })));
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_selected_by_their_new_labels() {
    let script = Script::new([watch(None, vec![applied("a", 1), end(5)], true)]);
    let selector = Labels::from("app=a");
    let selection = Selection { labels: Some(selector.to_string()), ..Selection::default() };
    let bare: Transform<ConfigMap> = Arc::new(|map| map.metadata.labels = None);
    let settings = Settings { transform: Some(any_transform(bare)), ..Settings::default() };
    let reflector = Reflector::new(maps(), selection, Some(selector), settings);
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&reflector).run(script, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(60)).await.unwrap();
    let mut written = object("a", 6);
    written.metadata.labels = Some([("app".to_owned(), "a".to_owned())].into());
    reflector.note_write(Arc::new(written));
    let shown = reflector.read(|store| store.get(&ObjectKey::new("d", "a"))).unwrap();
    assert_eq!((shown.metadata().resource_version.as_deref(), &shown.metadata().labels), (Some("6"), &None));
    shutdown.cancel();
    task.await.unwrap();
}

/// Servers older than streaming lists ignore what they do not know.
#[tokio::test(start_paused = true)]
async fn servers_without_an_initial_bookmark_are_listed() {
    let bench = Bench::start([
        watch(None, vec![applied("a", 1), applied("b", 2), applied("a", 3)], true),
        page(&[("a", 3), ("b", 2)], "9", None),
        watch(Some("9"), vec![applied("b", 10)], true),
    ]);
    bench.reflector.wait_synced(Duration::from_secs(60)).await.unwrap();
    assert_eq!(bench.settle().await, ["+a@1!", "+b@2!", "~a@3", "~b@10"]);
    bench.stop().await;
}

/// The same where something changes all the time.
#[tokio::test(start_paused = true)]
async fn changes_do_not_pass_for_the_initial_state() {
    struct Busy(Arc<Script>);
    impl ListWatch for Busy {
        fn list<'a>(&'a self, part: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>> {
            self.0.list(part)
        }
        fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>> {
            self.0.version()
        }
        fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>> {
            self.0.is_gone()
        }
        fn watch<'a>(&'a self, _: Option<&'a str>, _: u32) -> BoxFuture<'a, Result<EventStream, kube::Error>> {
            let changes = stream::iter(1..).then(|version| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(applied("a", version))
            });
            async move { Ok(changes.boxed()) }.boxed()
        }
    }
    let source = Arc::new(Busy(Script::new([page(&[("a", 40)], "40", None)])));
    let reflector = Reflector::new(maps(), Selection::default(), None, Settings::default());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&reflector).run(source, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(60)).await.unwrap();
    shutdown.cancel();
    task.await.unwrap();
}

/// The same where something is created all the time.
#[tokio::test(start_paused = true)]
async fn what_is_created_does_not_pass_for_the_initial_state() {
    let source = Arc::new(Slow { script: Script::new([page(&[("a", 1040)], "1040", None)]), first: 1001, ends: false });
    let reflector = Reflector::new(maps(), Selection::default(), None, Settings::default());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&reflector).run(source, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(90)).await.unwrap();
    assert!(reflector.read(|store| store.get(&ObjectKey::new("d", "a")).is_some()), "listed");
    shutdown.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_initial_state_may_take_its_time_while_it_comes() {
    let source = Arc::new(Slow { script: Script::new([]), first: 100, ends: true });
    let reflector = Reflector::new(maps(), Selection::default(), None, Settings::default());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(Arc::clone(&reflector).run(source, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(600)).await.unwrap();
    assert_eq!(reflector.read(Store::len), 400);
    shutdown.cancel();
    task.await.unwrap();
}

/// A server, at version 1000, that tells of another object each second, from a version on, and after 400 perhaps
/// that this was all.
struct Slow {
    script: Arc<Script>,
    first: u64,
    ends: bool,
}

impl ListWatch for Slow {
    fn list<'a>(&'a self, part: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>> {
        self.script.list(part)
    }
    fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>> {
        self.script.version()
    }
    fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>> {
        self.script.is_gone()
    }
    fn watch<'a>(&'a self, _: Option<&'a str>, _: u32) -> BoxFuture<'a, Result<EventStream, kube::Error>> {
        let objects = stream::iter(self.first..self.first + 400).then(|version| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(applied(&version.to_string(), version))
        });
        let end = stream::iter(self.ends.then(|| Ok(end(1000))));
        async move { Ok(objects.chain(end).chain(stream::pending()).boxed()) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn own_writes_go_with_their_kind() {
    for observed in [true, false] {
        let initial = if observed { vec![applied("a", 1), end(5), gone()] } else { vec![end(5), gone()] };
        let missing = || Answer::Watch { from: None, events: Err(404), open: false };
        let script = [watch(None, initial, false), missing(), missing(), missing(), missing()];
        let bench = Bench::of(custom(), Script::of(script, Some(true)), None);
        bench.reflector.wait_synced(Duration::from_secs(60)).await.unwrap();
        let (own, elsewhere) = (ObjectKey::new("d", "own"), ObjectKey::new("d", "elsewhere"));
        bench.reflector.note_write(Arc::new(object("own", 10)));
        bench.reflector.note_elsewhere(&elsewhere, 11);
        assert!(bench.reflector.read(|store| store.get(&own).is_some() && store.is_behind(&elsewhere)));
        bench.settle().await;
        assert_eq!(bench.reflector.read(Store::len), 0, "observed: {observed}");
        assert!(!bench.reflector.read(|store| store.is_behind(&elsewhere)));
        bench.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_is_told_of_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let tell: OnDecodeError = Arc::new(move |failure| sink.lock().push(format!("{} {}", failure.key, failure.error)));
    let settings = Settings { on_decode_error: Some(tell), ..Settings::default() };
    let reflector = Reflector::new(maps(), Selection::default(), None, settings);
    let bad = |version| Event::Applied(Decoded::Broken(broken("a", version)));
    let other = Broken { error: "in another way".into(), ..broken("a", 8) };
    let events = vec![bad(1), end(5), bad(6), bad(7), Event::Applied(Decoded::Broken(other)), applied("a", 9), bad(10)];
    let script = Script::new([watch(None, events, true)]);
    let shutdown = CancellationToken::new();
    let source = Arc::clone(&script) as Arc<dyn ListWatch>;
    let task = tokio::spawn(Arc::clone(&reflector).run(source, shutdown.clone()));
    reflector.wait_synced(Duration::from_secs(1)).await.unwrap();
    while reflector.decode_errors() < 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*told.lock(), ["d/a scripted", "d/a in another way", "d/a scripted"], "once it fitted");
    shutdown.cancel();
    task.await.unwrap();
}

#[test]
fn what_exists_is_followed_with_the_store_unlocked() {
    let reflector = Reflector::new(maps(), Selection::default(), None, Settings::default());
    let mut free = false;
    let begin = |_| free = reflector.store.try_write().is_some();
    reflector.follow(begin, Arc::new(|_: &Told| {})).forever();
    assert!(free, "`begin` reads the store, perhaps while a writer waits");
}
