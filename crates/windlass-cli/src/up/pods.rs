//! What runs the pods of a cluster on this machine: `windlass up --runtime`.
//!
//! The directories of pods are in the cluster's own. Pods outlive a crash of the cluster, and are found again by the next one of
//! the name; they end with `windlass down`. Containers have a [network] of their own where that can be made.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use windlass_cluster::Machine;
use windlass_container::network::{LoopbackOnly, PodNetwork};
use windlass_container::{Containers, Isolation, Options};
use windlass_image::Store;
use windlass_node::Runtime;
use windlass_node::tokens::ApiTokens;

use super::network::{self, PodsNetwork};
use crate::args::{PodRuntime, Up};
use crate::home::Home;
use crate::output;

/// The pods of a cluster that really run. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pods {
    node: String,
    dir: PathBuf,
    isolation: Isolation,
    program: PathBuf,
    store: Store,
    network: Option<PodsNetwork>,
    /// Whether the network was made by this process.
    is_new_network: bool,
    /// Why there is no network.
    why_isolated: String,
}

/// The pods that the command line asks for; `None` if they are simulated.
pub(crate) fn of(args: &Up, home: &Home) -> Result<Option<Pods>> {
    if args.runtime == PodRuntime::Simulated {
        return Ok(None);
    }
    ensure!(args.nodes == 1, "--nodes counts simulated nodes; with --runtime the only node is this machine");
    ensure!(!args.kwok, "--kwok is for simulated pods; with --runtime pods run");
    let program = std::env::current_exe().context("cannot find this program")?;
    let isolation = match args.runtime {
        PodRuntime::Simulated => return Ok(None),
        PodRuntime::Process => Isolation::None,
        PodRuntime::Container => match windlass_container::probe(&program) {
            Ok(()) => Isolation::Namespaces,
            Err(why) => bail!("containers cannot run here: {why}; use --runtime process or auto"),
        },
        PodRuntime::Auto => match windlass_container::probe(&program) {
            Ok(()) => Isolation::Namespaces,
            Err(why) => {
                output::note(format_args!("pods are processes of this machine, because containers cannot run: {why}"));
                Isolation::None
            }
        },
    };
    Ok(Some(Pods::new(home, isolation, program)?))
}

/// Whether pods can run here in containers, with a network by which they reach the API server.
pub(crate) fn have_network() -> bool {
    let program = std::env::current_exe();
    rustix::process::geteuid().is_root() && program.is_ok_and(|program| windlass_container::probe(&program).is_ok())
}

/// Where the pods of a cluster have their directories.
fn pods_dir(home: &Home) -> PathBuf {
    home.dir.join("pods")
}

/// Ends what is left of pods of a cluster that has stopped.
pub(crate) fn clean_up(home: &Home) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let pods = Pods::new(home, Isolation::Namespaces, program)?;
    if !pods.dir.is_dir() {
        network::remove(&pods.network_name());
        return Ok(());
    }
    for isolation in [Isolation::Namespaces, Isolation::None] {
        Pods { isolation, ..pods.clone() }.end();
    }
    Ok(())
}

impl Pods {
    fn new(home: &Home, isolation: Isolation, program: PathBuf) -> Result<Self> {
        Ok(Self {
            node: home.name.clone(),
            dir: pods_dir(home),
            isolation,
            program,
            store: Store::of_user()?,
            network: None,
            is_new_network: false,
            why_isolated: String::new(),
        })
    }

    /// Gives the pods a network. Without one they still run, and reach themselves only; only addresses that the user asks for
    /// must be there.
    pub(crate) async fn start_network(&mut self, args: &Up) -> Result<()> {
        if self.isolation == Isolation::None {
            return Ok(());
        }
        let name = self.network_name();
        self.is_new_network = !network::exists(&name);
        match network::start(args, &name).await {
            Ok(network) => self.network = Some(network),
            Err(error) if args.ingress.is_some() || args.ingress_tls.is_some() => return Err(error),
            Err(error) => {
                output::note(format_args!("pods reach nothing but themselves: {error:#}"));
                self.why_isolated = format!("{error:#}");
            }
        }
        Ok(())
    }

    /// Tells pods where the API server is.
    pub(crate) fn set_api_server(&self, address: Option<SocketAddr>) {
        if let (Some(network), Some(address)) = (&self.network, address) {
            network.set_api_server(address);
        }
    }

    /// Where Ingresses are served.
    pub(crate) fn ingress(&self) -> Option<String> {
        self.network.as_ref()?.ingress().map(|address| format!("http://{address}"))
    }

    /// What tells the network of a cluster from those of others on this machine.
    fn network_name(&self) -> String {
        let hash = group_name(&self.dir);
        format!("{}-{}", self.node, hash.get(..8).unwrap_or(&hash))
    }

    fn runtime(&self, tokens: Arc<dyn windlass_container::Tokens>) -> Result<Containers> {
        let network: Arc<dyn PodNetwork> = match &self.network {
            Some(network) => Arc::new(network.clone()),
            None => Arc::new(LoopbackOnly { why: self.why_isolated.clone() }),
        };
        let options = Options {
            dir: self.dir.clone(),
            name: group_name(&self.dir),
            program: self.program.clone(),
            store: self.store.clone(),
            network,
            tokens,
            isolation: self.isolation,
            environment: Vec::new(),
        };
        Containers::new(options).with_context(|| format!("cannot create {}", self.dir.display()))
    }

    /// The node that they run on.
    pub(crate) fn machine(&self) -> Machine {
        let pods = self.clone();
        let machine = Machine::new(
            self.node.clone(),
            Arc::new(move |client| {
                let made = pods.runtime(Arc::new(ApiTokens::new(client)));
                // The directory was there a moment ago.
                let runtime: Arc<dyn Runtime> = match made {
                    Ok(runtime) => Arc::new(runtime),
                    Err(error) => {
                        tracing::error!(%error, "pods cannot run, and are simulated");
                        Arc::new(windlass_node::Simulation::new())
                    }
                };
                runtime
            }),
        )
        .volumes(self.dir.with_file_name("volumes"));
        match &self.network {
            Some(network) => machine.network(Arc::new(network.clone())),
            None => machine,
        }
    }

    /// Ends what is left of pods that the cluster does not have any more, as after a crash.
    pub(crate) async fn forget_others(&self, client: kube::Client) -> Result<()> {
        if !self.dir.is_dir() {
            return Ok(());
        }
        let runtime = self.runtime(Arc::new(NoTokens))?;
        // What there is comes first: pods that are created meanwhile are not among it.
        let mut gone: HashSet<String> = runtime.found().into_iter().collect();
        gone.extend(self.network.iter().flat_map(PodsNetwork::pods));
        let pods: kube::Api<Pod> = kube::Api::all(client);
        let known: HashSet<String> = pods
            .list(&kube::api::ListParams::default())
            .await?
            .into_iter()
            .filter_map(|pod| pod.metadata.uid)
            .collect();
        gone.retain(|uid| !known.contains(uid));
        runtime.clean(&gone);
        if let Some(network) = &self.network {
            network.remove(&gone);
        }
        Ok(())
    }

    /// The cluster does not start. What a cluster before has left stays: it may be about to be started again, or run.
    pub(crate) fn give_up(&self) {
        if self.is_new_network {
            network::remove(&self.network_name());
        }
    }

    /// Ends all pods, and removes what they left.
    pub(crate) fn end(&self) {
        if let Ok(runtime) = self.runtime(Arc::new(NoTokens)) {
            runtime.remove_all();
        }
        network::remove(&self.network_name());
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// What tells the control groups of a cluster from those of others on this machine.
fn group_name(dir: &std::path::Path) -> String {
    let digest = windlass_image::digest::of(dir.as_os_str().as_encoded_bytes());
    digest.trim_start_matches("sha256:").chars().take(16).collect()
}

/// For pods that are only ended.
struct NoTokens;

impl windlass_container::Tokens for NoTokens {
    fn token(
        &self,
        _: &windlass_node::tokens::TokenFor,
    ) -> futures::future::BoxFuture<'static, Result<windlass_node::tokens::Token, String>> {
        Box::pin(async { Err("the cluster has stopped".to_owned()) })
    }
}
