//! A [`Runtime`] that runs nothing: containers start, become ready, end and stop when their pods' annotations say so.
//!
//! There is no task and no timer per pod: one queue has everything that is going to happen, and one stream tells it.
//!
//! | annotation of a pod | value | unless set |
//! |---|---|---|
//! | `simulation.windlass.dev/pull-delay` | how long pulling an image takes | `0s` |
//! | `simulation.windlass.dev/pull-error` | images cannot be pulled, with this message | |
//! | `simulation.windlass.dev/start-delay` | how long starting a container takes | `0s` |
//! | `simulation.windlass.dev/ready-delay` | how long a container that runs takes to be ready | what its probes say |
//! | `simulation.windlass.dev/unready-after` | its readiness probe fails from this time on | |
//! | `simulation.windlass.dev/run-time` | a container ends after this time | `1s` for pods of Jobs and with `exit-code` |
//! | `simulation.windlass.dev/exit-code` | what it ends with: one for each start, as `1,1,0`; the last is repeated | `0` |
//! | `simulation.windlass.dev/unhealthy-after` | its liveness probe fails after this time | |
//! | `simulation.windlass.dev/stop-delay` | how long stopping a container takes, at most its grace period | `0s` |
//!
//! They are for all of `spec.containers`. With a container's name in front (`web.simulation.windlass.dev/exit-code`) they are
//! for that one, which may be an init container. Times are `500ms`, `1.5s`, `2m` or `1h`; a number is in seconds.
//!
//! Init containers end at once with code 0. Containers of pods that a Job owns end after a second with code 0. All
//! others run until they are stopped, and then end with code 0, or with 137 if they take longer than their grace period. A
//! container with a readiness or startup probe is ready, or has started, after the probe's `initialDelaySeconds`.
//!
//! Simulated containers write nothing and run no commands, unless a [`Console`] answers for them.

mod plan;
mod timers;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::runtime::{
    Connection, ContainerEvent, ContainerRef, ExecOptions, Exit, Image, LogOptions, Operation, PodSandbox, Probe,
    Pulled, Recovered, Runtime, RuntimeError, RuntimeEvent, Session, Started,
};
use crate::volumes::Mounted;
use plan::Plan;
use timers::Timers;

/// See the [module documentation](self). Clones are the same simulation.
#[derive(Clone, Default)]
pub struct Simulation {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").finish_non_exhaustive()
    }
}

/// Answers for containers that are not there: what they write, what commands say, and what listens at their ports.
///
/// `None` leaves the answer to the simulation: no output, and no commands and ports.
pub trait Console: Send + Sync + 'static {
    /// The output of a container.
    fn logs(
        &self,
        pod: &PodSandbox,
        container: &str,
        options: &LogOptions,
    ) -> Option<Operation<BoxStream<'static, Bytes>>>;

    /// Runs a command in a container.
    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Option<Operation<Session>>;

    /// Attaches to the main process of a container.
    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Option<Operation<Session>>;

    /// Connects to a port of a pod.
    fn port(&self, pod: &PodSandbox, port: u16) -> Option<Operation<Box<dyn Connection>>>;
}

#[derive(Default)]
struct Inner {
    console: Option<Arc<dyn Console>>,
    timers: Mutex<Timers<RuntimeEvent>>,
    earlier: Notify,
    /// Which pods have something that is going to happen: the events of others are dropped.
    running: Mutex<HashSet<Arc<str>>>,
}

impl Simulation {
    /// A simulation with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A simulation whose containers are answered for.
    pub fn with_console(console: Arc<dyn Console>) -> Self {
        Self { inner: Arc::new(Inner { console: Some(console), ..Inner::default() }) }
    }

    /// What the console answers, or what the simulation does.
    fn ask<T>(
        &self,
        ask: impl FnOnce(&dyn Console) -> Option<Operation<T>>,
        or: impl FnOnce() -> Operation<T>,
    ) -> Operation<T> {
        self.inner.console.as_deref().and_then(ask).unwrap_or_else(or)
    }

    fn at(&self, when: Instant, pod: &PodSandbox, container: &ContainerRef<'_>, event: ContainerEvent) {
        let text = |text: Option<&str>| Arc::from(text.unwrap_or_default());
        let meta = &pod.pod.metadata;
        let event = RuntimeEvent {
            namespace: text(meta.namespace.as_deref()),
            name: text(meta.name.as_deref()),
            uid: text(meta.uid.as_deref()),
            container: container.index,
            attempt: container.attempt,
            event,
        };
        let mut running = self.inner.running.lock();
        running.insert(Arc::clone(&event.uid));
        let mut timers = self.inner.timers.lock();
        let is_next = timers.add(when, event);
        timers.compact(|event| running.contains(&event.uid));
        if is_next {
            self.inner.earlier.notify_one();
        }
    }

    /// Has everything happen that is going to happen to a container that runs.
    fn schedule(&self, pod: &PodSandbox, container: &ContainerRef<'_>, plan: &Plan, since: Instant) {
        let probe =
            |probe, success, message: &str| ContainerEvent::Probe { probe, success, message: message.to_owned() };
        if container.spec.startup_probe.is_some() {
            self.at(since + plan.startup, pod, container, probe(Probe::Startup, true, ""));
        }
        if container.spec.readiness_probe.is_some() {
            self.at(since + plan.startup + plan.ready, pod, container, probe(Probe::Readiness, true, ""));
        }
        if let Some(after) = plan.unready.filter(|_| container.spec.readiness_probe.is_some()) {
            self.at(since + after, pod, container, probe(Probe::Readiness, false, "simulated"));
        }
        if let Some(after) = plan.unhealthy.filter(|_| container.spec.liveness_probe.is_some()) {
            self.at(since + after, pod, container, probe(Probe::Liveness, false, "simulated"));
        }
        if let Some(after) = plan.run {
            self.at(since + after, pod, container, ContainerEvent::Exited(exit(plan.exit_code)));
        }
    }

    /// The next event that is due; waits for it.
    async fn next(&self) -> RuntimeEvent {
        loop {
            let due = self.inner.timers.lock().next();
            let wait = match due {
                Some(at) if at <= Instant::now() => {
                    let event = self.inner.timers.lock().pop();
                    match event.filter(|event| self.inner.running.lock().contains(&event.uid)) {
                        Some(event) => return dated(event),
                        None => continue,
                    }
                }
                due => due,
            };
            let earlier = self.inner.earlier.notified();
            match wait {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = earlier => {}
                },
                None => earlier.await,
            }
        }
    }
}

/// An event that happens now: a container ends when its time is up, not when that was planned.
fn dated(mut event: RuntimeEvent) -> RuntimeEvent {
    if let ContainerEvent::Exited(exit) = &mut event.event {
        exit.at = crate::pod::Now::read().wall;
    }
    event
}

/// How a container will end.
fn exit(code: i32) -> Exit {
    Exit { code, reason: None, message: None, at: crate::pod::Now::read().wall }
}

/// How a container ended, as its status has it.
fn ended_as(ended: &ContainerStateTerminated, now: Timestamp) -> Exit {
    let at = ended.finished_at.as_ref().map_or(now, |time| time.0);
    Exit { code: ended.exit_code, reason: ended.reason.clone(), message: ended.message.clone(), at }
}

/// A container's id without the runtime's scheme.
fn id_of(id: Option<&str>) -> String {
    id.and_then(|id| id.split_once("://")).map_or_else(String::new, |(_, id)| id.to_owned())
}

/// An operation that takes so long.
fn after<T: Send + 'static>(
    delay: Duration,
    result: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Operation<T> {
    if delay.is_zero() {
        return Operation::Done(result());
    }
    Operation::Pending(Box::pin(async move {
        tokio::time::sleep(delay).await;
        result()
    }))
}

fn unsupported<T>(what: &str) -> Operation<T> {
    Operation::Done(Err(RuntimeError::Unsupported(format!("{what}: this pod is simulated, no container runs"))))
}

/// An id that is the same whenever it is made.
fn container_id(pod: &Pod, name: &str, attempt: i32) -> String {
    use std::fmt::Write as _;
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    let mut id = String::with_capacity(64);
    for part in 0..4_u8 {
        let mut hasher = DefaultHasher::new();
        (part, pod.metadata.uid.as_deref(), name, attempt).hash(&mut hasher);
        let _ = write!(id, "{:016x}", hasher.finish());
    }
    id
}

impl Runtime for Simulation {
    fn version(&self) -> String {
        concat!("simulated://", env!("CARGO_PKG_VERSION")).to_owned()
    }

    /// Simulated containers are what the pod's status says they are.
    fn recover(&self, pod: &PodSandbox) -> Operation<Vec<Recovered>> {
        let Some((spec, status)) = pod.pod.spec.as_ref().zip(pod.pod.status.as_ref()) else {
            return Operation::ok(Vec::new());
        };
        let main = status.init_container_statuses.iter().chain(&status.container_statuses);
        let statuses = main.chain(&status.ephemeral_container_statuses).flatten();
        let now = Timestamp::now();
        let mut found = Vec::new();
        for status in statuses {
            let state = status.state.clone().unwrap_or_default();
            let (since, exit) = match (state.running, state.terminated) {
                (Some(running), _) => (running.started_at, None),
                (None, Some(ended)) => (ended.started_at.clone(), Some(ended_as(&ended, now))),
                (None, None) => continue,
            };
            let since = since.map_or(now, |time| time.0);
            let indexed = crate::containers::containers(spec)
                .enumerate()
                .find(|(_, (_, container))| container.name == status.name);
            let Some((index, (role, container))) = indexed else { continue };
            if exit.is_none() {
                let container = ContainerRef {
                    index,
                    spec: &container,
                    role,
                    attempt: status.restart_count,
                    environment: &[],
                    pull_secrets: &[],
                };
                let spent = now.duration_since(since).unsigned_abs();
                let plan = Plan::of(&pod.pod, &container);
                let began = Instant::now().checked_sub(spent).unwrap_or_else(Instant::now);
                self.schedule(pod, &container, &plan, began);
            }
            found.push(Recovered {
                name: status.name.clone(),
                attempt: status.restart_count,
                started: Started { id: id_of(status.container_id.as_deref()), at: since },
                image: status.image_id.clone(),
                last: status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).map(|ended| {
                    let at = ended.started_at.as_ref().map_or(now, |time| time.0);
                    (Started { id: id_of(ended.container_id.as_deref()), at }, ended_as(ended, now))
                }),
                startup_done: status.started == Some(true),
                ready: status.ready,
                exit,
            });
        }
        Operation::ok(found)
    }

    fn create(&self, _pod: &PodSandbox, _volumes: &Arc<Mounted>) -> Operation<()> {
        Operation::ok(())
    }

    fn pull(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Image> {
        let plan = Plan::of(&pod.pod, container);
        let (delay, error) = (plan.pull, plan.pull_error);
        // Nothing is known of the image, so its name stands for it.
        let id = container.spec.image.clone().unwrap_or_default();
        after(delay, move || {
            if let Some(error) = error {
                return Err(RuntimeError::Pull(error));
            }
            let pulled = (!delay.is_zero()).then_some(Pulled { took: delay, size: 0 });
            Ok(Image { id, pulled })
        })
    }

    fn start(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Started> {
        let plan = Plan::of(&pod.pod, container);
        let id = container_id(&pod.pod, &container.spec.name, container.attempt);
        let delay = plan.start;
        self.schedule(pod, container, &plan, Instant::now() + delay);
        after(delay, move || Ok(Started { id, at: crate::pod::Now::read().wall }))
    }

    fn stop(&self, pod: &PodSandbox, container: &ContainerRef<'_>, grace: Duration) {
        let plan = Plan::of(&pod.pod, container);
        let code = if plan.stop > grace { 137 } else { plan.stop_code };
        self.at(Instant::now() + plan.stop.min(grace), pod, container, ContainerEvent::Exited(exit(code)));
    }

    fn remove(&self, pod: &PodSandbox) -> Operation<()> {
        self.inner.running.lock().remove(pod.uid());
        Operation::ok(())
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        stream::unfold(self.clone(), async |simulation| Some((simulation.next().await, simulation))).boxed()
    }

    fn logs(&self, pod: &PodSandbox, container: &str, options: &LogOptions) -> Operation<BoxStream<'static, Bytes>> {
        self.ask(|console| console.logs(pod, container, options), || Operation::ok(stream::empty().boxed()))
    }

    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Operation<Session> {
        self.ask(|console| console.exec(pod, container, command), || unsupported("exec"))
    }

    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Operation<Session> {
        self.ask(|console| console.attach(pod, container, terminal), || unsupported("attach"))
    }

    fn port(&self, pod: &PodSandbox, port: u16) -> Operation<Box<dyn Connection>> {
        self.ask(|console| console.port(pod, port), || unsupported("port-forward"))
    }
}
