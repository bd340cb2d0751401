//! A cluster that stopped, or was dropped, leaves nothing behind.

use k8s_openapi::api::core::v1::ServiceAccount;
use windlass_cluster::Cluster;

use crate::objects::{LONG, namespaced, until_there};

/// Waits until nothing runs any more; tasks that were told to end may take a moment to.
async fn until_quiet() {
    let quiet = async {
        while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(LONG, quiet).await;
    let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    waited.unwrap_or_else(|_| panic!("{left} tasks are left"));
}

#[tokio::test]
async fn nothing_runs_after_a_stop() {
    let cluster = Cluster::start().await.unwrap();
    until_there(&namespaced::<ServiceAccount>(&cluster.client(), "default"), "default").await;
    cluster.stop().await.unwrap();
    until_quiet().await;
}

#[tokio::test]
async fn nothing_runs_after_a_stop_while_starting() {
    Cluster::start().await.unwrap().stop().await.unwrap();
    until_quiet().await;
}

#[tokio::test]
async fn nothing_runs_after_a_drop() {
    let cluster = Cluster::start().await.unwrap();
    until_there(&namespaced::<ServiceAccount>(&cluster.client(), "default"), "default").await;
    drop(cluster);
    until_quiet().await;
}
