//! Starts, finds and stops containers.

use std::fs;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use tokio::sync::watch;
use windlass_image::{Name, Stored, unpack};
use windlass_node::probes::{self, Probes, Target};
use windlass_node::runtime::{PodSandbox, Recovered, RuntimeError, Started};

use super::streams::Probed;
use super::{Known, PodHandle, create, find};
use crate::runtime::client::Client;
use crate::runtime::{Inner, exit_of, image_id, plan, timestamp};
use crate::spec::{ContainerConfig, ContainerState, Reply, Request, RootConfig};
use crate::wire;

/// How large a log file becomes, and how many there are.
const LOG_LIMIT: u64 = 10 << 20;
const LOG_FILES: u32 = 5;
/// The signals that images name.
const SIGNALS: [(&str, i32); 8] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("USR2", 12), ("TERM", 15), ("WINCH", 28)];

/// A container to start.
pub(in crate::runtime) struct Start {
    pub(in crate::runtime) index: usize,
    pub(in crate::runtime) spec: Container,
    pub(in crate::runtime) attempt: i32,
    pub(in crate::runtime) environment: Vec<(String, String)>,
}

impl PodHandle {
    /// Takes note of a container that exists already.
    pub(in crate::runtime) fn recovered(self: &Arc<Self>, inner: &Arc<Inner>, state: &ContainerState) -> Recovered {
        let spec = self.spec();
        let status = self.pod.lock().status.clone().unwrap_or_default();
        let main = status.init_container_statuses.iter().chain(&status.container_statuses);
        let all = main.chain(&status.ephemeral_container_statuses).flatten();
        let status = all.into_iter().find(|status| status.name == state.name).cloned();
        let same = status.as_ref().filter(|status| status.restart_count == state.attempt);
        let startup_done = same.is_some_and(|status| status.started == Some(true));
        if let Some((index, container)) = find(&spec, &state.name) {
            let probes = match state.exit {
                None => self.probe(inner, &container, index, state.attempt, startup_done),
                Some(_) => Probes::default(),
            };
            let known = Known {
                index,
                attempt: state.attempt,
                stop_signal: self.saved_signal(&state.name, state.attempt),
                started: state.started,
                ended: watch::channel(state.exit.is_some()).0,
                probes,
                sample: None,
            };
            self.containers.lock().insert(state.name.clone(), known);
        }
        let started = |state: &ContainerState| Started { id: state.id.clone(), at: timestamp(state.started) };
        let exit = |state: &ContainerState| {
            let exit = state.exit.as_ref()?;
            Some(exit_of(exit, self.message(&state.name, state.attempt, exit.code)))
        };
        Recovered {
            name: state.name.clone(),
            attempt: state.attempt,
            started: started(state),
            image: state.image.clone(),
            last: state.last.as_ref().and_then(|last| Some((started(last), exit(last)?))),
            startup_done,
            ready: same.is_some_and(|status| status.ready),
            exit: exit(state),
        }
    }

    pub(super) fn saved_signal(&self, name: &str, attempt: i32) -> i32 {
        let text = fs::read_to_string(self.dir.container(name, attempt).join("stop-signal"));
        text.ok().and_then(|text| text.parse().ok()).unwrap_or(15)
    }

    /// Starts a container, runs its hook, and begins to probe it.
    pub(in crate::runtime) async fn start(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        pod: &PodSandbox,
        start: Start,
    ) -> Result<Started, RuntimeError> {
        let client = self.parent(inner).await?;
        let image = start.spec.image.clone().unwrap_or_default();
        let name: Name = image.parse().map_err(create)?;
        let (this, inner_, pod_) = (Arc::clone(self), Arc::clone(inner), pod.clone());
        let (index, attempt, container) = (start.index, start.attempt, start.spec.clone());
        let planned = tokio::task::spawn_blocking(move || {
            let store = &inner_.options.store;
            // The image is not collected before the pod's parent holds its files.
            let adding = store.adding().map_err(create)?;
            let stored = store.find(&name).map_err(create)?;
            let stored = stored.ok_or_else(|| create(format!("there is no image {name} any more")))?;
            this.plan(&inner_, &pod_, &start, &name, &stored).map(|planned| (adding, planned))
        });
        let (adding, (config, signal)) = planned.await.map_err(create)??;
        let known = Known {
            index,
            attempt,
            stop_signal: signal,
            started: 0,
            ended: watch::channel(false).0,
            probes: Probes::default(),
            sample: None,
        };
        // Known before it runs: it may end at once.
        self.containers.lock().insert(container.name.clone(), known);
        let id = config.id.clone();
        let file = wire::content(&config).map_err(create)?;
        let (reply, _) = client.ask(Request::Start, &[file.as_fd()]).await?;
        drop(adding);
        let Reply::Started { at } = reply else { return Err(create("the pod's parent gave no answer")) };
        self.post_start(inner, &client, &container, attempt).await?;
        let probes = self.probe(inner, &container, index, attempt, false);
        if let Some(known) = self.containers.lock().get_mut(&container.name).filter(|known| known.attempt == attempt) {
            known.probes = probes;
            known.started = at;
        }
        Ok(Started { id, at: timestamp(at) })
    }

    /// Decides what a container is, and prepares its files.
    pub(super) fn plan(
        &self,
        inner: &Inner,
        pod: &PodSandbox,
        start: &Start,
        name: &Name,
        stored: &Stored,
    ) -> Result<(ContainerConfig, i32), RuntimeError> {
        let store = &inner.options.store;
        let manifest = store.manifest(&stored.digest).map_err(create)?;
        let image = store.config(&manifest).map_err(create)?.config;
        let lower = store.root(&stored.digest, unpack::Limits::default()).map_err(create)?;
        let spec = self.spec();
        let container = &start.spec;
        let hostname = plan::hostname(&pod.pod);
        let mut shared = inner.options.environment.clone();
        shared.extend(inner.options.network.environment(&pod.pod));
        let mut process = plan::process(&spec, container, &image, &start.environment, &shared, &hostname)
            .map_err(RuntimeError::Config)?;
        let volumes = self.volumes.lock().clone().unwrap_or_default();
        let mounts = plan::mounts(&self.dir, &spec, &volumes, container, start.attempt, &process.environment)
            .map_err(RuntimeError::Config)?;
        let dir = self.dir.container(&container.name, start.attempt);
        // What the attempt before the last one left.
        let _ = fs::remove_dir_all(self.dir.container(&container.name, start.attempt - 2));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(create)?;
        let message = self.dir.termination_log(&container.name, start.attempt);
        fs::write(&message, "").map_err(create)?;
        let _ = fs::set_permissions(&message, std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let group = format!("{}-{}", container.name, start.attempt);
        let uid = self.uid();
        process.cgroups = inner
            .cgroups
            .create(&uid, &group, plan::limits(container))
            .map_err(|error| create(format!("cannot limit what the container uses: {error}")))?;
        let stop = &image.stop_signal;
        let stop = stop.strip_prefix("SIG").unwrap_or(stop);
        let signal = SIGNALS.iter().find(|(name, _)| *name == stop).map(|(_, number)| *number);
        let signal = signal.or_else(|| stop.parse().ok()).unwrap_or(15);
        let _ = fs::write(dir.join("stop-signal"), signal.to_string());
        let root = RootConfig {
            lower,
            upper: dir.join("upper"),
            work: dir.join("work"),
            target: self.dir.0.join("root"),
            read_only: container.security_context.as_ref().and_then(|own| own.read_only_root_filesystem) == Some(true),
            privileged: plan::is_privileged(container),
            mounts,
            shm: self.dir.shm(),
        };
        let config = ContainerConfig {
            name: container.name.clone(),
            attempt: start.attempt,
            id: id(&uid, &container.name, start.attempt),
            image: image_id(name, &stored.digest),
            isolation: inner.options.isolation,
            root,
            process,
            stdin: container.stdin == Some(true),
            stdin_once: container.stdin_once == Some(true),
            beside: plan::target(&spec, &container.name),
            log: self.dir.log(&container.name, start.attempt),
            log_limit: LOG_LIMIT,
            log_files: LOG_FILES,
            oom: inner.cgroups.oom_file(&uid, &group),
        };
        Ok((config, signal))
    }

    /// Begins to probe a container.
    pub(super) fn probe(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        container: &Container,
        index: usize,
        attempt: i32,
        startup_done: bool,
    ) -> Probes {
        let target: Arc<dyn Target> = Arc::new(Probed { pod: Arc::downgrade(self), container: container.name.clone() });
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        probes::start(container, startup_done, &target, move |event| {
            let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
            let event = this.event(index, attempt, event);
            // The agent takes them as fast as they come.
            let _ = inner.events.try_send(event);
        })
    }

    /// Stops a container: its hook, a signal, and after `grace` another one.
    pub(in crate::runtime) async fn stop(
        self: &Arc<Self>,
        inner: &Arc<Inner>,
        spec: &Container,
        attempt: i32,
        grace: Duration,
    ) {
        let deadline = tokio::time::Instant::now() + grace;
        let (mut ended, signal) = {
            let containers = self.containers.lock();
            let Some(known) = containers.get(&spec.name).filter(|known| known.attempt == attempt) else { return };
            (known.ended.subscribe(), known.stop_signal)
        };
        let Ok(client) = self.parent(inner).await else { return };
        if !grace.is_zero() {
            let hook = self.pre_stop(inner, spec, attempt);
            let _ = tokio::time::timeout_at(deadline, hook).await;
            self.signal(&client, &spec.name, attempt, signal).await;
            if tokio::time::timeout_at(deadline, ended.wait_for(|ended| *ended)).await.is_ok() {
                return;
            }
        }
        self.signal(&client, &spec.name, attempt, 9).await;
        let (cgroups, uid, group) = (inner.cgroups.clone(), self.uid(), format!("{}-{attempt}", spec.name));
        let _ = tokio::task::spawn_blocking(move || cgroups.kill(&uid, &group)).await;
    }

    pub(in crate::runtime) async fn signal(&self, client: &Client, container: &str, attempt: i32, signal: i32) {
        let request = Request::Signal { container: container.to_owned(), attempt, signal };
        // It may have ended meanwhile.
        let _ = client.ask(request, &[]).await;
    }
}

/// The id of a container: the same whenever it is computed.
fn id(uid: &str, name: &str, attempt: i32) -> String {
    let digest = windlass_image::digest::of(format!("{uid}/{name}/{attempt}").as_bytes());
    digest.trim_start_matches("sha256:").to_owned()
}
