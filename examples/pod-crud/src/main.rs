// SPDX-License-Identifier: Apache-2.0

//! Shows what a program does with the API of Kubernetes: one command for each way.

use std::error::Error;

use clap::{Parser, Subcommand};
use k8s_openapi::api::core::v1::Pod;
use windlass::kube::{Api, ResourceExt};

use pod_crud::{crud, dynamic, informer, protobuf, watch};

/// Works with Pods of one namespace.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create, read, label and delete a Pod
    Crud,
    /// Print changes of Pods as a watch tells them, until Ctrl-C
    Watch,
    /// Print changes of Pods as an informer tells them, until Ctrl-C
    Informer,
    /// Print when an At runs
    Dynamic {
        /// The name of the At
        #[arg(default_value = "example-at")]
        name: String,
    },
    /// Print which encodings the server has
    Protobuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    // Outside of a cluster this reads $KUBECONFIG or ~/.kube/config; in a Pod, the files of its ServiceAccount, which
    // Kubernetes puts into /var/run/secrets/kubernetes.io/serviceaccount.
    let client = windlass::config::client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    match options.command {
        Command::Crud => {
            crud::create(&pods).await?;
            println!("created: k={}", pods.get(crud::NAME).await?.labels()["k"]);
            let labelled = crud::label(&pods, crud::NAME, &[("patch".into(), "v1".into())].into()).await?;
            println!("updated: {:?}", labelled.metadata.labels.unwrap_or_default());
            crud::delete(&pods, crud::NAME).await?;
            println!("deleted");
        }
        Command::Watch => tokio::select! {
            () = watch::follow_on(&pods, |text| { println!("{text}"); true }) => {}
            stop = tokio::signal::ctrl_c() => stop?,
        },
        Command::Informer => {
            let (factory, pods) = informer::pods(client, |text| println!("{text}"));
            factory.start();
            factory.wait_synced().await?;
            println!("{} pods in the cache", pods.lister().len());
            tokio::signal::ctrl_c().await?;
            factory.stop().await;
        }
        Command::Dynamic { name } => match dynamic::at(client.clone(), client.default_namespace(), &name).await? {
            Some(at) => println!("{name} runs at {}", dynamic::schedule(&at).unwrap_or("no time")),
            None => println!("there is no At {name}"),
        },
        Command::Protobuf => {
            let namespace = client.default_namespace();
            for path in [
                format!("/api/v1/namespaces/{namespace}/pods"),
                format!("/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/{namespace}/ats"),
            ] {
                println!("{path}: {}", protobuf::content_type(&client, &path).await?);
            }
        }
    }
    Ok(())
}
