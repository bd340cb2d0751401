//! Serves an empty pet store over gRPC until it is told to stop.

use std::io::{self, IsTerminal};

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;
use windlass_petstore::{
    sampler::Sampler,
    server::{PetStore, PetStoreServer},
};

/// A gRPC pet store that keeps its pets in memory.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to listen.
    #[arg(long, default_value = "0.0.0.0:6742", value_name = "HOST:PORT")]
    addr: String,

    /// Which requests to trace at first: never, always, or a fraction such as 0.25.
    #[arg(long, default_value = "never", value_name = "SAMPLER")]
    trace_sampling: Sampler,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();

    let store = PetStore::new();
    store.set_sampler(args.trace_sampling);
    let server = PetStoreServer::bind_store(&args.addr, store)
        .await
        .with_context(|| format!("cannot listen on {}", args.addr))?;
    info!(addr = %server.local_addr(), "pet store ready");

    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stopped = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("pet store stopping");
        shutdown.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = server.serve(shutdown.clone()) => served?,
        () = stopped => {}
    }
    Ok(())
}
