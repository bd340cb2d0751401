// SPDX-License-Identifier: Apache-2.0

//! Runs the operator until SIGINT or SIGTERM.

use std::error::Error;
use std::io::IsTerminal as _;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use windlass::Manager;
use windlass::lease::LeaderElection;

/// The opentelemetry-collector operator.
#[derive(Parser)]
#[command(version)]
struct Options {
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
    let mut builder = Manager::builder(client)
        .name("opentelemetry-collector")
        .definitions(opentelemetry_collector_api::definitions()?)
        .metrics(options.metrics_bind_address)
        .probes(options.health_probe_bind_address);
    if options.metrics_secure {
        builder = builder.authenticate_metrics();
    }
    if options.leader_elect {
        builder = builder.leader_election(LeaderElection::new("opentelemetry-collector"));
    }
    opentelemetry_collector::operator(builder)?.run().await?;
    Ok(())
}
