//! Runs the pods of the agent's nodes.
//!
//! A pod is worked on when it changes, when the runtime has said something about it, and when its state machine asked for
//! it. Its status is written once at the end of that, and not before the watch has shown the write before.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use tokio::time::Instant;
use windlass::{Context, ObjectKey, Outcome, Reconcile};

use super::mounts::Made;
use super::{NodeEntry, PodEntry, Shared};
use crate::api::{Merge, is_conflict, is_gone, path};
use crate::containers::container;
use crate::network::PodRange;
use crate::pod::admission::{Refusal, admit};
use crate::pod::backoff::Backoff;
use crate::pod::life::End;
use crate::pod::patch::status_patch;
use crate::pod::status::{Place, rejected, status};
use crate::pod::{self, Action, Notice, Now, Observation, PodLife};
use crate::resources::{Resources, requests};
use crate::runtime::{ContainerRef, Operation, PodSandbox, Role, Runtime, RuntimeError};
use crate::volumes::{Found, Mounted, Surroundings, container_references, environment};

/// How long a pod that is being deleted may take to be gone before its status says that the node has seen the deletion.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_secs(1);

/// A pod that the agent runs.
pub(super) struct Held {
    pub(super) life: PodLife,
    pub(super) node: Arc<NodeEntry>,
    ip: Option<IpAddr>,
    /// What is counted on the node for it.
    requested: Option<Box<[(String, i64)]>>,
    /// The version of the pod that has the status that was written last.
    written: u64,
    /// When it is told that the node has seen the deletion, if nothing else is to be told before.
    acknowledge: Option<Instant>,
    /// Volumes that cannot be mounted are tried again later.
    pub(super) mounts: Backoff,
    pub(super) retry_mount: Option<Instant>,
    /// What the containers get; dropped when all have started once.
    pub(super) volumes: Option<Arc<Mounted>>,
    /// What the files of the pod were made of last, if they are kept up to date.
    pub(super) made: Option<Made>,
}

/// The reconciler of pods.
pub(super) struct Pods<R>(pub(super) Arc<Shared<R>>);

impl<R: Runtime> Reconcile<Pod> for Pods<R> {
    async fn reconcile(&self, pod: Arc<Pod>, _: Context) -> windlass::Result {
        let (key, shared) = (ObjectKey::of(&pod), &self.0);
        let Some(spec) = &pod.spec else { return Ok(Outcome::Done) };
        let node = spec.node_name.as_deref().and_then(|name| shared.node(name));
        let is_left = shared.leaves.as_ref().is_some_and(|leaves| leaves(&pod));
        let Some(node) = node.filter(|_| !is_left) else {
            shared.forget(&key);
            return Ok(Outcome::Done);
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let (held, inbox) = shared.take(&key, uid);
        let held = held.and_then(|mut held| {
            let is_over = pod::is_finished(&pod) && held.life.is_removed();
            // Its node is another one of the same name, or was switched off meanwhile.
            let is_moved = !Arc::ptr_eq(&held.node, &node);
            if is_over || is_moved {
                held.release();
                return None;
            }
            Some(held)
        });
        let mut held = match held {
            Some(held) => held,
            None => match shared.begin(&pod, spec, &node).await? {
                Some(held) => held,
                None => return shared.conclude(&key, &pod, &node).await,
            },
        };
        let outcome = shared.work(&key, &pod, spec, &mut held, inbox).await;
        shared.put_back(&key, uid, held);
        outcome
    }

    async fn gone(&self, key: ObjectKey, _: Context) -> windlass::Result {
        self.0.forget(&key);
        self.0.discard(&key, None);
        Ok(Outcome::Done)
    }
}

impl<R: Runtime> Shared<R> {
    /// Takes a pod to work on it, with what has happened to it. Another pod of the same name is forgotten.
    fn take(&self, key: &ObjectKey, uid: &str) -> (Option<Box<Held>>, Vec<Observation>) {
        self.discard(key, Some(uid));
        {
            let mut pods = self.pods.lock();
            if let Some(entry) = pods.get_mut(key)
                && &*entry.uid == uid
            {
                return (entry.held.take(), std::mem::take(&mut entry.inbox));
            }
        }
        self.forget(key);
        (None, Vec::new())
    }

    fn put_back(&self, key: &ObjectKey, uid: &str, held: Box<Held>) {
        let mut pods = self.pods.lock();
        match pods.get_mut(key) {
            Some(entry) if &*entry.uid == uid => entry.held = Some(held),
            // It ended meanwhile.
            _ => {}
        }
    }

    /// Forgets a pod, and frees what it used.
    pub(super) fn forget(&self, key: &ObjectKey) {
        let entry = self.pods.lock().remove(key);
        let uid = entry.as_ref().map(|entry| Arc::clone(&entry.uid));
        if entry.is_some() {
            self.unfollow(key);
        }
        if let Some(mut held) = entry.and_then(|entry| entry.held) {
            held.release();
            if held.retry_mount.is_some() {
                self.waiting.lock().retain(|_, pods| {
                    pods.retain(|pod| pod != key);
                    !pods.is_empty()
                });
            }
            // What still runs of it has no pod any more.
            if !held.life.is_removed() {
                let pod = named(key, uid.as_deref());
                let _ = self.settle(key, &pod, self.runtime.remove(&held.sandbox(&Arc::new(pod.clone()))), |_| {
                    Observation::Removed
                });
            }
        }
    }

    /// Removes what the runtime keeps of a pod that has ended, unless it is the one with this uid.
    fn discard(&self, key: &ObjectKey, kept: Option<&str>) {
        let uid = {
            let mut finished = self.finished.lock();
            let is_other = finished.get(key).is_some_and(|uid| kept != Some(&**uid));
            if is_other { finished.remove(key) } else { None }
        };
        let Some(uid) = uid else { return };
        let pod = named(key, Some(&uid));
        let sandbox = PodSandbox { node: "".into(), pod: Arc::new(pod.clone()), ip: None };
        let _ = self.settle(key, &pod, self.runtime.remove(&sandbox), |_| Observation::Removed);
    }

    /// Takes note of a pod that has ended, whose output can still be read.
    fn keep(&self, pod: &Pod) {
        if self.runtime.runs_containers() {
            self.finished.lock().insert(ObjectKey::of(pod), sandbox_uid(pod).into());
        }
    }

    /// Begins to run a pod; `None` if there is nothing to run.
    async fn begin(
        &self,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        node: &Arc<NodeEntry>,
    ) -> Result<Option<Box<Held>>, kube::Error> {
        if pod::is_finished(pod) {
            self.keep(pod);
            return Ok(None);
        }
        let is_new = pod.status.as_ref().is_none_or(|status| status.start_time.is_none());
        let requested = requests(spec);
        let refusal = node.reserve(spec, &requested, is_new && pod.metadata.deletion_timestamp.is_none());
        if let Some(refusal) = refusal {
            self.reject(pod, node, &refusal).await?;
            return Ok(None);
        }
        let mut held = Box::new(Held {
            life: PodLife::new(pod, spec, Now::read()),
            node: Arc::clone(node),
            ip: node.address_for(pod, spec),
            requested: Some(requested.into_iter().collect()),
            written: 0,
            acknowledge: None,
            mounts: Backoff::default(),
            retry_mount: None,
            volumes: None,
            made: None,
        });
        if !is_new {
            let sandbox = held.sandbox(pod);
            match self.runtime.recover(&sandbox).finish().await {
                Ok(found) => held.life.recover(spec, found, Now::read()),
                Err(error) => tracing::warn!(pod = %ObjectKey::of(pod), %error, "containers cannot be recovered"),
            }
        }
        let uid = Arc::from(sandbox_uid(pod));
        self.pods.lock().insert(ObjectKey::of(pod), PodEntry { uid, inbox: Vec::new(), held: None });
        Ok(Some(held))
    }

    /// Tells a pod that its node does not take it.
    async fn reject(&self, pod: &Pod, node: &NodeEntry, refusal: &Refusal) -> Result<(), kube::Error> {
        self.reporter.report(pod, Notice::warning(None, &refusal.reason, refusal.message.clone()));
        let new = rejected(pod, &refusal.reason, &refusal.message);
        self.write_status(pod, node, &new).await.map(drop)
    }

    /// Ends a pod that does not run here: if it is being deleted, it is gone now.
    async fn conclude(&self, key: &ObjectKey, pod: &Pod, node: &NodeEntry) -> windlass::Result {
        self.forget(key);
        if pod.metadata.deletion_timestamp.is_some() {
            self.delete(pod, node).await?;
        }
        Ok(Outcome::Done)
    }

    /// Deletes a pod of which nothing is left on its node.
    async fn delete(&self, pod: &Pod, node: &NodeEntry) -> Result<(), kube::Error> {
        // It was deleted for good before, and waits for its finalizers.
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return Ok(());
        }
        let Some(path) = pod_path(pod) else { return Ok(()) };
        match self.api.delete_now(&node.name, &path, sandbox_uid(pod)).await {
            Err(error) if is_gone(&error) || is_conflict(&error) => Ok(()),
            other => other,
        }
    }

    /// Writes what has changed of a pod's status, and returns the pod's version.
    async fn write_status(&self, pod: &Pod, node: &NodeEntry, new: &PodStatus) -> Result<u64, kube::Error> {
        let old = pod.status.clone().unwrap_or_default();
        let Some(patch) = status_patch(sandbox_uid(pod), &old, new) else { return Ok(0) };
        let Some(path) = pod_path(pod) else { return Ok(0) };
        match self.api.patch(Some(&node.name), &format!("{path}/status"), Merge::Strategic, &patch).await {
            // Gone, or another of its name: the watch shows it.
            Err(error) if is_gone(&error) || is_conflict(&error) => Ok(0),
            other => other,
        }
    }

    /// Brings a pod as far as it gets, and writes what became of it.
    async fn work(
        &self,
        key: &ObjectKey,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        held: &mut Held,
        inbox: Vec<Observation>,
    ) -> windlass::Result {
        let mut notices = Vec::new();
        let now = Now::read();
        let mut sources_changed = false;
        held.life.extend(spec);
        for seen in inbox {
            if matches!(seen, Observation::Sources) {
                held.retry_mount = None;
                sources_changed = true;
            }
            held.life.observe(spec, seen, now, &mut notices);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0).max(0).unsigned_abs();
            held.life.delete(Duration::from_secs(grace));
        } else if pod::is_finished(pod) {
            held.life.finish(spec);
        }
        let mounted = match self.remount(key, pod, spec, held, sources_changed).await {
            Ok(seen) => {
                if let Some(seen) = seen {
                    held.life.observe(spec, seen, now, &mut notices);
                }
                self.run(key, pod, spec, held, &mut notices).await
            }
            Err(error) => Err(error),
        };
        for notice in notices {
            self.reporter.report(pod, notice);
        }
        mounted?;
        let now = Now::read();
        if held.life.is_removed() {
            held.release();
        }
        let is_deleted = held.life.end == Some(End::Deleted) && held.life.is_removed();
        let has_finalizers = pod.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        // A pod that is about to be gone needs no status, unless a finalizer holds it.
        if !is_deleted || has_finalizers {
            let version = pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
            if version.is_some_and(|version: u64| version < held.written) {
                // The watch is behind the last write, and wakes this pod when it is not.
                return Ok(Outcome::Done);
            }
            let scheme = self.runtime.version();
            let place = Place {
                host_ip: Some(held.node.address),
                pod_ip: held.ip,
                runtime: scheme.split_once("://").map_or("", |(scheme, _)| scheme),
            };
            let new = status(pod, spec, &held.life, place, now);
            if !held.postpones(pod, &new, now.instant) {
                held.written = self.write_status(pod, &held.node, &new).await?.max(held.written);
            }
        }
        if is_deleted {
            self.delete(pod, &held.node).await?;
            self.pods.lock().remove(key);
            self.unfollow(key);
            return Ok(Outcome::Done);
        }
        let wake = [held.life.wake(), held.retry_mount, held.acknowledge].into_iter().flatten().min();
        Ok(match wake {
            Some(at) => Outcome::RequeueAfter(at.saturating_duration_since(now.instant).max(Duration::from_millis(1))),
            None => Outcome::Done,
        })
    }

    /// Does what the state machine says until it has nothing more to say.
    async fn run(
        &self,
        key: &ObjectKey,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        held: &mut Held,
        notices: &mut Vec<Notice>,
    ) -> Result<(), kube::Error> {
        loop {
            let now = Now::read();
            if held.life.needs_volumes(now) {
                let waits = held.retry_mount.is_some_and(|at| at > now.instant);
                if waits || !self.mount(key, pod, spec, held, now, notices).await? {
                    return Ok(());
                }
            }
            let actions = held.life.decide(pod, spec, now, notices);
            if actions.is_empty() {
                return Ok(());
            }
            for action in actions {
                self.carry_out(key, pod, spec, held, action, notices).await?;
            }
        }
    }

    /// Has the runtime do something, and observes what came of it if that is known at once.
    async fn carry_out(
        &self,
        key: &ObjectKey,
        pod: &Arc<Pod>,
        spec: &PodSpec,
        held: &mut Held,
        action: Action,
        notices: &mut Vec<Notice>,
    ) -> Result<(), kube::Error> {
        let sandbox = held.sandbox(pod);
        let now = Now::read();
        let seen = match action {
            Action::Create => {
                let volumes = held.volumes.take().unwrap_or_default();
                if held.ip.is_none() {
                    held.ip = held.node.address_for(pod, spec);
                }
                let sandbox = held.sandbox(pod);
                let operation = match held.ip {
                    Some(_) => self.runtime.create(&sandbox, &volumes),
                    None => Operation::Done(Err(RuntimeError::Sandbox(
                        "no address is free in the node's pod range".to_owned(),
                    ))),
                };
                self.settle(key, pod, operation, Observation::Created)
            }
            Action::Pull(index) => {
                let secrets = self.pull_secrets(key, spec, held, notices).await?;
                let Some((role, container)) = container(spec, index) else { return Ok(()) };
                let mut container = held.container(&container, role, index);
                container.pull_secrets = &secrets;
                let operation = self.runtime.pull(&sandbox, &container);
                if matches!(operation, Operation::Pending(_)) {
                    let image = container.spec.image.as_deref().unwrap_or_default();
                    let message = format!("Pulling image \"{image}\"");
                    notices.push(Notice {
                        container: Some(index),
                        warning: false,
                        reason: "Pulling".to_owned(),
                        message,
                    });
                }
                self.settle(key, pod, operation, move |pulled| Observation::Pulled(index, pulled))
            }
            Action::Start(index) => match self.environment(key, pod, spec, held, index).await? {
                Ok(environment) => {
                    let Some((role, container)) = container(spec, index) else { return Ok(()) };
                    let mut container = held.container(&container, role, index);
                    container.environment = &environment;
                    let operation = self.runtime.start(&sandbox, &container);
                    self.settle(key, pod, operation, move |started| Observation::Started(index, started))
                }
                Err(message) => Some(Observation::Misconfigured(index, message)),
            },
            Action::Stop(index, grace) => {
                if let Some((role, container)) = container(spec, index) {
                    let mut container = held.container(&container, role, index);
                    container.attempt = held.life.containers[index].attempt;
                    self.runtime.stop(&sandbox, &container, grace);
                }
                None
            }
            Action::Remove => {
                let operation = if held.life.end == Some(End::Deleted) {
                    self.runtime.remove(&sandbox)
                } else {
                    self.keep(pod);
                    self.runtime.finish(&sandbox)
                };
                self.settle(key, pod, operation, |_| Observation::Removed)
            }
        };
        if let Some(seen) = seen {
            held.life.observe(spec, seen, now, notices);
        }
        Ok(())
    }

    /// The environment of a container, from what it refers to at this moment.
    async fn environment(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        spec: &PodSpec,
        held: &Held,
        index: usize,
    ) -> Result<Result<Vec<(String, String)>, String>, kube::Error> {
        let Some((_, container)) = container(spec, index) else { return Ok(Ok(Vec::new())) };
        let references = container_references(&container);
        let found = if references.is_empty() {
            Found::default()
        } else {
            let namespace = key.namespace().unwrap_or_default();
            self.sources.find(&self.api, &held.node.name, namespace, &references).await?
        };
        Ok(environment(pod, spec, &container, &found, &held.surroundings()))
    }

    /// What came of an operation; an operation under way is waited for in a task, and wakes the pod.
    pub(super) fn settle<T: Send + 'static>(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        operation: Operation<T>,
        seen: impl FnOnce(Result<T, RuntimeError>) -> Observation + Send + 'static,
    ) -> Option<Observation> {
        match operation {
            Operation::Done(result) => Some(seen(result)),
            Operation::Pending(future) => {
                let (key, uid) = (key.clone(), sandbox_uid(pod).to_owned());
                let shared = self.this.upgrade()?;
                let shutdown = self.shutdown.clone();
                self.tasks.spawn(async move {
                    if let Some(result) = shutdown.run_until_cancelled(future).await {
                        shared.observe(key, &uid, seen(result));
                    }
                });
                None
            }
        }
    }
}

/// Whether two statuses differ in the generation that they are about, and in nothing else.
fn is_acknowledgement(old: &PodStatus, new: &PodStatus) -> bool {
    let without_generation = |status: &PodStatus| {
        let mut status = PodStatus { observed_generation: None, ..status.clone() };
        status.conditions.iter_mut().flatten().for_each(|condition| condition.observed_generation = None);
        status
    };
    old.observed_generation != new.observed_generation
        && status_patch("", &without_generation(old), &without_generation(new)).is_none()
}

/// A pod of which only its name and uid are known.
fn named(key: &ObjectKey, uid: Option<&str>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = key.namespace().map(str::to_owned);
    pod.metadata.name = Some(key.name().to_owned());
    pod.metadata.uid = uid.map(str::to_owned);
    pod
}

fn sandbox_uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn pod_path(pod: &Pod) -> Option<String> {
    path(pod.metadata.namespace.as_deref()?, "pods", pod.metadata.name.as_deref()?)
}

impl Held {
    pub(super) fn sandbox(&self, pod: &Arc<Pod>) -> PodSandbox {
        PodSandbox { node: Arc::clone(&self.node.name), pod: Arc::clone(pod), ip: self.ip }
    }

    /// What the pod's containers are told of where they run.
    pub(super) fn surroundings(&self) -> Surroundings {
        let allocatable = Arc::clone(&self.node.state.lock().allocatable);
        Surroundings { pod_ip: self.ip, host_ip: Some(self.node.address), allocatable }
    }

    /// Whether nothing has to be told about a pod yet: it is being deleted, and all there is to tell is that the node has
    /// seen that. Most pods are gone a moment later.
    fn postpones(&mut self, pod: &Pod, new: &PodStatus, now: Instant) -> bool {
        let is_acknowledgement =
            self.life.end == Some(End::Deleted) && pod.status.as_ref().is_some_and(|old| is_acknowledgement(old, new));
        if !is_acknowledgement {
            self.acknowledge = None;
            return false;
        }
        let at = *self.acknowledge.get_or_insert(now + ACKNOWLEDGED_AFTER);
        if at <= now {
            self.acknowledge = None;
        }
        at > now
    }

    /// A container that is to be started.
    fn container<'a>(&self, container: &'a Container, role: Role, index: usize) -> ContainerRef<'a> {
        ContainerRef {
            index,
            spec: container,
            role,
            attempt: self.life.containers[index].next_attempt(),
            environment: &[],
            pull_secrets: &[],
        }
    }

    /// Frees what the pod used of its node.
    fn release(&mut self) {
        let Some(requested) = self.requested.take() else { return };
        let mut state = self.node.state.lock();
        for (name, value) in requested {
            if let Some(used) = state.used.get_mut(&name) {
                *used -= value;
            }
        }
        state.pods -= 1;
        drop(state);
        if let Some(ip) = self.ip {
            self.node.free(ip);
        }
    }
}

impl NodeEntry {
    /// Counts a pod on the node; why it is refused if it is to be checked and does not fit.
    fn reserve(&self, spec: &PodSpec, requested: &Resources, check: bool) -> Option<Refusal> {
        let mut state = self.state.lock();
        if check {
            let state = &*state;
            let admitted = admit(spec, requested, &state.traits, &state.used, &state.allocatable, state.pods);
            if let Err(refusal) = admitted {
                return Some(refusal);
            }
        }
        for (name, value) in requested {
            *state.used.entry(name.clone()).or_default() += value;
        }
        state.pods += 1;
        None
    }

    /// Frees the address of a pod.
    pub(super) fn free(&self, address: IpAddr) {
        if let (IpAddr::V4(ip), Some(range)) = (address, self.state.lock().range.as_mut()) {
            range.mark(ip, false);
        }
    }

    /// The address of a pod: the one that it has, the node's own, or a free one.
    pub(super) fn address_for(&self, pod: &Pod, spec: &PodSpec) -> Option<IpAddr> {
        if spec.host_network == Some(true) {
            return Some(self.address);
        }
        let mut state = self.state.lock();
        let known = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse::<Ipv4Addr>().ok());
        if let Some(known) = known {
            if let Some(range) = &mut state.range {
                range.mark(known, true);
            }
            return Some(known.into());
        }
        state.range.as_mut().and_then(PodRange::take).map(IpAddr::from)
    }
}
