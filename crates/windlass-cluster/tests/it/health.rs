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
    let has = |text: &str, part: String| text.contains(&part).then_some(()).ok_or(part);
    let mut missing = Vec::new();
    for one in BuiltIn::ALL {
        let name = one.name();
        if *one == BuiltIn::Scheduler {
            missing.extend(has(&checks, "[+]kube-scheduler ok\n".to_owned()).err());
            missing.extend(has(&metrics, "scheduler_schedule_attempts_total{".to_owned()).err());
            continue;
        }
        missing.extend(has(&checks, format!("[+]controller/{name} ok\n")).err());
        missing.extend(has(&metrics, format!("controller_runtime_reconcile_total{{controller=\"{name}\"")).err());
    }
    assert!(missing.is_empty(), "missing: {missing:#?}\n{checks}");
    cluster.stop().await.unwrap();
}
