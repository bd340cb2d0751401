//! Pods that become ready without nodes.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::Patch;
use serde_json::json;
use windlass::ObjectKey;
use windlass_testing::Env;

fn pod(namespace: &str, name: &str) -> Pod {
    let pod = json!({
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "containers": [{ "name": "main", "image": "nginx" }, { "name": "side", "image": "envoy" }] },
    });
    serde_json::from_value(pod).expect("a pod")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

#[windlass_testing::test(paused, bare)]
async fn each_pod_is_made_ready_once(env: Env) {
    let nodes = env.make_pods_ready("default");
    let mut ips = Vec::new();
    for name in ["a", "b"] {
        env.client().create(&pod("default", name)).await.expect("created");
        let ready = env.wait_for_condition::<Pod>(&ObjectKey::new("default", name), "Ready", true).await;
        let status = ready.status.as_ref().expect("a status");
        assert_eq!(phase(&ready), Some("Running"));
        let containers = status.container_statuses.as_ref().expect("containers");
        assert!(containers.len() == 2 && containers.iter().all(|container| container.ready));
        ips.push(status.pod_ip.clone().expect("an IP"));
    }
    assert_ne!(ips[0], ips[1]);
    let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
    let a = ObjectKey::new("default", "a");
    env.client().patch_status::<Pod>(&a, &failed).await.expect("patched");
    env.restart_server().await;
    env.client().create(&pod("default", "c")).await.expect("created");
    env.wait_for_condition::<Pod>(&ObjectKey::new("default", "c"), "Ready", true).await;
    let a = env.client().live().get::<Pod>(&a).await.expect("read").expect("there");
    assert_eq!(phase(&a), Some("Failed"), "what the test has changed stays");
    drop(nodes);
}

#[windlass_testing::test(paused, bare)]
async fn pods_stay_pending_without_the_guard_and_elsewhere(env: Env) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("other".into());
    env.client().create(&namespace).await.expect("created");
    drop(env.make_pods_ready("default"));
    let _nodes = env.make_pods_ready("other");
    env.client().create(&pod("default", "a")).await.expect("created");
    env.client().create(&pod("other", "b")).await.expect("created");
    env.wait_for_condition::<Pod>(&ObjectKey::new("other", "b"), "Ready", true).await;
    let a = env.client().live().get::<Pod>(&ObjectKey::new("default", "a")).await.expect("read").expect("there");
    assert_eq!(phase(&a), Some("Pending"));
}
