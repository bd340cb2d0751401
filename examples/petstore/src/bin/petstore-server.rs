// SPDX-License-Identifier: Apache-2.0

//! Serves a pet store over gRPC until it is told to stop.

use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Parser;
use petstore::service::sampler::Sampler;
use petstore::service::server::{PetStore, PetStoreServer};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::EnvFilter;

/// A gRPC pet store.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Where to listen.
    #[arg(long, default_value = "0.0.0.0:6742", value_name = "HOST:PORT")]
    addr: String,

    /// Where pets are kept. Without it, they are gone when the store stops.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,

    /// Which requests to trace at first: never, always, or a fraction such as 0.25.
    #[arg(long, default_value = "never", value_name = "SAMPLER")]
    trace_sampling: Sampler,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();

    let store = match &options.data_dir {
        Some(directory) => PetStore::open(directory).await?,
        None => PetStore::in_memory(),
    };
    store.set_sampler(options.trace_sampling);
    let pets = store.with_inventory(|inventory| inventory.len());
    let server = PetStoreServer::bind(&options.addr, store).await?;
    info!(pets, addr = %server.local_addr(), "pet store ready");

    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let told_to_stop = async {
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
        () = told_to_stop => {}
    }
    Ok(())
}
