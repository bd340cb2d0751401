//! What runs the pods of a cluster on this machine: `windlass up --runtime`.
//!
//! The directories of pods are in the cluster's own. Pods outlive a crash of the cluster, and are found again by the next one of
//! the name; they end with `windlass down`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use windlass_cluster::Machine;
use windlass_container::network::LoopbackOnly;
use windlass_container::{Containers, Isolation, Options};
use windlass_image::Store;
use windlass_node::Runtime;
use windlass_node::tokens::ApiTokens;

use crate::args::{PodRuntime, Up};
use crate::home::Home;
use crate::output;

/// The pods of a cluster that really run.
pub(crate) struct Pods {
    node: String,
    dir: PathBuf,
    isolation: Isolation,
    program: PathBuf,
    store: Store,
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
    let dir = pods_dir(home);
    Ok(Some(Pods { node: home.name.clone(), dir, isolation, program, store: Store::of_user()? }))
}

/// Where the pods of a cluster have their directories.
fn pods_dir(home: &Home) -> PathBuf {
    home.dir.join("pods")
}

/// Ends what is left of pods of a cluster that has stopped.
pub(crate) fn clean_up(home: &Home) -> Result<()> {
    let dir = pods_dir(home);
    if !dir.is_dir() {
        return Ok(());
    }
    for isolation in [Isolation::Namespaces, Isolation::None] {
        let program = std::env::current_exe().context("cannot find this program")?;
        Pods { node: home.name.clone(), dir: dir.clone(), isolation, program, store: Store::of_user()? }.end();
    }
    Ok(())
}

impl Pods {
    fn runtime(&self, tokens: Arc<dyn windlass_container::Tokens>) -> Result<Containers> {
        let options = Options {
            dir: self.dir.clone(),
            name: group_name(&self.dir),
            program: self.program.clone(),
            store: self.store.clone(),
            network: Arc::new(LoopbackOnly),
            tokens,
            isolation: self.isolation,
            environment: Vec::new(),
        };
        Containers::new(options).with_context(|| format!("cannot create {}", self.dir.display()))
    }

    /// The node that they run on.
    pub(crate) fn machine(&self) -> Machine {
        let pods = Self {
            node: self.node.clone(),
            dir: self.dir.clone(),
            isolation: self.isolation,
            program: self.program.clone(),
            store: self.store.clone(),
        };
        Machine::new(
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
    }

    /// Ends what is left of pods that the cluster does not have any more, as after a crash.
    pub(crate) async fn forget_others(&self, client: kube::Client) -> Result<()> {
        if !self.dir.is_dir() {
            return Ok(());
        }
        let pods: kube::Api<Pod> = kube::Api::all(client);
        let known: HashSet<String> = pods
            .list(&kube::api::ListParams::default())
            .await?
            .into_iter()
            .filter_map(|pod| pod.metadata.uid)
            .collect();
        self.runtime(Arc::new(NoTokens))?.clean(|uid| known.contains(uid));
        Ok(())
    }

    /// Ends all pods, and removes what they left.
    pub(crate) fn end(&self) {
        if let Ok(runtime) = self.runtime(Arc::new(NoTokens)) {
            runtime.remove_all();
        }
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
