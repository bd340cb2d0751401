// SPDX-License-Identifier: Apache-2.0

//! The output of all pods of the application, line by line.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinSet;
use windlass::kube::api::{LogParams, WatchEvent, WatchParams};
use windlass::kube::{Api, Client, Error};

use crate::app::App;

/// Follows the output of all pods, also of those that start later, until it is dropped. `say` gets the pod's name and a line.
pub async fn follow(client: &Client, app: &App, say: impl Fn(&str, &str) + Send + Sync + 'static) -> Result<(), Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &app.namespace);
    let say = Arc::new(say);
    let mut followed = HashSet::new();
    let mut tasks = JoinSet::new();
    let params = WatchParams::default().labels(&app.selector());
    loop {
        let mut changes = pods.watch(&params, "0").await?.boxed();
        while let Some(change) = changes.try_next().await? {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = change else { continue };
            // A container that has started again has another output.
            let Some((name, start)) = started(&pod) else { continue };
            if followed.insert((pod.metadata.uid.clone(), start)) {
                let (pods, say) = (pods.clone(), Arc::clone(&say));
                tasks.spawn(async move {
                    if let Err(error) = read(&pods, &name, &*say).await {
                        say(&name, &format!("the log cannot be read: {error}"));
                    }
                });
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The pod's name and how often its container has started, if it runs.
fn started(pod: &Pod) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.running.as_ref()?;
    Some((pod.metadata.name.clone()?, status.restart_count))
}

async fn read(pods: &Api<Pod>, name: &str, say: &(impl Fn(&str, &str) + Send + Sync)) -> Result<(), Error> {
    let params = LogParams { follow: true, ..LogParams::default() };
    let mut lines = pods.log_stream(name, &params).await?.lines();
    while let Some(Ok(line)) = lines.next().await {
        say(name, &line);
    }
    Ok(())
}
