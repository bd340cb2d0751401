// SPDX-License-Identifier: Apache-2.0

//! Runs the operator until SIGINT or SIGTERM.

use std::error::Error;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use windlass::Manager;
use windlass::lease::LeaderElection;

use petstore::controller::pet::Timing;
use petstore::service::client::StoreClient;
use petstore::webhook;

/// Where the pet store is for an operator in a cluster, and for one outside.
const SERVICE: &str = "petstore-service.petstore.svc.cluster.local:6742";
const LOCAL: &str = "127.0.0.1:6742";

/// The petstore operator.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Where the pet store is. In a cluster this is the Service petstore-service in the namespace petstore, outside
    /// 127.0.0.1:6742.
    #[arg(long, env = "PETSTORE_ADDR", value_name = "HOST:PORT")]
    petstore_addr: Option<String>,

    /// Where to serve /metrics, such as :8443; 0 turns it off.
    #[arg(long, default_value = "0", value_name = "[HOST]:PORT")]
    metrics_bind_address: String,

    /// Serve metrics over HTTPS, to clients that the API server authorises.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    metrics_secure: bool,

    /// Where to serve /healthz and /readyz; 0 turns it off.
    #[arg(long, default_value = ":8081", value_name = "[HOST]:PORT")]
    health_probe_bind_address: String,

    /// Let only one replica work at a time.
    #[arg(long)]
    leader_elect: bool,

    /// A directory with tls.crt and tls.key for the webhooks. The operator makes its own certificates otherwise.
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_path: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    // The library logs an unreachable server once; kube's own client logs every attempt.
    let quiet = || EnvFilter::new("info,kube_client::client::builder=off");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| quiet());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.init();
    } else {
        log.json().init();
    }

    let client = windlass::config::client().await?;
    let namespace = client.default_namespace().to_owned();
    let mut builder = Manager::builder(client)
        .name("petstore")
        .definitions(petstore_api::definitions()?)
        .metrics(options.metrics_bind_address)
        .probes(options.health_probe_bind_address);
    if options.metrics_secure {
        builder = builder.authenticate_metrics();
    }
    if options.leader_elect {
        builder = builder.leader_election(LeaderElection::new("petstore"));
    }
    let certificates = webhook::certificates(&namespace, options.webhook_cert_path);
    builder = builder.webhooks(webhook::webhooks().certificates(certificates));
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let addr = options.petstore_addr.as_deref().unwrap_or(if in_cluster { SERVICE } else { LOCAL });
    let store = StoreClient::connect_lazy(addr)?;
    petstore::operator(builder, store, Timing::default())?.run().await?;
    Ok(())
}
