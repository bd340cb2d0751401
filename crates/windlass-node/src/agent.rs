//! The node agent: what a kubelet is to a node, for one node or for thousands.
//!
//! [`Agent::add_to`] adds two controllers to a manager. One keeps nodes: it adopts the Nodes that are the agent's, reports
//! their status and renews their leases. The other runs the pods that are bound to them: it asks the pure state machine in
//! `pod` what to do, has the [`Runtime`] do it, and tells the API what changed. All nodes share the manager's watches.

mod mounts;
mod nodes;
mod pods;
mod sources;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use windlass::controller::Enqueuer;
use windlass::events::{Broadcaster, EventApi};
use windlass::manager::ManagerError;
use windlass::{Controller, Manager, ObjectKey, predicate};

use crate::access::{PodAccess, Reachable};
use crate::api::Api;
use crate::events::Reporter;
use crate::network::{Ordinals, PodRange};
use crate::pod::Observation;
use crate::pod::admission::NodeTraits;
use crate::resources::Resources;
use crate::runtime::{Runtime, RuntimeEvent};
use crate::volumes::Reference;
use pods::Held;
use sources::Sources;

pub(crate) use nodes::simulated;

/// Pods that are worked on at the same time. Most of that time they wait for the server.
const POD_WORKERS: usize = 64;
const NODE_WORKERS: usize = 64;
/// The index of pods by the node that they are bound to.
const NODE_INDEX: &str = "windlass-node/node";

/// Decides which pods of its nodes an agent leaves to another component.
type Leaves = Box<dyn Fn(&Pod) -> bool + Send + Sync>;
/// Decides of which nodes an agent leaves the conditions to another component.
type LeavesConditions = Box<dyn Fn(&Node) -> bool + Send + Sync>;
/// Decides which Nodes are an agent's.
type Adopts = Box<dyn Fn(&Node) -> bool + Send + Sync>;

/// What a kubelet is to a node, for one node or for thousands: it adopts Nodes, reports their status, renews their leases,
/// and runs the pods that are bound to them with a [`Runtime`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use windlass::Manager;
/// use windlass_node::{Agent, Simulation};
///
/// let client = windlass::config::client().await?;
/// let mut manager = Manager::builder(client.clone()).name("kubelet").build()?;
/// // Every Node with the annotation `node.windlass.dev/simulated: "true"`, and node-0 to node-2, which it creates.
/// Agent::simulated(client).register(3).add_to(&mut manager)?;
/// manager.run().await?;
/// # Ok(()) }
/// ```
#[must_use = "an agent does nothing until it is added to a manager"]
pub struct Agent<R> {
    runtime: R,
    client: kube::Client,
    adopts: Adopts,
    register: u32,
    node: Option<Node>,
    access: PodAccess,
    leaves: Option<Leaves>,
    leaves_conditions: Option<LeavesConditions>,
}

impl<R> std::fmt::Debug for Agent<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("register", &self.register).finish_non_exhaustive()
    }
}

/// What everything of a running agent shares.
struct Shared<R> {
    runtime: R,
    api: Api,
    adopts: Adopts,
    leaves: Option<Leaves>,
    leaves_conditions: Option<LeavesConditions>,
    /// Addresses of pods that were left to another component.
    lent: Mutex<HashMap<String, (Arc<NodeEntry>, IpAddr)>>,
    nodes: RwLock<HashMap<Arc<str>, Arc<NodeEntry>>>,
    ordinals: Mutex<Option<Ordinals>>,
    pods: Mutex<HashMap<ObjectKey, PodEntry>>,
    /// Pods that have ended, by their uid, whose output the runtime keeps as long as there is an object.
    finished: Mutex<HashMap<ObjectKey, Arc<str>>>,
    /// Pods that wait for an object to exist.
    waiting: Mutex<HashMap<(String, Reference), Vec<ObjectKey>>>,
    /// Pods that run and show the content of an object.
    following: Mutex<HashMap<(String, Reference), HashSet<ObjectKey>>>,
    sources: Sources,
    reporter: Reporter,
    wake_pod: Enqueuer,
    /// Operations of the runtime that are under way.
    tasks: TaskTracker,
    shutdown: CancellationToken,
    /// Itself, for those tasks.
    this: Weak<Self>,
}

/// A node that the agent has adopted.
struct NodeEntry {
    name: Arc<str>,
    ordinal: Option<u32>,
    address: IpAddr,
    state: Mutex<NodeState>,
}

/// What a node has, and what is used of it.
struct NodeState {
    traits: NodeTraits,
    /// The version of the Node that this is about.
    version: Option<String>,
    allocatable: Arc<Resources>,
    used: Resources,
    pods: i64,
    range: Option<PodRange>,
}

/// A pod that the agent works on.
struct PodEntry {
    uid: Arc<str>,
    /// What has happened since the pod was worked on last.
    inbox: Vec<Observation>,
    /// Taken while the pod is worked on.
    held: Option<Box<Held>>,
}

impl<R: Runtime> Agent<R> {
    /// An agent for the Nodes that a function accepts. Requests are made with this client, each with the
    /// [node](crate::ActingNode) that it is made for.
    pub fn new(runtime: R, client: kube::Client, adopts: impl Fn(&Node) -> bool + Send + Sync + 'static) -> Self {
        Self {
            runtime,
            client,
            adopts: Box::new(adopts),
            register: 0,
            node: None,
            access: PodAccess::default(),
            leaves: None,
            leaves_conditions: None,
        }
    }

    /// Creates the Nodes `node-0` to `node-(count - 1)` if they do not exist, marked as simulated.
    pub fn register(mut self, count: u32) -> Self {
        self.register = count;
        self
    }

    /// Creates this Node if it does not exist.
    pub fn node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// Leaves pods that a function accepts to another component, which writes their status and ends them.
    pub fn leave(mut self, leaves: impl Fn(&Pod) -> bool + Send + Sync + 'static) -> Self {
        self.leaves = Some(Box::new(leaves));
        self
    }

    /// Leaves the conditions of nodes that a function accepts to another component, from when they have been Ready once. Leases
    /// are renewed nevertheless.
    pub fn leave_conditions(mut self, leaves: impl Fn(&Node) -> bool + Send + Sync + 'static) -> Self {
        self.leaves_conditions = Some(Box::new(leaves));
        self
    }

    /// Reaches the containers that the agent runs, once it was added to a manager.
    pub fn access(&self) -> PodAccess {
        self.access.clone()
    }

    /// Adds the agent's controllers to a manager, whose watches they use.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), ManagerError> {
        let pods = Controller::<Pod>::new("node-agent-pods");
        // Events are written by nodes, not by the manager.
        let events = Broadcaster::new(EventApi::CoreV1);
        let (recorder, client) = (events.recorder("kubelet"), self.client.clone());
        manager.add_task("node-agent-events", |shutdown| async move {
            events.run(client, shutdown.clone()).await;
            Ok::<_, Infallible>(())
        })?;
        let shared = Arc::new_cyclic(|this| Shared {
            runtime: self.runtime,
            api: Api::new(self.client),
            adopts: self.adopts,
            leaves: self.leaves,
            leaves_conditions: self.leaves_conditions,
            lent: Mutex::default(),
            finished: Mutex::default(),
            nodes: RwLock::default(),
            ordinals: Mutex::default(),
            pods: Mutex::default(),
            waiting: Mutex::default(),
            following: Mutex::default(),
            sources: Sources::default(),
            reporter: Reporter::new(recorder),
            wake_pod: pods.enqueuer(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            this: Weak::clone(this),
        });
        let reachable: Weak<dyn Reachable> = Weak::<Shared<R>>::clone(&shared.this);
        self.access.set(reachable);
        let (of_maps, of_secrets) = (Arc::clone(&shared), Arc::clone(&shared));
        manager.lister::<Pod>().add_index(NODE_INDEX, |pod| {
            pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).into_iter().collect()
        });
        manager.add(
            pods.predicate(predicate::object(|pod: &Pod| {
                pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
            }))
            .watches_metadata::<ConfigMap, _, _>(move |map, _| {
                of_maps.awaited(&ObjectKey::of(map), Reference::ConfigMap)
            })
            .watches_metadata::<Secret, _, _>(move |secret, _| {
                of_secrets.awaited(&ObjectKey::of(secret), Reference::Secret)
            })
            .concurrency(POD_WORKERS)
            .complete(pods::Pods(Arc::clone(&shared))),
        )?;
        manager.add(
            Controller::<Node>::new("node-agent-nodes")
                .concurrency(NODE_WORKERS)
                .complete(nodes::Nodes::new(Arc::clone(&shared))),
        )?;
        let (register, node, registering) = (self.register, self.node, Arc::clone(&shared));
        manager.add_task("node-agent", move |shutdown| async move {
            let registered = nodes::register(&registering, register, node);
            tokio::join!(shutdown.run_until_cancelled(registered), shared.relay(&shutdown));
            shared.shutdown.cancel();
            shared.tasks.close();
            shared.tasks.wait().await;
            Ok::<_, std::convert::Infallible>(())
        })
    }
}

impl<R: Runtime> Reachable for Shared<R> {
    fn has_node(&self, name: &str) -> bool {
        self.nodes.read().contains_key(name)
    }

    fn runtime(&self) -> &dyn Runtime {
        &self.runtime
    }

    fn node_address(&self, node: &str) -> Option<IpAddr> {
        self.node(node).map(|node| node.address)
    }

    fn lend_address(&self, pod: &Pod) -> Option<IpAddr> {
        let spec = pod.spec.as_ref()?;
        let node = self.node(spec.node_name.as_deref()?)?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut lent = self.lent.lock();
        if let Some((_, address)) = lent.get(&uid) {
            return Some(*address);
        }
        let address = node.address_for(pod, spec)?;
        lent.insert(uid, (node, address));
        Some(address)
    }

    fn return_address(&self, uid: &str) {
        if let Some((node, address)) = self.lent.lock().remove(uid) {
            node.free(address);
        }
    }
}

impl<R: Runtime> Shared<R> {
    /// Passes on what the runtime says.
    async fn relay(&self, shutdown: &CancellationToken) {
        let mut events = self.runtime.events();
        let relaying = async {
            while let Some(event) = events.next().await {
                self.deliver(event);
            }
            // A runtime with nothing more to say is no reason to end.
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(relaying).await;
    }

    fn deliver(&self, event: RuntimeEvent) {
        let key = ObjectKey::new(&event.namespace, &event.name);
        let seen = Observation::Happened(event.container, event.attempt, event.event);
        self.observe(key, &event.uid, seen);
    }

    /// Has a pod worked on, with something that has happened to it.
    fn observe(&self, key: ObjectKey, uid: &str, seen: Observation) {
        let mut pods = self.pods.lock();
        if let Some(entry) = pods.get_mut(&key).filter(|entry| &*entry.uid == uid) {
            entry.inbox.push(seen);
            drop(pods);
            self.wake_pod.enqueue(key);
        }
    }

    /// The pods that wait for an object, or show what it has.
    fn awaited(&self, object: &ObjectKey, kind: fn(String) -> Reference) -> Vec<ObjectKey> {
        let namespace = object.namespace().unwrap_or_default();
        // Also without a pod that uses it: the next one that does must not get what was deleted or replaced meanwhile.
        self.sources.forget(namespace, object.name());
        let mut keys = Vec::new();
        {
            let (mut waiting, following) = (self.waiting.lock(), self.following.lock());
            if waiting.is_empty() && following.is_empty() {
                return keys;
            }
            let wanted = (namespace.to_owned(), kind(object.name().to_owned()));
            keys.extend(waiting.remove(&wanted).unwrap_or_default());
            keys.extend(following.get(&wanted).into_iter().flatten().cloned());
        }
        let mut pods = self.pods.lock();
        for key in &keys {
            if let Some(entry) = pods.get_mut(key) {
                entry.inbox.push(Observation::Sources);
            }
        }
        keys
    }

    fn node(&self, name: &str) -> Option<Arc<NodeEntry>> {
        self.nodes.read().get(name).cloned()
    }
}
