//! A cluster of `windlass up` for one tutorial, and the operator that runs beside it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::Commands;

/// How long anything may take on a machine that is busy.
const STATUS_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that is stopped with a signal; dropping it kills it.
pub(crate) struct Process {
    child: Child,
    what: &'static str,
}

impl Process {
    pub(crate) fn spawn(what: &'static str, command: &mut Command) -> Result<Self> {
        Ok(Self { child: command.spawn().with_context(|| format!("cannot start the {what}"))?, what })
    }

    /// Asks it to stop. It must do so in order.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("a process has a number")?;
        kill_process(pid, Signal::INT)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the {} did not stop in order: {status}", self.what);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster that keeps everything in memory.
pub(crate) struct Cluster {
    process: Process,
    pub kubeconfig: PathBuf,
    client: kube::Client,
}

impl Cluster {
    pub(crate) async fn start(commands: &Commands, project: &Path) -> Result<Self> {
        Self::start_with(commands, project, "").await
    }

    /// The same with more arguments of `windlass up`.
    pub(crate) async fn start_with(commands: &Commands, project: &Path, more: &str) -> Result<Self> {
        let kubeconfig = project.with_extension("kubeconfig");
        let args =
            format!("up --foreground --ephemeral --listen 127.0.0.1:0 --kubeconfig {} {more}", kubeconfig.display());
        let mut command = commands.windlass(project, &args);
        let mut process = Process::spawn("cluster", command.env("RUST_LOG", "warn").stdout(Stdio::piped()))?;
        let stdout = process.child.stdout.take().context("the output is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.starts_with("ready "), "the cluster did not start: {line}");
        let client = windlass::config::Loader::default().kubeconfig(&kubeconfig).client().await?;
        Ok(Self { process, kubeconfig, client })
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn wait_for(
        &self,
        (api_version, kind): (&str, &str),
        (namespace, name): (Option<&str>, &str),
        what: &str,
        condition: impl Fn(&DynamicObject) -> bool,
    ) -> Result<()> {
        let api = self.api(api_version, kind, namespace.is_some());
        let seen = async {
            let fields = format!("metadata.name={name}");
            let list = api.list(&ListParams::default().fields(&fields)).await?;
            if list.items.iter().any(&condition) {
                return Ok(());
            }
            let revision = list.metadata.resource_version.unwrap_or_default();
            let mut events = Box::pin(api.watch(&WatchParams::default().fields(&fields), &revision).await?);
            while let Some(event) = events.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event?
                    && condition(&object)
                {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        match tokio::time::timeout(STATUS_TIMEOUT, seen).await {
            Ok(seen) => seen.with_context(|| format!("{kind} {name}: {what}")),
            Err(_) => bail!("{kind} {name} is not in time: {what}"),
        }
    }

    /// Objects of a kind, in the namespace `default` if they are in one.
    pub(crate) fn api(&self, api_version: &str, kind: &str, namespaced: bool) -> Api<DynamicObject> {
        let resource = resource(api_version, kind);
        if namespaced {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// Where an object that is in no namespace belongs.
    pub(crate) fn api_of(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let text = |field: &str| object[field].as_str().with_context(|| format!("an object without {field}"));
        Ok(self.api(text("apiVersion")?, text("kind")?, false))
    }

    /// All objects of a kind.
    pub(crate) async fn list(&self, api_version: &str, kind: &str) -> Result<Vec<Value>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(api_version, kind));
        let list = api.list(&ListParams::default()).await?;
        list.items.iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
