//! The cluster that a command works on: the current context, another one, or a cluster of `windlass up`.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::rollout;
use crate::args::Target as Args;
use crate::home::Home;
use crate::{output, up};

/// How long a cluster may take to answer before something is built for it.
const ANSWER: Duration = Duration::from_secs(30);

/// A cluster, and a client for it.
pub(crate) struct Target {
    pub context: String,
    /// Where its API server is.
    pub server: String,
    /// The namespace of objects that name none.
    pub namespace: String,
    pub client: kube::Client,
    /// Nothing but the chosen context is used of it.
    kubeconfig: Kubeconfig,
}

impl Target {
    /// Finds the cluster, and says which one is used: a command must not change another cluster than the user thinks.
    pub(crate) async fn connect(args: &Args) -> Result<Self> {
        let target = Self::find(args).await?;
        output::note(format_args!("context {:?}, {}", target.context, target.server));
        Ok(target)
    }

    /// Starts the cluster of `--embedded`, if it does not run, with pods that run where this machine lets them.
    pub(crate) fn start_with_pods(args: &Args) -> Result<()> {
        args.embedded.as_ref().map_or(Ok(()), |name| start(&Home::of(name)?, up::pods::have_network()))
    }

    /// Fails if there is no such cluster, or if it does not answer.
    pub(crate) fn check(args: &Args) -> Result<()> {
        // Without a runtime that handles signals: they end the build that follows.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let target = Self::find(args).await?;
            let answer = tokio::time::timeout(ANSWER, target.client.apiserver_version()).await;
            let answer = answer.with_context(|| format!("no answer within {} s", ANSWER.as_secs()));
            let answer = answer.and_then(|answer| match answer {
                // A server that refuses to tell its version is there.
                Ok(_) | Err(kube::Error::Api(_)) => Ok(()),
                Err(error) => Err(error.into()),
            });
            answer.with_context(|| format!("{:?} at {} cannot be reached", target.context, target.server))
        })
    }

    /// The same, also if an operator cannot work in the cluster's pods.
    pub(crate) fn check_pods(args: &Args) -> Result<()> {
        Self::check(args)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { rollout::refuse_processes(&Self::find(args).await?.client).await })
    }

    async fn find(args: &Args) -> Result<Self> {
        let mut kubeconfig = match &args.embedded {
            Some(name) => Kubeconfig::read_from(embedded(name)?)?,
            None => read(args.kubeconfig.as_deref())?,
        };
        let current = kubeconfig.current_context.clone().filter(|name| !name.is_empty());
        let Some(context) = args.context.clone().or(current) else {
            bail!("no context is current; name one with --context, or use --embedded. There are: {}", all(&kubeconfig));
        };
        let Some(named) = kubeconfig.contexts.iter().find(|named| named.name == context) else {
            bail!("there is no context {context:?}; there are: {}", all(&kubeconfig));
        };
        let of_context = named.context.clone().with_context(|| format!("the context {context:?} is empty"))?;
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == of_context.cluster);
        let server = cluster.and_then(|named| named.cluster.as_ref()?.server.clone());
        let server = server.with_context(|| format!("the cluster of the context {context:?} has no server"))?;
        kubeconfig.current_context = Some(context.clone());
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
        let config = config.with_context(|| format!("the context {context:?} cannot be used"))?;
        let namespace = config.default_namespace.clone();
        let client = windlass::config::connect(config)?;
        Ok(Self { context, server, namespace, client, kubeconfig })
    }

    /// The host in the address of the API server.
    pub(crate) fn host(&self) -> Option<String> {
        let uri: http::Uri = self.server.parse().ok()?;
        Some(uri.host()?.trim_matches(['[', ']']).to_owned())
    }

    /// The port in the address of the API server.
    pub(crate) fn port(&self) -> u16 {
        let uri: Option<http::Uri> = self.server.parse().ok();
        uri.and_then(|uri| uri.port_u16()).unwrap_or(443)
    }

    /// Whether the API server is reached at an address of this machine alone.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host().is_some_and(|host| is_loopback(&host))
    }

    /// Writes a kubeconfig with this cluster as its current one, in which `change` may replace the credentials.
    pub(crate) fn write_kubeconfig(
        &self,
        path: &Path,
        change: impl FnOnce(&mut serde_json::Value) -> Result<()>,
    ) -> Result<()> {
        let mut config = serde_json::to_value(&self.kubeconfig).context("the kubeconfig cannot be written")?;
        change(&mut config)?;
        crate::private::write(path, &config.to_string())
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The kubeconfig of a cluster of `windlass up`, which is started if it does not run.
fn embedded(name: &str) -> Result<PathBuf> {
    let home = Home::of(name)?;
    start(&home, false)?;
    let run = home.running().with_context(|| format!("cluster {name:?} has stopped again"))?;
    Ok(run.kubeconfig.unwrap_or_else(|| home.kubeconfig()))
}

/// Starts a cluster that does not run, with pods in containers or simulated ones.
fn start(home: &Home, with_pods: bool) -> Result<()> {
    if home.running().is_some() {
        return Ok(());
    }
    let name = &home.name;
    output::note(format_args!("starting cluster {name:?}, which becomes the current context of your kubeconfig"));
    let mut up = Command::new(std::env::current_exe().context("cannot find the windlass program")?);
    up.args(["up", "--name", name]).args(with_pods.then_some("--runtime=container"));
    let started = up.stdin(Stdio::null()).output().context("cannot run windlass up")?;
    if !started.status.success() {
        let _ = std::io::stderr().write_all(&started.stderr);
        bail!("cluster {name:?} did not start");
    }
    Ok(())
}

/// A file, or those of the environment merged, or the one at home.
fn read(file: Option<&Path>) -> Result<Kubeconfig> {
    if let Some(file) = file {
        anyhow::ensure!(file.exists(), absent(&file.display().to_string()));
        return read_file(file);
    }
    let list = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let paths: Vec<PathBuf> = match &list {
        Some(list) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
    };
    // A file that is not there is left out, as kubectl does.
    let mut merged: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| path.exists()) {
        let next = read_file(path)?;
        merged = Some(match merged {
            Some(before) => before.merge(next)?,
            None => next,
        });
    }
    merged.with_context(|| {
        let named: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        absent(&named.join(", "))
    })
}

fn read_file(file: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(file).with_context(|| format!("{} is not a kubeconfig that can be read", file.display()))
}

fn absent(places: &str) -> String {
    format!("there is no kubeconfig at {places}; start a cluster with `windlass up` or --embedded")
}

fn all(kubeconfig: &Kubeconfig) -> String {
    let names: Vec<&str> = kubeconfig.contexts.iter().map(|named| named.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_known() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["192.0.2.1", "example.com", "0.0.0.0", "fd00::1"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
