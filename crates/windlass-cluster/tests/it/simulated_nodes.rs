//! Workloads on simulated nodes. Their pods are bound by their templates.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;
use windlass_cluster::Cluster;

#[tokio::test]
async fn a_deployment_becomes_available_and_has_endpoints() {
    let cluster = Cluster::builder().nodes(2).start().await.unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "nodeName": "node-1", "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let service = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
    });
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::default_namespaced(cluster.client());
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    await_condition(deployments, "web", conditions::is_deployment_completed()).await.unwrap();
    let slices: Api<EndpointSlice> = Api::default_namespaced(cluster.client());
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    let mut revision = cluster.server().api().store.revision();
    loop {
        let slices = slices.list(&of_web).await.unwrap().items;
        let ready = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let ready = ready.filter(|one| one.conditions.as_ref().is_some_and(|all| all.ready == Some(true))).count();
        if ready == 3 {
            break;
        }
        revision.changed().await.unwrap();
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_completes_and_its_pods_can_be_deleted() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    let job = json!({
        "metadata": { "name": "count" },
        "spec": {
            "completions": 3,
            "parallelism": 3,
            "template": {
                "metadata": { "annotations": { "simulation.windlass.dev/run-time": "1s" } },
                "spec": {
                    "nodeName": "node-0", "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
                },
            },
        },
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    await_condition(jobs, "count", conditions::is_job_completed()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let made = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(made.len(), 3);
    for pod in made {
        let state = pod.status.unwrap().container_statuses.unwrap().remove(0).state.unwrap().terminated.unwrap();
        let (started, finished) = (state.started_at.unwrap().0, state.finished_at.unwrap().0);
        assert!(finished > started, "it ran for a second: {started} to {finished}");
        let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
        pods.delete(&name, &DeleteParams::default()).await.unwrap();
        await_condition(pods.clone(), &name, conditions::is_deleted(&uid)).await.unwrap();
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn nodes_write_as_kubelets_and_survive_a_restart() {
    let cluster = Cluster::builder().nodes(1).start().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    let ready = |node: Option<&Node>| {
        let status = node.and_then(|node| node.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    await_condition(nodes.clone(), "node-0", ready).await.unwrap();
    let managers = nodes.get("node-0").await.unwrap().metadata.managed_fields.unwrap_or_default();
    let is_kubelet = |subresource: Option<&str>| {
        managers
            .iter()
            .any(|one| one.manager.as_deref() == Some("kubelet") && one.subresource.as_deref() == subresource)
    };
    assert!(is_kubelet(None) && is_kubelet(Some("status")), "{managers:?}");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "c", "image": "i" }] },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    await_condition(pods.clone(), "web", conditions::is_pod_running()).await.unwrap();
    let cluster = cluster.restart().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let uid = pods.get("web").await.unwrap().metadata.uid.unwrap();
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    await_condition(pods, "web", conditions::is_deleted(&uid)).await.unwrap();
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn registration_makes_no_request_that_is_refused() {
    const NODES: usize = 40;
    let cluster = Cluster::builder().nodes(NODES as u32).start().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client());
    let mut revision = cluster.server().api().store.revision();
    loop {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        let is_ready = |node: &Node| {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        if nodes.iter().filter(|node| is_ready(node)).count() == NODES {
            break;
        }
        revision.changed().await.unwrap();
    }
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = cluster.client().request_text(request).await.unwrap();
    let refused = metrics.lines().find(|line| {
        line.starts_with("apiserver_request_total{") && line.contains("code=\"422\"") && line.contains("\"nodes\"")
    });
    assert_eq!(refused, None);
    cluster.stop().await.unwrap();
}
