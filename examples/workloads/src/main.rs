// SPDX-License-Identifier: Apache-2.0

//! Deploys a load-balanced web application, shows where it is, follows what its pods print, and removes it on Ctrl-C.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use windlass::kube::Client;

use workloads::app::App;
use workloads::{logs, progress};

/// How long an Ingress may take to get an address. Clusters that give none are used with `kubectl port-forward`.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Deploys a load-balanced web application until Ctrl-C.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The namespace, which is created and deleted
    #[arg(long, default_value = "foo")]
    namespace: String,
    /// What the application is called
    #[arg(long, default_value = "hello-world")]
    name: String,
    /// The image of its web server
    #[arg(long, default_value = "windlass/hello:v1")]
    image: String,
    /// The port that the web server listens on; the server of this example is told by $PORT
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// How many pods there are
    #[arg(long, default_value_t = 2)]
    replicas: u8,
    /// The path that requests from outside have
    #[arg(long, default_value = "/hello")]
    path: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Options { namespace, name, image, port, replicas, path } = Options::parse();
    let app = App { namespace, name, image, port, replicas, path };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Outside of a cluster this reads $KUBECONFIG or ~/.kube/config.
    let client = windlass::config::client().await?;
    println!("creating the namespace {:?}", app.namespace);
    progress::gone_if_deleted(&client, &app).await?;
    app.create_namespace(&client).await.map_err(|error| error.to_string())?;
    let outcome = tokio::select! {
        outcome = run(&client, &app) => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    // Whatever happened, nothing is left.
    println!("deleting the namespace {:?}", app.namespace);
    app.delete(&client).await?;
    progress::gone(&client, &app).await?;
    println!("everything is deleted");
    outcome
}

async fn run(client: &Client, app: &App) -> Result<(), Box<dyn Error>> {
    println!("creating the Deployment {:?}", app.name);
    app.create_deployment(client).await?;
    progress::ready(client, app, |text| println!("{text}")).await?;
    app.create_service_and_ingress(client).await?;
    match tokio::time::timeout(ADDRESS_TIMEOUT, progress::url(client, app)).await {
        Ok(url) => println!("the application is at {}", url?),
        Err(_) => println!(
            "no Ingress controller has given an address; try: kubectl -n {} port-forward service/{} {}:80",
            app.namespace, app.name, app.port
        ),
    }
    logs::follow(client, app, |pod, line| println!("{pod}: {line}")).await?;
    Ok(())
}
