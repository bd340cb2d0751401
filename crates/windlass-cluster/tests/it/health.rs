//! Every controller shows in `/readyz?verbose` and in `/metrics`.

use std::time::Duration;

use http::Request;
use kube::client::Body;
use windlass_cluster::{BuiltIn, Cluster};

async fn text(cluster: &Cluster, path: &str) -> String {
    let answer = cluster.client().send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap()
}

/// The controllers of the checks that have no metrics.
fn without_metrics<'a>(checks: &'a str, metrics: &str) -> Vec<&'a str> {
    let names = checks.lines().filter_map(|line| line.strip_prefix("[+]controller/")?.strip_suffix(" ok"));
    let has_metrics = |name: &&str| {
        let of = |end: &str| format!("controller_runtime_reconcile_total{{controller=\"{name}{end}\"");
        ["", "-controller"].iter().any(|end| metrics.contains(&of(end)))
    };
    names.filter(|name| !has_metrics(name)).collect()
}

#[tokio::test]
async fn each_controller_has_a_check_and_metrics() {
    let cluster = Cluster::start().await.unwrap();
    let checks = text(&cluster, "/readyz?verbose").await;
    assert!(checks.contains("[+]kube-scheduler ok\n"), "{checks}");
    // Two of them are halves of one controller.
    assert!(checks.matches("[+]controller/").count() >= BuiltIn::ALL.len() - 2, "{checks}");
    // A controller has metrics once it runs.
    let metrics = async {
        loop {
            let metrics = text(&cluster, "/metrics").await;
            if without_metrics(&checks, &metrics).is_empty() {
                return metrics;
            }
            tokio::task::yield_now().await;
        }
    };
    let metrics = tokio::time::timeout(Duration::from_secs(30), metrics).await;
    let Ok(metrics) = metrics else {
        let metrics = text(&cluster, "/metrics").await;
        panic!("no metrics of {:?}", without_metrics(&checks, &metrics))
    };
    assert!(metrics.contains("scheduler_schedule_attempts_total{"), "{metrics}");
    cluster.stop().await.unwrap();
}
