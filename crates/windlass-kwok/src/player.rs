//! Carries out stages: those of pods and nodes, and those of any other kind that the cluster serves.
//!
//! A pod that a stage is for as soon as it was bound is *led* by stages: the node agent leaves it alone. All other pods are run
//! by the agent, and stages can still change them, as those that make pods fail do. A node that a stage is for as soon as it is
//! Ready, or before, is led as well: its conditions are left to stages, its lease is renewed by the agent. An object is looked
//! at whenever it changes or its stage is due; there is no task and no timer per object.

mod acting;
mod functions;
mod kinds;
mod stages;

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass::cache::Lister;

use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, Object, ObjectKey, Outcome, Reconcile};
use windlass_node::PodAccess;

use crate::objects;
use crate::stage::{Stage, choose};
use acting::Actor;

pub use stages::Stages;

/// Objects of a kind that are worked on at the same time.
const WORKERS: usize = 32;
/// The least time between two stages of which the first says that the second follows at once.
const IMMEDIATE: Duration = Duration::from_millis(100);

/// Has stages carried out for the nodes of an agent and their pods, and for all objects of other kinds. Requests are made with
/// this client.
pub fn add(
    manager: &mut Manager,
    client: kube::Client,
    stages: &Stages,
    access: PodAccess,
) -> Result<(), ManagerError> {
    let (pods, nodes): (Lister<Pod>, Lister<Node>) = (manager.lister(), manager.lister());
    let actor = Arc::new(Actor::new(client, access, manager.recorder("kwok")));
    manager.add(
        Controller::<Pod>::new("kwok-pods")
            // A stage that changes may be for any pod.
            .watches::<objects::Stage, _, _>(move |_, _| pods.keys())
            .concurrency(WORKERS)
            .complete(Player::new(stages, &actor, ApiResource::erase::<Pod>(&()))),
    )?;
    manager.add(
        Controller::<Node>::new("kwok-nodes")
            .watches::<objects::Stage, _, _>(move |_, _| nodes.keys())
            .concurrency(WORKERS)
            .complete(Player::new(stages, &actor, ApiResource::erase::<Node>(&()))),
    )?;
    let changed = watch::Sender::new(0_u64);
    let follower = kinds::Follower::new(stages, &actor, changed.subscribe());
    manager.add(Controller::<objects::Stage>::new("kwok-stages").complete_keyed(windlass::controller::from_key_fn(
        move |_, _| {
            changed.send_modify(|count| *count += 1);
            async { Ok(Outcome::Done) }
        },
    )))?;
    manager.add_task("kwok-kinds", |shutdown| async move {
        follower.run(shutdown).await;
        Ok::<_, Infallible>(())
    })
}

/// Plays the stages of the objects of a kind.
struct Player {
    actor: Arc<Actor>,
    stages: Stages,
    resource: ApiResource,
    playing: Mutex<HashMap<ObjectKey, Playing>>,
}

/// Where an object is.
struct Playing {
    uid: String,
    /// The version of the object that this is about.
    version: String,
    next: Next,
}

enum Next {
    /// A stage is due then.
    Due(Arc<Stage>, Instant),
    /// Its stage was carried out, and the watch shows what came of it.
    Played,
}

impl<K: Object + Serialize> Reconcile<K> for Player {
    async fn reconcile(&self, object: Arc<K>, _: Context) -> windlass::Result {
        let key = ObjectKey::of(&*object);
        let typed = &*object as &dyn Any;
        let (pod, node) = (typed.downcast_ref::<Pod>(), typed.downcast_ref::<Node>());
        let stages = self.stages.of(&self.resource.api_version, &self.resource.kind);
        if stages.is_empty() || !self.actor.is_ours(pod, node) {
            self.forget(&key);
            return Ok(Outcome::Done);
        }
        let is_led_pod = pod.is_some_and(|pod| self.stages.lead(pod));
        if let Some(pod) = pod.filter(|_| is_led_pod) {
            // The address that it has is taken, also after a restart.
            self.actor.access.lend_address(pod);
        }
        let mut json = serde_json::to_value(&*object)?;
        if let Some(node) = node {
            stages::complete_node(&mut json, node);
        }
        let subject = acting::Subject::new(&self.resource, &key, json, pod);
        let now = Instant::now();
        let Some((stage, at)) = self.next(&key, &subject, &stages, now) else {
            // Nothing would ever end a pod that no other component runs.
            if is_led_pod && pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
                self.actor.delete(&subject).await?;
            }
            return Ok(Outcome::Done);
        };
        if at > now {
            return Ok(Outcome::RequeueAfter(at - now));
        }
        self.actor.play(&subject, &stage).await?;
        let mut playing = self.playing.lock();
        if stage.is_immediate() {
            playing.remove(&key);
            return Ok(Outcome::RequeueAfter(IMMEDIATE));
        }
        if let Some(known) = playing.get_mut(&key) {
            known.next = Next::Played;
        }
        Ok(Outcome::Done)
    }

    async fn gone(&self, key: ObjectKey, _: Context) -> windlass::Result {
        self.forget(&key);
        Ok(Outcome::Done)
    }
}

impl Player {
    fn new(stages: &Stages, actor: &Arc<Actor>, resource: ApiResource) -> Self {
        Self { actor: Arc::clone(actor), stages: stages.clone(), resource, playing: Mutex::default() }
    }

    /// The stage that an object is in, and when it is due. It is chosen once for each version of the object.
    fn next(
        &self,
        key: &ObjectKey,
        subject: &acting::Subject<'_>,
        stages: &[Arc<Stage>],
        now: Instant,
    ) -> Option<(Arc<Stage>, Instant)> {
        let mut random = |below: u64| fastrand::u64(..below.max(1));
        let text = |field: &str| metadata(&subject.object, field).to_owned();
        let (uid, version) = (text("uid"), text("resourceVersion"));
        let mut playing = self.playing.lock();
        let known = playing.get(key).filter(|known| known.uid == uid && known.version == version);
        let due = match known.map(|known| &known.next) {
            Some(Next::Played) => return None,
            Some(Next::Due(stage, at)) if stages.iter().any(|other| Arc::ptr_eq(other, stage)) => {
                Some((Arc::clone(stage), *at))
            }
            _ => choose(stages, &subject.object, &mut random).map(|stage| {
                let delay = stage.delay(&subject.object, Timestamp::now(), &mut random);
                (Arc::clone(stage), now + delay)
            }),
        };
        let next = due.as_ref().map_or(Next::Played, |(stage, at)| Next::Due(Arc::clone(stage), *at));
        playing.insert(key.clone(), Playing { uid, version, next });
        due
    }

    fn forget(&self, key: &ObjectKey) {
        if let Some(known) = self.playing.lock().remove(key) {
            self.actor.access.return_address(&known.uid);
        }
    }
}

/// The text of a field of an object's metadata.
fn metadata<'o>(object: &'o Value, field: &str) -> &'o str {
    object["metadata"][field].as_str().unwrap_or_default()
}
