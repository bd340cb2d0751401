//! Tests of operators, each in a cluster of its own: in process, in milliseconds, in parallel.
//!
//! ```test_harness
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use windlass::{Context, Controller, ObjectKey, Outcome, controller};
//! use windlass_testing::Env;
//!
//! #[windlass_testing::test]
//! async fn settings_are_marked(env: Env) {
//!     let mut manager = env.manager().build().expect("a manager");
//!     let mark = controller::from_key_fn(|key: ObjectKey, ctx: Context| async move {
//!         let mark = |map: &mut ConfigMap| {
//!             map.data.get_or_insert_default().insert("seen".into(), "yes".into());
//!         };
//!         ctx.client().modify(&key, mark).await?;
//!         Ok(Outcome::Done)
//!     });
//!     manager.add(Controller::<ConfigMap>::new("settings").complete_keyed(mark)).expect("added");
//!     env.run(manager);
//!
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = Some("settings".into());
//!     map.metadata.namespace = Some("default".into());
//!     env.client().create(&map).await.expect("created");
//!     let seen = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
//!     env.wait_for("the mark", &ObjectKey::of(&map), seen).await;
//! }
//! ```
//!
//! - **A cluster.** The real pipeline: admission, validation, defaulting, watches, server-side
//!   apply, garbage collection. Written `test(bare)`, without the built-in controllers.
//! - **Waiting.** [`Env::wait_for`] follows one object by a watch; [`Env::eventually`] looks again
//!   whenever anything in the cluster changed. Nothing sleeps for a guess.
//! - **Time.** Written `test(paused)`, the clock stands still and jumps to the next timer whenever
//!   nothing else is to do: an hour's requeue takes a millisecond. [`Env::advance`] moves it, from timer to timer.
//! - **Events.** [`Env::events`] and [`Env::wait_for_event`] see what the operator reported.
//! - **Failures.** What the operator warns of, as a reconcile that fails, is in the output of a test
//!   that fails, unless there was a `tracing` subscriber before; a wait in vain says the last.
//! - **Nothing is left.** When the test function returns, managers and cluster are stopped, and a
//!   test that leaves tasks behind, or whose manager has failed, fails.

mod warnings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, PostParams};
use kube::{CustomResourceExt, Resource};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::manager::{ManagerBuilder, ManagerError};
use windlass::{CachedClient, Manager, Object, ObjectKey};
use windlass_cluster::{Cluster, Controllers};

pub use windlass_testing_macros::test;

/// How long a condition may take, by the test's clock.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long what was stopped may take to be gone.
const LEAVING: Duration = Duration::from_secs(5);

/// What kind of environment a test wants.
///
/// ```
/// use std::time::Duration;
/// use windlass_testing::{Options, run};
///
/// let began = std::time::Instant::now();
/// run(Options::default().paused().bare(), async |env| env.advance(Duration::from_secs(3600)).await);
/// assert!(began.elapsed() < Duration::from_secs(60), "an hour passed in no time");
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    paused: bool,
    bare: bool,
}

impl Options {
    /// The clock stands still and jumps ahead when nothing else is to do.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// An API server alone: no built-in controllers.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }
}

/// Runs a test in an environment of its own, then stops everything and looks for what is left.
/// This is what the attribute [`test`] expands to.
///
/// ```
/// use windlass_testing::{Env, Options, run};
///
/// let namespaces = run(Options::default(), async |env: Env| {
///     let namespaces = env.client().list::<k8s_openapi::api::core::v1::Namespace>().await;
///     namespaces.expect("listed").len()
/// });
/// assert!(namespaces >= 1);
/// ```
pub fn run<T, R>(options: Options, test: T) -> R
where
    T: AsyncFnOnce(Env) -> R,
{
    let _shown = warnings::show();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(options.paused);
    let runtime = builder.build().expect("invariant: a runtime can be built");
    let result = runtime.block_on(async {
        let env = Env::start(options).await;
        let result = test(env.clone()).await;
        env.stop().await;
        result
    });
    let left = runtime.block_on(left_behind());
    assert!(left == 0, "the test left {left} tasks running");
    result
}

/// Tasks still alive after a moment.
async fn left_behind() -> usize {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let began = std::time::Instant::now();
    while alive() > 0 && began.elapsed() < LEAVING {
        // What is being dropped needs a turn, not time.
        tokio::task::yield_now().await;
    }
    alive()
}

/// A cluster and what runs against it. Clones are the same environment.
///
/// ```
/// use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
/// use windlass::ObjectKey;
/// use windlass_testing::{Env, Options, run};
///
/// run(Options::default(), async |env: Env| {
///     let mut namespace = Namespace::default();
///     namespace.metadata.name = Some("pets".into());
///     env.client().create(&namespace).await.expect("created");
///     let account = ObjectKey::new("pets", "default");
///     env.wait_for("its account", &account, |account: Option<&ServiceAccount>| account.is_some()).await;
/// });
/// ```
#[derive(Clone)]
pub struct Env {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Mutex<Option<Cluster>>,
    kube: kube::Client,
    client: CachedClient,
    /// Moves with every write to the cluster.
    revision: tokio::sync::watch::Receiver<u64>,
    managers: Mutex<BTreeMap<u64, Started>>,
    /// What the next manager is known by. None is given twice: a [`Running`] may outlive its manager.
    next: AtomicU64,
}

struct Started {
    name: String,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    /// How it ended, once it did.
    ended: Arc<Mutex<Option<Result<(), ManagerError>>>>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("managers", &self.inner.managers.lock().len()).finish_non_exhaustive()
    }
}

/// A manager that runs in an [`Env`]. One that fails, and that the test does not stop itself, fails
/// the test when it ends.
///
/// ```
/// use windlass_testing::{Env, Options, Running, run};
///
/// run(Options::default().bare(), async |env: Env| {
///     let running: Running = env.run(env.manager().build().expect("a manager"));
///     running.stop().await.expect("stopped");
///     let crashing = env.run(env.manager().build().expect("a manager"));
///     crashing.kill().await; // gives nothing back
/// });
/// ```
#[derive(Debug, Clone)]
pub struct Running {
    env: Env,
    id: u64,
}

impl Running {
    /// Stops the manager and waits for it. If it has failed before, this is where the test learns why.
    pub async fn stop(&self) -> Result<(), ManagerError> {
        let started = self.env.inner.managers.lock().remove(&self.id);
        match started {
            Some(started) => started.stop().await,
            None => Ok(()),
        }
    }

    /// Ends the manager as a crash would: nothing is finished, nothing is given back.
    pub async fn kill(&self) {
        let started = self.env.inner.managers.lock().remove(&self.id);
        if let Some(started) = started {
            started.task.abort();
            // Aborted is what was asked for.
            let _ = started.task.await;
        }
    }
}

impl Started {
    async fn stop(self) -> Result<(), ManagerError> {
        self.shutdown.cancel();
        self.task.await.expect("invariant: a manager does not panic");
        self.ended.lock().take().expect("invariant: a manager that ended has said how")
    }

    /// What to say of a manager that has ended although nobody stopped it.
    fn obituary(&self) -> Option<String> {
        let name = &self.name;
        match &*self.ended.lock() {
            Some(Err(error)) => Some(format!("the manager {name:?} has failed: {error}")),
            Some(Ok(())) => Some(format!("the manager {name:?} has ended")),
            None if self.task.is_finished() => Some(format!("the manager {name:?} has panicked")),
            None => None,
        }
    }
}

impl Env {
    /// A fresh cluster. Tests get theirs from the attribute [`test`].
    pub async fn start(options: Options) -> Self {
        let mut builder = Cluster::builder();
        if options.bare {
            builder = builder.controllers(Controllers::none());
        }
        let cluster = builder.start().await.expect("invariant: a cluster in memory starts");
        let kube = cluster.client();
        let revision = cluster.server().api().store.revision();
        let client = CachedClient::standalone(kube.clone(), "test");
        let (cluster, managers) = (Mutex::new(Some(cluster)), Mutex::default());
        let inner = Inner { cluster, kube, client, revision, managers, next: AtomicU64::new(0) };
        Self { inner: Arc::new(inner) }
    }

    /// A client that reaches the cluster as an administrator.
    pub fn kube(&self) -> kube::Client {
        self.inner.kube.clone()
    }

    /// The test's own client, with cached reads that show its own writes.
    pub fn client(&self) -> &CachedClient {
        &self.inner.client
    }

    /// Describes a manager for this cluster.
    pub fn manager(&self) -> ManagerBuilder {
        Manager::builder(self.kube())
    }

    /// Runs a manager until the test ends, or until it is stopped. One that fails before fails the
    /// test, unless that [stops](Running::stop) it and looks at the error.
    pub fn run(&self, manager: Manager) -> Running {
        let (shutdown, ended) = (CancellationToken::new(), Arc::new(Mutex::new(None)));
        let name = manager.client().field_manager().to_owned();
        let (until, end) = (shutdown.clone(), Arc::clone(&ended));
        let task = tokio::spawn(async move {
            let result = manager.run_until(until).await;
            *end.lock() = Some(result);
        });
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        self.inner.managers.lock().insert(id, Started { name, shutdown, task, ended });
        Running { env: self.clone(), id }
    }

    /// Installs the definition of a custom resource and waits until it is served.
    pub async fn install<K: CustomResourceExt>(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.kube());
        let made = definitions.create(&PostParams::default(), &K::crd()).await;
        let made = made.unwrap_or_else(|error| panic!("the definition was refused: {error}"));
        let established = |definition: Option<&CustomResourceDefinition>| {
            let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|list| list.iter().any(|one| one.type_ == "Established" && one.status == "True"))
        };
        self.wait_for("the definition to take effect", &ObjectKey::of(&made), established).await;
    }

    /// Waits until an object is as it should be (`None`: there is none), and returns it.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    pub async fn wait_for<K>(
        &self,
        what: &str,
        key: &ObjectKey,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> Option<Arc<K>>
    where
        K: Object<DynamicType: Default>,
    {
        let lister = self.inner.client.lister::<K>();
        let changed = Arc::new(tokio::sync::Notify::new());
        let told = Arc::clone(&changed);
        let subscription = lister.subscribe(move |_| told.notify_one());
        let waiting = async {
            lister.wait_synced().await.unwrap_or_else(|error| panic!("waiting for {what}: {error}"));
            loop {
                let object = lister.get(key);
                if condition(object.as_deref()) {
                    return object;
                }
                changed.notified().await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, waiting).await;
        drop(subscription);
        found.unwrap_or_else(|_| {
            panic!("timed out waiting for {what}; {key} is {:#?}{}", lister.get(key), self.obituaries())
        })
    }

    /// Waits until a condition holds. It is looked at whenever anything in the cluster changed,
    /// and now and then for what changes elsewhere.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    pub async fn eventually(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let mut revision = self.inner.revision.clone();
        let waiting = async {
            let mut pause = Duration::from_millis(1);
            while !condition().await {
                // Caches follow a change a moment later: look again soon, then more rarely.
                let changed = tokio::time::timeout(pause, revision.changed()).await.is_ok();
                pause = if changed { Duration::from_millis(1) } else { (pause * 2).min(Duration::from_millis(50)) };
            }
        };
        let held = tokio::time::timeout(PATIENCE, waiting).await;
        held.unwrap_or_else(|_| panic!("timed out waiting for {what}{}", self.obituaries()));
    }

    /// The managers that have ended, and what failed last, for the message of a test that waited in vain.
    fn obituaries(&self) -> String {
        let managers = self.inner.managers.lock();
        let ended = managers.values().filter_map(Started::obituary);
        let failed = warnings::last_failure().map(|warning| format!("the last failure: {warning}"));
        ended.chain(failed).flat_map(|reason| ["; ".to_owned(), reason]).collect()
    }

    /// What was reported so far, by either API, oldest first; of a series, its first.
    pub async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.kube());
        let list = events.list(&ListParams::default()).await;
        let mut items = list.unwrap_or_else(|error| panic!("events: {error}")).items;
        items.sort_by_key(reported);
        items
    }

    /// Waits for an event about an object, by its reason.
    pub async fn wait_for_event<K: Resource>(&self, about: &K, reason: &str) -> Event {
        let uid = about.meta().uid.as_ref();
        let found: Mutex<Option<Event>> = Mutex::default();
        self.eventually(&format!("an event {reason}"), async || {
            let fits = |event: &Event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().is_some_and(|object| object.uid.as_ref() == uid)
            };
            let event = self.events().await.into_iter().find(fits);
            let there = event.is_some();
            *found.lock() = event;
            there
        })
        .await;
        found.into_inner().expect("invariant: found before the wait ended")
    }

    /// Moves a paused clock ahead, from timer to timer, and lets what is due happen when it is: what
    /// happens every minute happens sixty times in an hour, and a leader renews its lease all along.
    ///
    /// # Panics
    /// When the clock is not paused.
    pub async fn advance(&self, by: Duration) {
        // Panics unless it is.
        tokio::time::advance(Duration::ZERO).await;
        // With a paused clock this takes no time, and passes by no timer.
        tokio::time::sleep(by).await;
        // What became due runs now; what it leads to, by and by.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }

    /// Stops everything; called when a test ends.
    ///
    /// # Panics
    /// When a manager that nobody stopped has failed, or does not stop well.
    pub async fn stop(&self) {
        let managers = std::mem::take(&mut *self.inner.managers.lock());
        let mut failed = Vec::new();
        for started in managers.into_values() {
            let name = started.name.clone();
            if let Err(error) = started.stop().await {
                failed.push(format!("the manager {name:?} has failed: {error}"));
            }
        }
        self.inner.client.caches().stop().await;
        let cluster = self.inner.cluster.lock().take();
        if let Some(cluster) = cluster {
            cluster.stop().await.unwrap_or_else(|error| panic!("the cluster did not stop: {error}"));
        }
        assert!(failed.is_empty(), "{}", failed.join("; "));
    }
}

/// When an event was first reported, in nanoseconds, as well as can be known; then, which was
/// written first.
///
/// Only events of the newer API have a time with fractions. The names of all that recorders write, here
/// and in client-go, end in the time.
fn reported(event: &Event) -> (i128, u64) {
    let time = event.event_time.as_ref().map(|time| time.0);
    let time = time.or_else(|| event.deprecated_first_timestamp.as_ref().map(|time| time.0));
    let time = time.or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let time = time.map_or(0, Timestamp::as_nanosecond);
    let named = event.metadata.name.as_deref().and_then(|name| i128::from_str_radix(name.rsplit_once('.')?.1, 16).ok());
    let second = |nanoseconds: i128| nanoseconds.div_euclid(1_000_000_000);
    let precise = named.filter(|named| second(*named) == second(time)).unwrap_or(time);
    let revision = event.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    (precise, revision.unwrap_or_default())
}

/// The examples of the page about tests compile and pass.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/test-an-operator.md")]
mod how_to {}
