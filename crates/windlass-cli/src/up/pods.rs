//! What runs the pods of a cluster on this machine: `windlass up --runtime`.
//!
//! The directories of pods are in the cluster's own. Pods outlive a crash of the cluster, and are found again by the next one of
//! the name; they end with `windlass down`. Containers have a [network] of their own where that can be made.
//!
//! A user who is not root runs containers in a user namespace. The cluster's process [enters](enter) it before it starts
//! threads; from then on it is root over its own namespaces, and the rest is the same as for root.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use windlass_cluster::Machine;
use windlass_container::network::{LoopbackOnly, PodNetwork};
use windlass_container::user_namespace::advice;
use windlass_container::{Containers, Isolation, Options, UserNamespace};
use windlass_image::Store;
use windlass_node::Runtime;
use windlass_node::tokens::ApiTokens;

use super::network::{self, PodsNetwork};
use crate::args::{PodRuntime, Up};
use crate::home::Home;

/// The pods of a cluster that really run. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pods {
    node: String,
    dir: PathBuf,
    isolation: Isolation,
    program: PathBuf,
    store: Store,
    network: Option<PodsNetwork>,
    /// The user namespace that this process is in.
    users: Option<UserNamespace>,
    /// Whether the network was made by this process.
    is_new_network: bool,
    /// Why there is no network.
    why_isolated: String,
}

/// How the pods of a cluster are kept apart, and the user namespace that this process has entered for that.
pub(crate) struct Place {
    isolation: Isolation,
    users: Option<UserNamespace>,
    /// What is not as the command line may make one think, for the user.
    pub(crate) note: Option<String>,
}

/// Decides how the pods run that the command line asks for; `None` if they are simulated. Enters a user namespace where that is
/// needed, so the process must have one thread.
pub(crate) fn enter(args: &Up, home: &Home) -> Result<Option<Place>> {
    if args.runtime == PodRuntime::Simulated {
        if pods_dir(home).is_dir() {
            end_former(home)?;
        }
        return Ok(None);
    }
    ensure!(args.nodes == 1, "--nodes counts simulated nodes; with --runtime the only node is this machine");
    ensure!(!args.kwok, "--kwok is for simulated pods; with --runtime pods run");
    let processes = Place { isolation: Isolation::None, users: None, note: None };
    if args.runtime == PodRuntime::Process {
        return Ok(Some(processes));
    }
    let program = program()?;
    let entered = windlass_container::probe(&program).and_then(|_| {
        let enter = || UserNamespace::enter(&users_dir(home), &program);
        UserNamespace::is_needed().then(enter).transpose().map_err(|error| error.to_string())
    });
    match entered {
        Ok(users) => {
            let note = (args.runtime == PodRuntime::Auto).then(|| "pods run in containers".to_owned());
            Ok(Some(Place { isolation: Isolation::Namespaces, users, note }))
        }
        Err(why) if args.runtime == PodRuntime::Container => {
            bail!("containers cannot run here: {why}; {}; or use --runtime process or auto", advice())
        }
        Err(why) => {
            let note =
                format!("pods are processes of this machine, because containers cannot run: {why}; {}", advice());
            Ok(Some(Place { note: Some(note), ..processes }))
        }
    }
}

/// Ends pods that ran in a cluster that was killed, and whose pods are now simulated. In another process: it may have to enter
/// their user namespace, and would stay there.
fn end_former(home: &Home) -> Result<()> {
    let mut command = std::process::Command::new(program()?);
    let ended = command.args(["down", "--only-pods", "--name", &home.name]).stdin(std::process::Stdio::null()).output();
    let ended = ended.context("cannot end the pods that ran in this cluster before")?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.success(), "cannot end the pods that ran in this cluster before: {said}");
    Ok(())
}

/// The pods that run in a place.
pub(crate) fn of(place: Place, home: &Home) -> Result<Pods> {
    let mut pods = Pods::new(home, place.isolation, program()?)?;
    pods.users = place.users;
    Ok(pods)
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// Whether pods can run here in containers, with a network by which they reach the API server.
pub(crate) fn have_network() -> bool {
    program().is_ok_and(|program| windlass_container::probe(&program).is_ok())
}

/// Where the user namespace of a cluster is kept.
fn users_dir(home: &Home) -> PathBuf {
    home.dir.join("users")
}

/// Where the pods of a cluster have their directories.
fn pods_dir(home: &Home) -> PathBuf {
    home.dir.join("pods")
}

/// Ends what is left of pods of a cluster that has stopped. The process must have one thread. It stays in the cluster's user
/// namespace, if there is one or `purge` may need it: files of volumes may be those of other users there.
pub(crate) fn clean_up(home: &Home, purge: bool) -> Result<()> {
    let dir = users_dir(home);
    let mut users = None;
    let has_files = || purge && UserNamespace::has_others() && home.dir.join("volumes").is_dir();
    if UserNamespace::is_needed() && (dir.is_dir() || has_files()) {
        // After a restart of the machine it is another one, with the same users, who own files.
        users = match UserNamespace::enter(&dir, &program()?) {
            Ok(users) => Some(users),
            Err(error) => {
                tracing::warn!(%error, "the user namespace of the cluster cannot be entered");
                None
            }
        };
    }
    let mut pods = Pods::new(home, Isolation::Namespaces, program()?)?;
    if pods.dir.is_dir() {
        for isolation in [Isolation::Namespaces, Isolation::None] {
            Pods { isolation, ..pods.clone() }.end();
        }
    } else {
        network::remove(&pods.network_dir(), &pods.network_name());
    }
    pods.users = users;
    pods.leave();
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
            users: None,
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
        if self.users.as_ref().is_some_and(UserNamespace::is_new) && self.dir.is_dir() {
            // Pods of another user namespace, whose keeper was killed: their network is out of reach.
            self.runtime(Arc::new(NoTokens))?.end_parents();
        }
        let (dir, name) = (self.network_dir(), self.network_name());
        self.is_new_network = !network::exists(&dir, &name);
        match network::start(args, &dir, &name).await {
            Ok(network) => self.network = Some(network),
            Err(error) if args.ingress.is_some() || args.ingress_tls.is_some() => {
                self.give_up();
                return Err(error);
            }
            Err(error) => self.why_isolated = format!("{error:#}"),
        }
        Ok(())
    }

    /// What the user is to know before using the cluster.
    pub(crate) fn notes(&self) -> Vec<String> {
        let isolated = (!self.why_isolated.is_empty())
            .then(|| format!("pods reach nothing but themselves: {}", self.why_isolated));
        let runtime = self.runtime(Arc::new(NoTokens)).ok();
        let copies = runtime.as_ref().and_then(Containers::copies);
        let missing = runtime.filter(|_| self.users.is_some()).and_then(|runtime| runtime.missing());
        let without_root = missing.map(|missing| {
            format!("containers run without root: {missing}; `windlass doctor` says what to do for more")
        });
        let processes = (self.isolation == Isolation::None).then(|| {
            "pods are in the network of this machine: there are no Services, cluster DNS and Ingresses, and nothing listens at \
             the pods' own addresses"
                .to_owned()
        });
        isolated.into_iter().chain(copies).chain(without_root).chain(processes).collect()
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

    /// Where the network namespaces are kept: with root where the machine has such things, and the cluster's own directory
    /// otherwise.
    fn network_dir(&self) -> PathBuf {
        if UserNamespace::is_needed() || UserNamespace::is_entered() {
            return self.dir.with_file_name("network");
        }
        network::DIRECTORY.into()
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
            network::remove(&self.network_dir(), &self.network_name());
        }
        if let Some(users) = self.users.as_ref().filter(|users| users.is_new()) {
            users.end();
        }
    }

    /// Ends all pods, and removes what they left.
    pub(crate) fn end(&self) {
        if let Ok(runtime) = self.runtime(Arc::new(NoTokens)) {
            runtime.remove_all();
        }
        network::remove(&self.network_dir(), &self.network_name());
        let _ = std::fs::remove_dir(&self.dir);
        self.leave();
    }

    /// Deletes images that nothing names or uses any more, and ends the user namespace. What this process has opened in it
    /// stays.
    fn leave(&self) {
        // Within the namespace, because its users have files of images.
        let _ = self.store.collect();
        if let Some(users) = &self.users {
            let _ = std::fs::remove_dir(self.network_dir());
            users.end();
        }
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
