//! Every controller shows in `/readyz?verbose` and in `/metrics`.

use http::Request;
use kube::client::Body;
use windlass_cluster::{BuiltIn, Cluster};

async fn text(cluster: &Cluster, path: &str) -> String {
    let answer = cluster.client().send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn each_controller_has_a_check_and_metrics() {
    let cluster = Cluster::start().await.unwrap();
    let (checks, metrics) = (text(&cluster, "/readyz?verbose").await, text(&cluster, "/metrics").await);
    assert!(checks.contains("[+]kube-scheduler ok\n"), "{checks}");
    assert!(metrics.contains("scheduler_schedule_attempts_total{"), "{metrics}");
    let names: Vec<&str> = checks.lines().filter_map(|line| line.strip_prefix("[+]controller/")).collect();
    // Two of them are halves of one controller.
    assert!(names.len() >= BuiltIn::ALL.len() - 2, "{names:?}");
    let has_metrics = |name: &str| {
        ["", "-controller"]
            .iter()
            .any(|end| metrics.contains(&format!("controller_runtime_reconcile_total{{controller=\"{name}{end}\"")))
    };
    let names = names.into_iter().map(|line| line.trim_end_matches(" ok"));
    let missing: Vec<&str> = names.filter(|name| !has_metrics(name)).collect();
    let known: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total")).collect();
    assert!(missing.is_empty(), "no metrics of {missing:?}, only:\n{}", known.join("\n"));
    cluster.stop().await.unwrap();
}
