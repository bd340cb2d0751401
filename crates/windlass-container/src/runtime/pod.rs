//! One pod that runs: its parent, and what is known about its containers.

mod ended;
mod files;
mod launch;
mod remove;
mod start;
mod streams;

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use parking_lot::Mutex;
use tokio::sync::watch;
use windlass_node::probes::Probes;
use windlass_node::runtime::{PodSandbox, RuntimeError};
use windlass_node::volumes::Mounted;

use super::Inner;
use super::client::Client;
use super::usage::Sample;
use crate::spec::{ContainerState, PodDir, Reply, Request};

pub(super) use remove::{destroy, end_parent, retire};
pub(super) use start::Start;
pub(super) use streams::target;

/// How much of a termination message is read.
const MESSAGE: u64 = 4096;

/// See the [module documentation](self).
pub(super) struct PodHandle {
    dir: PodDir,
    pod: Mutex<Arc<Pod>>,
    node: Arc<str>,
    ip: Mutex<Option<IpAddr>>,
    volumes: Mutex<Option<Arc<Mounted>>>,
    /// One at a time starts the parent.
    client: tokio::sync::Mutex<Option<Arc<Client>>>,
    containers: Mutex<HashMap<String, Known>>,
    /// Containers that ended before they were known here, while a pod is recovered.
    early: Mutex<Vec<ContainerState>>,
    tokens: Mutex<Option<tokio::task::AbortHandle>>,
    /// Held while files are updated.
    updating: tokio::sync::Mutex<()>,
}

/// A container that was started here, or found.
pub(super) struct Known {
    index: usize,
    pub(super) attempt: i32,
    stop_signal: i32,
    /// In nanoseconds since 1970; 0 until it runs.
    pub(super) started: i64,
    /// True when it has ended.
    pub(super) ended: watch::Sender<bool>,
    probes: Probes,
    /// What it had used when that was asked for last.
    pub(super) sample: Option<Sample>,
}

impl Known {
    /// Where it is among the containers of the pod.
    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl Drop for PodHandle {
    fn drop(&mut self) {
        if let Some(task) = self.tokens.lock().take() {
            task.abort();
        }
    }
}

fn sandbox(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Sandbox(error.to_string())
}

fn create(error: impl std::fmt::Display) -> RuntimeError {
    RuntimeError::Create(error.to_string())
}

impl PodHandle {
    pub(super) fn new(pod: &PodSandbox, dir: PodDir) -> Self {
        Self {
            dir,
            pod: Mutex::new(Arc::clone(&pod.pod)),
            node: Arc::clone(&pod.node),
            ip: Mutex::new(pod.ip),
            volumes: Mutex::default(),
            client: tokio::sync::Mutex::new(None),
            containers: Mutex::default(),
            early: Mutex::default(),
            tokens: Mutex::default(),
            updating: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn set_volumes(&self, volumes: Arc<Mounted>) {
        *self.volumes.lock() = Some(volumes);
    }

    pub(super) fn update(&self, pod: &PodSandbox) {
        *self.pod.lock() = Arc::clone(&pod.pod);
    }

    /// The containers that were started here, or found.
    pub(super) fn known(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Known>> {
        self.containers.lock()
    }

    fn spec(&self) -> PodSpec {
        self.pod.lock().spec.clone().unwrap_or_default()
    }

    fn text(&self, read: impl Fn(&Pod) -> Option<String>) -> String {
        read(&self.pod.lock()).unwrap_or_default()
    }

    pub(super) fn uid(&self) -> String {
        self.text(|pod| pod.metadata.uid.clone())
    }

    /// The parent, which is started if it does not run.
    pub(super) async fn ensure(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<(), RuntimeError> {
        self.parent(inner).await.map(drop)
    }

    async fn parent(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Arc<Client>, RuntimeError> {
        let mut current = self.client.lock().await;
        if let Some(client) = current.as_ref().filter(|client| !client.is_gone()) {
            return Ok(Arc::clone(client));
        }
        if let Ok((client, exits)) = Client::connect(&self.dir.0) {
            let client = Arc::new(client);
            self.relay(inner, exits);
            *current = Some(Arc::clone(&client));
            return Ok(client);
        }
        let client = self.launch(inner).await?;
        *current = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Connects to a parent that runs already, and asks what runs.
    pub(super) async fn connect(self: &Arc<Self>, inner: &Arc<Inner>) -> Result<Vec<ContainerState>, RuntimeError> {
        let (client, exits) = Client::connect(&self.dir.0).map_err(sandbox)?;
        let (reply, _) = client.ask(Request::State, &[]).await?;
        let Reply::State(found) = reply else { return Err(sandbox("the pod's parent gave no answer")) };
        self.relay(inner, exits);
        *self.client.lock().await = Some(Arc::new(client));
        let tokens = fs::read(self.dir.0.join("tokens.json")).ok();
        if let Some(tokens) = tokens.and_then(|text| serde_json::from_slice(&text).ok()) {
            self.renew(inner, tokens);
        }
        Ok(found)
    }
}

/// A container by its name, and where it is among the pod's.
fn find(spec: &PodSpec, name: &str) -> Option<(usize, Container)> {
    let mut all = windlass_node::runtime::containers(spec).enumerate();
    all.find(|(_, (_, container))| container.name == name)
        .map(|(index, (_, container))| (index, container.into_owned()))
}
