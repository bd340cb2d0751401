//! Containers that end, and parents.

use std::fs;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use windlass_node::runtime::{ContainerEvent, RuntimeEvent};

use super::{MESSAGE, PodHandle, find};
use crate::runtime::{Inner, exit_of, logs};
use crate::spec::ContainerState;

impl PodHandle {
    /// Passes on what the parent says about containers that ended.
    pub(super) fn relay(self: &Arc<Self>, inner: &Arc<Inner>, mut exits: mpsc::Receiver<ContainerState>) {
        let (this, inner) = (Arc::downgrade(self), Arc::downgrade(inner));
        tokio::spawn(async move {
            while let Some(state) = exits.recv().await {
                let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
                this.exited(&inner, &state).await;
            }
            // The parent is gone, and everything of the pod with it.
            let (Some(this), Some(inner)) = (this.upgrade(), inner.upgrade()) else { return };
            if inner.pods.lock().get(&this.uid()).is_some_and(|known| Arc::ptr_eq(known, &this)) {
                this.lost(&inner).await;
            }
        });
    }

    pub(super) async fn lost(&self, inner: &Inner) {
        let (cgroups, uid) = (inner.cgroups.clone(), self.uid());
        let _ = tokio::task::spawn_blocking(move || cgroups.remove(&uid)).await;
        let running: Vec<(String, i32)> = {
            let containers = self.containers.lock();
            let running = containers.iter().filter(|(_, known)| !*known.ended.borrow());
            running.map(|(name, known)| (name.clone(), known.attempt)).collect()
        };
        for (name, attempt) in running {
            let exit = crate::spec::ExitState { code: 137, oom: false, at: crate::spec::now() };
            let (id, image) = (String::new(), String::new());
            let state = ContainerState { name, attempt, id, image, started: 0, exit: Some(exit), last: None };
            self.exited(inner, &state).await;
        }
    }

    pub(super) async fn exited(&self, inner: &Inner, state: &ContainerState) {
        let Some(exit) = &state.exit else { return };
        let index = {
            let mut containers = self.containers.lock();
            let Some(known) = containers.get_mut(&state.name) else {
                self.early.lock().push(state.clone());
                return;
            };
            if known.attempt != state.attempt {
                return;
            }
            drop(std::mem::take(&mut known.probes));
            known.ended.send_replace(true);
            known.index
        };
        let message = self.message(&state.name, state.attempt, exit.code);
        self.tell(inner, index, state.attempt, ContainerEvent::Exited(exit_of(exit, message))).await;
    }

    /// Passes on what ended before its container was known.
    pub(in crate::runtime) async fn catch_up(&self, inner: &Inner) {
        let early = std::mem::take(&mut *self.early.lock());
        for state in early {
            if self.containers.lock().contains_key(&state.name) {
                self.exited(inner, &state).await;
            }
        }
    }

    pub(super) async fn tell(&self, inner: &Inner, container: usize, attempt: i32, event: ContainerEvent) {
        let event = self.event(container, attempt, event);
        let _ = inner.events.send(event).await;
    }

    pub(in crate::runtime) fn event(&self, container: usize, attempt: i32, event: ContainerEvent) -> RuntimeEvent {
        RuntimeEvent {
            namespace: self.text(|pod| pod.metadata.namespace.clone()).into(),
            name: self.text(|pod| pod.metadata.name.clone()).into(),
            uid: self.uid().into(),
            container,
            attempt,
            event,
        }
    }

    /// What a container said when it ended, or the end of its log if it wants that.
    pub(super) fn message(&self, name: &str, attempt: i32, code: i32) -> Option<String> {
        let file = fs::File::open(self.dir.termination_log(name, attempt)).ok();
        let mut bytes = Vec::new();
        if let Some(file) = file {
            let _ = io::Read::read_to_end(&mut io::Read::take(file, MESSAGE), &mut bytes);
        }
        if !bytes.is_empty() {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        let spec = self.spec();
        let (_, container) = find(&spec, name)?;
        let from_log = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        let end = (from_log && code != 0).then(|| logs::end(&self.dir.log(name, attempt)));
        end.filter(|text| !text.is_empty())
    }
}
