//! Runs the Pet operator until it is told to stop.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use clap::Parser;
use tracing_subscriber::EnvFilter;
use windlass::{Manager, config::Loader};
use windlass_petstore::{
    client::StoreClient,
    operator::{self, Timing},
};

/// Keeps one entry of the pet store for every Pet in a cluster.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where the pet store is.
    #[arg(long, default_value = "127.0.0.1:6742", value_name = "HOST:PORT")]
    petstore_addr: String,

    /// The kubeconfig to use, instead of $KUBECONFIG, the pod's service account or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Look after this namespace only. May be given more than once.
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Where to serve /healthz and /readyz; 0 turns it off.
    #[arg(long, default_value = ":8081", value_name = "HOST:PORT")]
    probe_addr: String,

    /// Where to serve /metrics; 0 turns it off.
    #[arg(long, default_value = "0", value_name = "HOST:PORT")]
    metrics_addr: String,

    /// How often to check an entry of which no change was reported.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    resync: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client::client::builder=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();

    let loader = args.kubeconfig.into_iter().fold(Loader::default(), Loader::kubeconfig);
    let client = loader.client().await?;
    let store = StoreClient::connect_lazy(&args.petstore_addr)?;
    let timing = Timing { resync: Duration::from_secs(args.resync), ..Timing::default() };
    let mut manager = Manager::builder(client)
        .name("petstore-operator")
        .namespaces(args.namespace)
        .probes(args.probe_addr)
        .metrics(args.metrics_addr)
        .build()?;
    manager.add(operator::controller(store, timing))?;
    Ok(manager.run().await?)
}
