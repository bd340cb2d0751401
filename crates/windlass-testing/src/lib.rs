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
//!     env.run_ready(manager).await;
//!
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = Some("settings".into());
//!     env.create(map).await;
//!     let marked = env.wait_until::<ConfigMap>("settings", |map| map.data.is_some()).await;
//!     assert_eq!(marked.data.as_ref().expect("marked")["seen"], "yes");
//! }
//! ```
//!
//! - **A cluster.** An API server with the real pipeline: authorization, admission, validation, defaulting, watches,
//!   server-side apply; and the built-in controllers, as those of Deployments and garbage collection. The attribute
//!   [`test`] says what runs and what does not.
//! - **Objects.** [`Env::create`], [`Env::get`], [`Env::modify`] and [`Env::delete`] are for requests that must
//!   succeed: the test fails with its own line and what the server said. [`Env::client`] is for all others.
//! - **Waiting.** [`Env::wait_until`], [`Env::wait_gone`] and [`Env::wait_for_condition`] follow one object by a watch;
//!   [`Env::eventually`] checks again whenever anything in the cluster has changed. Tests do not sleep.
//! - **Time.** With `test(paused)`, the clock stands still and jumps to the next timer whenever there is nothing else to
//!   do: an hour's requeue takes a millisecond. [`Env::advance`] moves it, from timer to timer.
//! - **Events.** [`Env::events`] and [`Env::wait_for_event`] see what the operator reported.
//! - **Faults.** [`Env::fail`] fails, delays or loses chosen requests, [`Env::cut_watches`] breaks watches, and
//!   [`Env::restart_server`] restarts the API server.
//! - **Permissions.** [`Env::manager_as`] runs a manager with the permissions of a role.
//! - **Failures.** Warnings of the operator, such as those of reconciles that fail, are in the output of a test that
//!   fails, unless there was a `tracing` subscriber before. A wait that times out says the last one.
//! - **Nothing is left.** When the test function returns, managers and cluster are stopped. The test fails if it leaves
//!   tasks behind, or if one of its managers has failed.

mod entrance;
mod env;
mod fault;
mod identity;
mod managers;
mod objects;
mod pods;
mod requests;
mod running;
mod wait;
mod warnings;

use std::time::Duration;

pub use env::Env;
pub use fault::{Fault, FaultBuilder, FaultGuard};
pub use pods::PodsReady;
pub use requests::Requests;
pub use running::Running;
pub use windlass::conditions::ConditionStatus;

/// Runs an async test in a cluster of its own.
///
/// The function takes an [`Env`], and may return whatever a test may return. The cluster is new and belongs to this test
/// alone, so tests run in parallel. Each test has a thread and a single-threaded Tokio runtime of its own.
///
/// ```test_harness
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_testing::Env;
///
/// #[windlass_testing::test(bare)]
/// async fn there_are_no_maps(env: Env) -> anyhow::Result<()> {
///     assert!(env.client().list::<ConfigMap>().await?.is_empty());
///     Ok(())
/// }
/// ```
///
/// # What runs
/// | | `test` | `test(bare)` |
/// |---|---|---|
/// | The API server: RBAC, admission, CustomResourceDefinitions, webhooks, watches, server-side apply | yes | yes |
/// | Garbage collection of objects whose owner is gone; the end of namespaces | yes | no |
/// | Deployments, ReplicaSets, Jobs, CronJobs, Endpoints, EndpointSlices, PodDisruptionBudgets, quotas | yes | no |
/// | The ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` of each namespace | yes | no |
/// | A ServiceAccount and its token for every pod (admission plugin ServiceAccount) | yes | no |
/// | Nodes: without them pods stay `Pending`; see below, and [`Env::make_pods_ready`] | no | no |
///
/// Use `bare` for an operator that needs none of the built-in controllers, or when the test writes what they would write,
/// say the status of a Deployment, and must not be interfered with. It also starts and stops a little faster. With
/// `bare`, children are not deleted with their owner, and a deleted namespace stays.
///
/// # Time
/// With `test(paused)`, Tokio's clock stands still, and jumps to the next timer when all tasks wait: requeues, resyncs,
/// leases, backoff and timeouts that take hours pass in milliseconds, in the right order. [`Env::advance`] moves the clock.
/// Use it for tests of what depends on time. Do not use it when something outside of the runtime is waited for, such as a
/// [webhook](Env::webhooks) or another connection over a socket, a thread or a process: the clock then jumps ahead and
/// timeouts fire at once. Times in objects, such as `creationTimestamp`, come from the system's clock and do not jump.
///
/// `test(paused, bare)` does both, in either order: no built-in controllers, and a clock that jumps.
///
/// ```test_harness
/// use std::time::Duration;
/// use windlass_testing::Env;
///
/// #[windlass_testing::test(paused, bare)]
/// async fn a_day_passes_at_once(env: Env) {
///     let began = tokio::time::Instant::now();
///     env.advance(Duration::from_secs(86_400)).await;
///     assert!(began.elapsed() >= Duration::from_secs(86_400));
/// }
/// ```
///
/// # Controllers
/// `test(controllers = "namespace-controller,garbage-collector-controller")` runs these built-in controllers and no others,
/// `test(controllers = "*,-job-controller")` all but one. The names are those of `windlass up --controllers`; the scheduler
/// is `kube-scheduler`.
///
/// ```test_harness
/// use k8s_openapi::api::batch::v1::Job;
/// use serde_json::json;
/// use windlass_testing::Env;
///
/// #[windlass_testing::test(controllers = "*,-job-controller")]
/// async fn nobody_starts_a_job(env: Env) {
///     let containers = json!([{ "name": "c", "image": "i" }]);
///     let template = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
///     let job: Job = serde_json::from_value(json!({ "metadata": { "name": "j" }, "spec": { "template": template } })).unwrap();
///     assert!(env.create(job).await.status.is_none_or(|status| status.start_time.is_none()));
/// }
/// ```
///
/// # Nodes
/// With `test(nodes = 3)`, there are three simulated nodes, `node-0` to `node-2`. Pods that are bound to them become ready,
/// end, crash and are restarted as [annotations](https://docs.rs/windlass-node) say; no container runs. The
/// clock of a paused test drives them, too.
///
/// ```test_harness
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::json;
/// use windlass_testing::Env;
///
/// #[windlass_testing::test(nodes = 1, paused)]
/// async fn a_task_takes_ten_seconds(env: Env) {
///     let began = tokio::time::Instant::now();
///     let pod: Pod = serde_json::from_value(json!({
///         "metadata": {
///             "name": "task", "namespace": "default",
///             "annotations": { "simulation.windlass.dev/run-time": "10s" },
///         },
///         "spec": { "nodeName": "node-0", "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] },
///     }))
///     .expect("a pod");
///     env.create(pod).await;
///     let ended = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
///     env.wait_until::<Pod>("task", ended).await;
///     assert!(began.elapsed() >= Duration::from_secs(10));
/// }
/// ```
///
/// # Setup
/// With `test(setup = start)`, the test begins with `start`, an `async fn(&Env) -> T`. What it returns is given to a
/// test function with a second argument; otherwise it lives until the test ends. It combines with `bare` and `paused`.
///
/// ```test_harness
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_testing::Env;
///
/// /// All tests begin with settings; an operator would be started here, too.
/// async fn start(env: &Env) -> ConfigMap {
///     let mut map = ConfigMap::default();
///     map.metadata.name = Some("settings".into());
///     env.create(map).await
/// }
///
/// #[windlass_testing::test(bare, setup = start)]
/// async fn settings_can_be_frozen(env: Env) {
///     let map = env.modify::<ConfigMap>("settings", |map| map.immutable = Some(true)).await;
///     assert_eq!(map.immutable, Some(true));
/// }
///
/// #[windlass_testing::test(bare, setup = start)]
/// async fn settings_have_an_identity(env: Env, settings: ConfigMap) {
///     assert_eq!(env.get::<ConfigMap>("settings").await.metadata.uid, settings.metadata.uid);
/// }
/// ```
pub use windlass_testing_macros::test;

/// How long a condition may take, by the test's clock.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long tasks that were told to stop may take.
const TASK_END_TIMEOUT: Duration = Duration::from_secs(5);

/// The kind of environment that a test needs: what the arguments of the attribute [`test`] say.
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
    nodes: u32,
    controllers: Option<&'static str>,
}

impl Options {
    /// The clock stands still, and jumps to the next timer when there is nothing else to do.
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

    /// So many simulated nodes, which run the pods that are bound to them.
    #[must_use]
    pub fn nodes(mut self, count: u32) -> Self {
        self.nodes = count;
        self
    }

    /// These built-in controllers and no others, as `windlass up --controllers` takes them: `*` stands for all of them,
    /// `-foo` leaves one out. Unless set, all run, and the scheduler if there are nodes.
    ///
    /// ```
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default().controllers("garbage-collector-controller,namespace-controller"), async |_: Env| {});
    /// ```
    ///
    /// # Panics
    ///
    /// When the environment starts, if no controller has such a name.
    #[must_use]
    pub fn controllers(mut self, list: &'static str) -> Self {
        self.controllers = Some(list);
        self
    }
}

/// Runs a test in an environment of its own, then stops everything and checks that no task is left.
/// The attribute [`test`] expands to this.
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
    while alive() > 0 && began.elapsed() < TASK_END_TIMEOUT {
        // What is being dropped needs a turn, not time.
        tokio::task::yield_now().await;
    }
    alive()
}

/// The examples of the page about tests compile and pass.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/test-an-operator.md")]
mod how_to {}
