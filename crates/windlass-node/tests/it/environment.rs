//! What the containers of an agent are told when they start.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use parking_lot::Mutex;
use serde_json::json;
use windlass::{CancellationToken, Manager};
use windlass_node::runtime::{
    Connection, ContainerRef, ExecOptions, Image, LogOptions, Operation, PodSandbox, Recovered, Runtime, RuntimeEvent,
    Session, Started,
};
use windlass_node::volumes::Mounted;
use windlass_node::{Agent, Simulation};
use windlass_server::Server;

use crate::is_ready;

/// The environments of containers, by their names.
type Environments = BTreeMap<String, Vec<(String, String)>>;

/// A simulation that takes note of the environments of its containers.
#[derive(Clone, Default)]
struct Recorder {
    simulation: Simulation,
    environments: Arc<Mutex<Environments>>,
}

impl Runtime for Recorder {
    fn version(&self) -> String {
        self.simulation.version()
    }

    fn recover(&self, pod: &PodSandbox) -> Operation<Vec<Recovered>> {
        self.simulation.recover(pod)
    }

    fn create(&self, pod: &PodSandbox, volumes: &Arc<Mounted>) -> Operation<()> {
        self.simulation.create(pod, volumes)
    }

    fn pull(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Image> {
        self.simulation.pull(pod, container)
    }

    fn start(&self, pod: &PodSandbox, container: &ContainerRef<'_>) -> Operation<Started> {
        self.environments.lock().insert(container.spec.name.clone(), container.environment.to_vec());
        self.simulation.start(pod, container)
    }

    fn stop(&self, pod: &PodSandbox, container: &ContainerRef<'_>, grace: std::time::Duration) {
        self.simulation.stop(pod, container, grace);
    }

    fn remove(&self, pod: &PodSandbox) -> Operation<()> {
        self.simulation.remove(pod)
    }

    fn events(&self) -> BoxStream<'static, RuntimeEvent> {
        self.simulation.events()
    }

    fn logs(&self, pod: &PodSandbox, container: &str, options: &LogOptions) -> Operation<BoxStream<'static, Bytes>> {
        self.simulation.logs(pod, container, options)
    }

    fn exec(&self, pod: &PodSandbox, container: &str, command: &ExecOptions) -> Operation<Session> {
        self.simulation.exec(pod, container, command)
    }

    fn attach(&self, pod: &PodSandbox, container: &str, terminal: bool) -> Operation<Session> {
        self.simulation.attach(pod, container, terminal)
    }

    fn port(&self, pod: &PodSandbox, port: u16) -> Operation<Box<dyn Connection>> {
        self.simulation.port(pod, port)
    }
}

#[tokio::test(start_paused = true)]
async fn containers_know_their_addresses_at_the_first_start() {
    let server = Server::builder().start().await.expect("a server");
    let client = kube::Client::new(server.service(), "default");
    let mut manager =
        Manager::builder(client.clone()).name("nodes").check_permissions(false).build().expect("a manager");
    let recorder = Recorder::default();
    let agent = Agent::new(recorder.clone(), client.clone(), windlass_node::is_simulated).register(1);
    agent.add_to(&mut manager).expect("added");
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(shutdown.clone()));

    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let env = [
        field("POD_IP", "status.podIP"),
        field("POD_IPS", "status.podIPs"),
        field("HOST_IP", "status.hostIP"),
        field("HOST_IPS", "status.hostIPs"),
        json!({ "name": "CPUS", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } }),
    ];
    let container = |name: &str| json!({ "name": name, "image": "i", "env": env });
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "nodeName": "node-0", "initContainers": [container("first")], "containers": [container("main")] },
    });
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
    let pod = await_condition(pods, "web", |pod: Option<&Pod>| pod.is_some_and(is_ready));
    let pod = pod.await.expect("watched").expect("a pod");

    let status = pod.status.expect("a status");
    let (pod_ip, host_ip) = (status.pod_ip.expect("an address"), status.host_ip.expect("an address"));
    let own = |pairs: [(&str, &str); 5]| pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let expected =
        own([("POD_IP", &pod_ip), ("POD_IPS", &pod_ip), ("HOST_IP", &host_ip), ("HOST_IPS", &host_ip), ("CPUS", "32")]);
    for name in ["first", "main"] {
        assert_eq!(recorder.environments.lock().get(name), Some(&expected), "{name}");
    }
    shutdown.cancel();
    running.await.expect("no panic").expect("it ran");
    server.stop().await.expect("stopped");
}
