//! Simulated nodes and their pods, against a server in the same process, with a clock that jumps from timer to timer.

mod environment;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use windlass::{CancellationToken, Manager};
use windlass_node::Agent;
use windlass_server::Server;

/// A server with simulated nodes.
struct World {
    client: kube::Client,
    server: Server,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    async fn start(nodes: u32) -> Self {
        let server = Server::builder().start().await.expect("a server");
        let client = kube::Client::new(server.service(), "default");
        let (shutdown, running) = run(&client, nodes);
        let world = Self { client, server, shutdown, running };
        for number in 0..nodes {
            world.until::<Node>(&format!("node-{number}"), ready).await;
        }
        world
    }

    /// The agent's process ends, and another one begins.
    async fn restart(self) -> Self {
        let Self { client, server, shutdown, running } = self;
        shutdown.cancel();
        running.await.expect("no panic");
        let (shutdown, running) = run(&client, 0);
        Self { client, server, shutdown, running }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.expect("no panic");
        self.server.stop().await.expect("stopped");
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, name: &str, annotations: Value, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!("node-0");
        let pod = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("created")
    }

    async fn until<K>(&self, name: &str, accepts: impl Fn(&K) -> bool) -> K
    where
        K: kube::Resource<DynamicType = (), Scope: Reach<K>>
            + Clone
            + std::fmt::Debug
            + Send
            + serde::de::DeserializeOwned
            + 'static,
    {
        let api = <K::Scope as Reach<K>>::api(self.client.clone());
        let found = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&accepts));
        let Ok(found) = tokio::time::timeout(Duration::from_secs(3600), found).await else {
            panic!("{name} never was: {:#?}", api.get(name).await)
        };
        found.expect("watched").expect("an object")
    }

    async fn gone(&self, name: &str) {
        let gone = await_condition(self.pods(), name, |pod: Option<&Pod>| pod.is_none());
        tokio::time::timeout(Duration::from_secs(3600), gone).await.expect("in time").expect("watched");
    }

    async fn wait_for_event(&self, pod: &str, reason: &str, message: &str) {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
        let found = async {
            loop {
                let all = events.list(&of_pod).await.expect("listed").items;
                if all.iter().any(|event| event.message.as_deref() == Some(message)) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let began = std::time::Instant::now();
        let mut found = std::pin::pin!(found);
        // By the real clock: nothing here waits for a timer.
        while futures::poll!(&mut found).is_pending() {
            assert!(began.elapsed() < Duration::from_secs(20), "{pod} has no event {reason}: {message}");
            tokio::task::yield_now().await;
        }
    }
}

/// Where objects of a kind are.
trait Reach<K> {
    fn api(client: kube::Client) -> Api<K>;
}

impl<K: kube::Resource<DynamicType = (), Scope = Self>> Reach<K> for kube::core::NamespaceResourceScope {
    fn api(client: kube::Client) -> Api<K> {
        Api::default_namespaced(client)
    }
}

impl<K: kube::Resource<DynamicType = (), Scope = Self>> Reach<K> for kube::core::ClusterResourceScope {
    fn api(client: kube::Client) -> Api<K> {
        Api::all(client)
    }
}

fn run(client: &kube::Client, nodes: u32) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let mut manager =
        Manager::builder(client.clone()).name("nodes").check_permissions(false).build().expect("a manager");
    Agent::simulated(client.clone()).register(nodes).add_to(&mut manager).expect("added");
    let shutdown = CancellationToken::new();
    let until = shutdown.clone();
    let running = tokio::spawn(async move { manager.run_until(until).await.expect("it ran") });
    (shutdown, running)
}

fn ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> &'a str {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().find(|condition| condition.type_ == type_).map_or("", |condition| &condition.status)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == "True"
}

/// The reason why the first container waits.
fn waiting(pod: &Pod) -> &str {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let state = statuses.and_then(|all| all.first()?.state.as_ref());
    state.and_then(|state| state.waiting.as_ref()?.reason.as_deref()).unwrap_or_default()
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).map_or(0, |status| status.restart_count)
}

fn one() -> Value {
    json!({ "containers": [{ "name": "c", "image": "nginx" }] })
}

#[tokio::test(start_paused = true)]
async fn nodes_register_report_and_renew_their_leases() {
    let world = World::start(4).await;
    let node = world.until::<Node>("node-3", |_| true).await;
    let labels = node.metadata.labels.clone().expect("labels");
    assert_eq!((&*labels["kubernetes.io/hostname"], &*labels["topology.kubernetes.io/zone"]), ("node-3", "zone-a"));
    let status = node.status.clone().expect("a status");
    assert_eq!(status.capacity.expect("capacity")["pods"].0, "110");
    assert_eq!(status.addresses.expect("addresses").len(), 2);
    let mut ranges = std::collections::BTreeSet::new();
    for number in 0..4 {
        let node = world.until::<Node>(&format!("node-{number}"), |_| true).await;
        ranges.insert(node.spec.and_then(|spec| spec.pod_cidr).expect("a range"));
    }
    assert_eq!(ranges.len(), 4);

    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-node-lease");
    let lease = leases.get("node-3").await.expect("a lease");
    assert_eq!(lease.metadata.owner_references.expect("an owner")[0].uid, node.metadata.uid.expect("a uid"));
    let renewed = |lease: &Lease| lease.metadata.resource_version.clone();
    let before = renewed(&leases.get("node-3").await.expect("a lease"));
    tokio::time::sleep(Duration::from_secs(11)).await; // a paused clock: to the next renewal
    assert_ne!(before, renewed(&leases.get("node-3").await.expect("a lease")));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_kwok_is_adopted() {
    let world = World::start(0).await;
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "fake", "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "status": { "allocatable": { "cpu": "1", "pods": "3" }, "capacity": { "cpu": "1", "pods": "3" } },
    }))
    .expect("a node");
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let node = world.until::<Node>("fake", ready).await;
    assert_eq!(node.status.and_then(|status| status.allocatable).expect("allocatable")["cpu"].0, "1");
    assert_eq!(node.metadata.labels.expect("labels")["kubernetes.io/os"], "linux");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_becomes_ready_with_an_address_of_its_node() {
    let world = World::start(1).await;
    world.create("web", json!({}), one()).await;
    let pod = world.until::<Pod>("web", is_ready).await;
    let status = pod.status.clone().expect("a status");
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("10.244.0.2"), Some("172.18.0.2")));
    assert_eq!((status.observed_generation, status.qos_class.as_deref()), (Some(1), Some("BestEffort")));
    for type_ in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, type_), "True", "{type_}");
    }
    let container = &status.container_statuses.expect("statuses")[0];
    assert!(container.ready && container.started == Some(true));
    assert!(container.container_id.as_deref().is_some_and(|id| id.starts_with("simulated://")));
    world.wait_for_event("web", "Started", "Container started").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn delays_are_what_annotations_say() {
    let world = World::start(1).await;
    let began = tokio::time::Instant::now();
    let annotations = json!({
        "simulation.windlass.dev/pull-delay": "20s",
        "simulation.windlass.dev/start-delay": "30s",
        "simulation.windlass.dev/ready-delay": "1m",
    });
    let mut spec = one();
    spec["containers"][0]["readinessProbe"] = json!({ "httpGet": { "port": 80 } });
    world.create("slow", annotations, spec).await;
    world.until::<Pod>("slow", |pod| waiting(pod) == "ContainerCreating").await;
    world.until::<Pod>("slow", |pod| phase(pod) == "Running" && !is_ready(pod)).await;
    assert!(began.elapsed() >= Duration::from_secs(50) && began.elapsed() < Duration::from_secs(52));
    world.until::<Pod>("slow", is_ready).await;
    assert!(began.elapsed() >= Duration::from_secs(110) && began.elapsed() < Duration::from_secs(113));
    world.wait_for_event("slow", "Pulling", "Pulling image \"nginx\"").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_unready_from_when_its_annotation_says() {
    let world = World::start(1).await;
    let annotations = json!({
        "simulation.windlass.dev/ready-delay": "5s",
        "simulation.windlass.dev/unready-after": "2m",
    });
    let mut spec = one();
    spec["containers"][0]["readinessProbe"] = json!({ "httpGet": { "port": 80 } });
    world.create("tired", annotations, spec).await;
    world.until::<Pod>("tired", is_ready).await;
    let ready = tokio::time::Instant::now();
    let pod = world.until::<Pod>("tired", |pod| !is_ready(pod)).await;
    assert!(ready.elapsed() >= Duration::from_secs(114) && ready.elapsed() < Duration::from_secs(118));
    assert_eq!((phase(&pod), condition(&pod, "ContainersReady"), restarts(&pod)), ("Running", "False", 0));
    world.wait_for_event("tired", "Unhealthy", "Readiness probe failed: simulated").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_job_succeeds_after_a_second() {
    let world = World::start(1).await;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "task",
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": true }],
        },
        "spec": { "restartPolicy": "Never", "nodeName": "node-0", "containers": [{ "name": "c", "image": "i" }] },
    }))
    .expect("a pod");
    world.pods().create(&PostParams::default(), &pod).await.expect("created");
    let pod = world.until::<Pod>("task", |pod| phase(pod) == "Succeeded").await;
    assert_eq!((condition(&pod, "Ready"), condition(&pod, "Initialized")), ("False", "True"));
    world.pods().delete("task", &DeleteParams::default()).await.expect("deleted");
    world.gone("task").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crashing_container_is_restarted_with_back_off() {
    let world = World::start(1).await;
    world.create("crash", json!({ "simulation.windlass.dev/exit-code": "1" }), one()).await;
    let began = tokio::time::Instant::now();
    let pod = world.until::<Pod>("crash", |pod| waiting(pod) == "CrashLoopBackOff").await;
    assert_eq!((phase(&pod), restarts(&pod)), ("Running", 1));
    world.until::<Pod>("crash", |pod| restarts(pod) == 4).await;
    // 10 s + 20 s + 40 s of back-off, and a second for each of the four runs before.
    assert!(
        began.elapsed() >= Duration::from_secs(74) && began.elapsed() < Duration::from_secs(80),
        "{:?}",
        began.elapsed()
    );
    let uid = pod.metadata.uid.expect("a uid");
    let message = format!("Back-off restarting failed container c in pod crash_default({uid})");
    world.wait_for_event("crash", "BackOff", &message).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_reported() {
    let world = World::start(1).await;
    world.create("pull", json!({ "simulation.windlass.dev/pull-error": "no such image" }), one()).await;
    world.until::<Pod>("pull", |pod| waiting(pod) == "ErrImagePull").await;
    let pod = world.until::<Pod>("pull", |pod| waiting(pod) == "ImagePullBackOff").await;
    assert_eq!(phase(&pod), "Pending");
    world.wait_for_event("pull", "Failed", "Failed to pull image \"nginx\": no such image").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_has_its_grace_period() {
    let world = World::start(1).await;
    world.create("slow", json!({ "simulation.windlass.dev/stop-delay": "20s" }), one()).await;
    world.until::<Pod>("slow", is_ready).await;
    let began = tokio::time::Instant::now();
    world.pods().delete("slow", &DeleteParams::default()).await.expect("deleted");
    // A pod that takes its time is told that its node has seen the deletion.
    let seen = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.observed_generation == Some(2));
    world.until::<Pod>("slow", seen).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    world.gone("slow").await;
    assert!(
        began.elapsed() >= Duration::from_secs(20) && began.elapsed() < Duration::from_secs(21),
        "{:?}",
        began.elapsed()
    );
    world.wait_for_event("slow", "Killing", "Stopping container c").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_with_a_finalizer_shows_how_it_ended() {
    let world = World::start(1).await;
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "kept", "finalizers": ["example.com/kept"] },
        "spec": { "nodeName": "node-0", "containers": [{ "name": "c", "image": "i" }] },
    }))
    .expect("a pod");
    world.pods().create(&PostParams::default(), &pod).await.expect("created");
    world.until::<Pod>("kept", is_ready).await;
    world.pods().delete("kept", &DeleteParams::default()).await.expect("deleted");
    pod = world.until::<Pod>("kept", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(condition(&pod, "Ready"), "False");
    pod = world.until::<Pod>("kept", |pod| pod.metadata.deletion_grace_period_seconds == Some(0)).await;
    pod.metadata.finalizers = None;
    world.pods().replace("kept", &PostParams::default(), &pod).await.expect("released");
    world.gone("kept").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn init_containers_and_sidecars_come_first() {
    let world = World::start(1).await;
    let spec = json!({
        "initContainers": [
            { "name": "first", "image": "i" },
            { "name": "proxy", "image": "i", "restartPolicy": "Always" },
        ],
        "containers": [{ "name": "c", "image": "i" }],
    });
    world.create("web", json!({ "first.simulation.windlass.dev/run-time": "5s" }), spec).await;
    let pod = world.until::<Pod>("web", |pod| waiting(pod) == "PodInitializing").await;
    assert_eq!((phase(&pod), condition(&pod, "Initialized")), ("Pending", "False"));
    let pod = world.until::<Pod>("web", is_ready).await;
    let init = pod.status.and_then(|status| status.init_container_statuses).expect("statuses");
    assert!(init[0].state.as_ref().is_some_and(|state| state.terminated.is_some()) && init[1].ready);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_config_map() {
    let world = World::start(1).await;
    let mut spec = one();
    spec["volumes"] = json!([{ "name": "settings", "configMap": { "name": "settings" } }]);
    world.create("web", json!({}), spec).await;
    let message = "MountVolume.SetUp failed for volume \"settings\" : configmap \"settings\" not found";
    world.wait_for_event("web", "FailedMount", message).await;
    let pod = world.until::<Pod>("web", |pod| waiting(pod) == "ContainerCreating").await;
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), "False");
    let began = tokio::time::Instant::now();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("settings".to_owned());
    Api::default_namespaced(world.client.clone()).create(&PostParams::default(), &map).await.expect("created");
    world.until::<Pod>("web", is_ready).await;
    assert!(began.elapsed() < Duration::from_secs(5), "woken by the watch: {:?}", began.elapsed());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_environment_without_its_secret_is_an_error() {
    let world = World::start(1).await;
    let mut spec = one();
    spec["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "key" } }]);
    world.create("web", json!({}), spec).await;
    world.until::<Pod>("web", |pod| waiting(pod) == "CreateContainerConfigError").await;
    world.wait_for_event("web", "Failed", "Error: secret \"key\" not found").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_is_forgotten_when_no_pod_uses_it() {
    let world = World::start(1).await;
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    let mut secret = Secret::default();
    secret.metadata.name = Some("key".to_owned());
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let mut spec = one();
    spec["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": "key" } }]);
    world.create("first", json!({}), spec.clone()).await;
    world.until::<Pod>("first", is_ready).await;
    world.pods().delete("first", &DeleteParams::default()).await.expect("deleted");
    world.gone("first").await;
    secrets.delete("key", &DeleteParams::default()).await.expect("deleted");
    tokio::time::sleep(Duration::from_secs(1)).await; // a paused clock: until the watch has told of it
    world.create("second", json!({}), spec).await;
    world.until::<Pod>("second", |pod| waiting(pod) == "CreateContainerConfigError").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_is_rejected() {
    let world = World::start(1).await;
    let mut spec = one();
    spec["containers"][0]["resources"] = json!({ "requests": { "cpu": "20" } });
    world.create("first", json!({}), spec.clone()).await;
    world.until::<Pod>("first", is_ready).await;
    world.create("second", json!({}), spec.clone()).await;
    let pod = world.until::<Pod>("second", |pod| phase(pod) == "Failed").await;
    let status = pod.status.expect("a status");
    let message = "Node didn't have enough resource: cpu, requested: 20000, used: 20000, capacity: 32000";
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.message, Some(format!("Pod was rejected: {message}")));
    world.wait_for_event("second", "OutOfcpu", message).await;
    // What a pod used is free when it is gone.
    world.pods().delete("first", &DeleteParams::default()).await.expect("deleted");
    world.gone("first").await;
    world.create("third", json!({}), spec).await;
    world.until::<Pod>("third", is_ready).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_on_after_a_restart_of_the_agent() {
    let world = World::start(1).await;
    world.create("web", json!({}), one()).await;
    world
        .create(
            "task",
            json!({ "simulation.windlass.dev/run-time": "30s" }),
            json!({
                "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
            }),
        )
        .await;
    let before = world.until::<Pod>("web", is_ready).await;
    world.until::<Pod>("task", is_ready).await;
    let world = world.restart().await;
    world.until::<Pod>("task", |pod| phase(pod) == "Succeeded").await;
    let after = world.until::<Pod>("web", is_ready).await;
    assert_eq!(before.status, after.status, "a pod that runs is left alone");
    world.create("new", json!({}), one()).await;
    let new = world.until::<Pod>("new", is_ready).await;
    let ip = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    assert_ne!(ip(&new), ip(&after));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_switched_off_says_nothing() {
    let world = World::start(1).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let mut node = nodes.get("node-0").await.expect("a node");
    node.metadata.annotations.get_or_insert_default().insert("node.windlass.dev/unresponsive".into(), "true".into());
    nodes.replace("node-0", &PostParams::default(), &node).await.expect("switched off");
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-node-lease");
    tokio::time::sleep(Duration::from_secs(60)).await; // a paused clock
    let before = leases.get("node-0").await.expect("a lease").spec;
    tokio::time::sleep(Duration::from_secs(600)).await; // a paused clock
    assert_eq!(before, leases.get("node-0").await.expect("a lease").spec);
    world.stop().await;
}

#[tokio::test]
async fn a_thousand_pods_cost_one_write_each() {
    const NODES: u32 = 50;
    const PODS: u32 = 1000;
    let world = World::start(NODES).await;
    let revision = world.server.api().store.revision();
    let before = *revision.borrow();
    let pods = world.pods();
    let created = (0..PODS).map(|number| {
        let pod = json!({
            "metadata": { "name": format!("p{number}") },
            "spec": {
                "nodeName": format!("node-{}", number % NODES),
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "100m" } } }],
            },
        });
        let (pods, pod) = (pods.clone(), serde_json::from_value::<Pod>(pod).expect("a pod"));
        async move { pods.create(&PostParams::default(), &pod).await.expect("created") }
    });
    futures::future::join_all(created).await;
    let cached = windlass::CachedClient::standalone(world.client.clone(), "test");
    let (lister, changed) = (cached.lister::<Pod>(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let told = std::sync::Arc::clone(&changed);
    let subscription = lister.subscribe(move |_| told.notify_one());
    let all_ready = async {
        while lister.filter(is_ready).len() < PODS as usize {
            changed.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_ready).await.expect("in time");
    let writes = *revision.borrow() - before;
    // Two for each pod; the rest are events, of which there are 100 at once and 50 in each second, and leases.
    let others = 2 * u64::from(PODS)..2 * u64::from(PODS) + 1500;
    assert!(others.contains(&writes), "{writes} writes");
    let ips: std::collections::BTreeSet<String> = pods
        .list(&ListParams::default())
        .await
        .expect("listed")
        .items
        .into_iter()
        .filter_map(|pod| pod.status.and_then(|status| status.pod_ip))
        .collect();
    assert_eq!(ips.len(), PODS as usize, "each has its own address");
    let before = *revision.borrow();
    pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    let all_gone = async {
        while !lister.keys().is_empty() {
            changed.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_gone).await.expect("in time");
    let writes = *revision.borrow() - before;
    // One marks a pod as deleted, the other is its end.
    assert!(others.contains(&writes), "{writes} writes to delete");
    drop(subscription);
    cached.caches().stop().await;
    world.stop().await;
}
