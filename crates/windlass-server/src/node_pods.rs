//! The pods of each node, kept in step with the stored pods through the watch hub.
//!
//! Nothing is kept until the first node asks for something that its pods must be looked at for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Mutex, Notify};
use windlass_store::{Range, Revision, Store, StoreError};

use crate::codec::peek::Raw;
use crate::watch::Hub;

const PREFIX: &str = "/registry/pods/";
/// How many events are taken in at once.
const BATCH: usize = 1000;
/// How many pods are read together when the index is built.
const PAGE: usize = 2000;
/// How long a request waits for the watch hub.
const HUB_TIMEOUT: Duration = Duration::from_secs(2);

/// See the module's introduction.
pub(crate) struct NodePods {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    pods: RwLock<Pods>,
    /// The revision up to which pods have been taken in; `None` before the first request.
    seen: Mutex<Option<Revision>>,
    wanted: Notify,
}

/// Which pod is bound to which node. Pods are named `namespace/name`.
#[derive(Default)]
struct Pods {
    nodes: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    bound: HashMap<Arc<str>, Arc<str>>,
}

impl Pods {
    fn bind(&mut self, pod: &str, node: &str) {
        if self.bound.get(pod).is_some_and(|known| **known == *node) {
            return;
        }
        self.remove(pod);
        if node.is_empty() {
            return;
        }
        let (pod, node): (Arc<str>, Arc<str>) = (pod.into(), node.into());
        self.nodes.entry(Arc::clone(&node)).or_default().insert(Arc::clone(&pod));
        self.bound.insert(pod, node);
    }

    fn remove(&mut self, pod: &str) {
        let Some(node) = self.bound.remove(pod) else { return };
        if let Some(pods) = self.nodes.get_mut(&node) {
            pods.remove(pod);
            if pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }

    fn of(&self, node: &str, namespace: Option<&str>) -> Vec<Arc<str>> {
        let Some(pods) = self.nodes.get(node) else { return Vec::new() };
        let Some(namespace) = namespace else { return pods.iter().cloned().collect() };
        let first: Arc<str> = format!("{namespace}/").into();
        let here = pods.range(Arc::clone(&first)..);
        here.take_while(|pod| pod.starts_with(&*first)).cloned().collect()
    }
}

impl NodePods {
    /// An index of what is stored, which is empty until a node asks.
    pub(crate) fn new(store: Arc<dyn Store>, hub: Arc<Hub>) -> Self {
        Self { store, hub, pods: RwLock::default(), seen: Mutex::default(), wanted: Notify::new() }
    }

    /// The pods of a node, all or those of a namespace.
    pub(crate) async fn of(&self, node: &str, namespace: Option<&str>) -> Vec<Arc<str>> {
        if self.seen.lock().await.is_none() {
            self.wanted.notify_one();
            self.refresh().await;
        }
        self.pods.read().of(node, namespace)
    }

    /// Waits until the pods that are stored now have been taken in.
    pub(crate) async fn catch_up(&self) {
        let target = *self.store.revision().borrow();
        let mut progress = self.hub.progress();
        let waited = tokio::time::timeout(HUB_TIMEOUT, progress.wait_for(|progress| *progress >= target)).await;
        drop(waited);
        self.refresh().await;
    }

    /// Follows pods from the first request of a node until the hub is gone.
    pub(crate) async fn run(&self) {
        self.wanted.notified().await;
        let Ok(channel) = self.hub.channel(PREFIX).await else { return };
        let mut newest = channel.subscribe();
        loop {
            newest.borrow_and_update();
            self.refresh().await;
            if newest.changed().await.is_err() {
                return;
            }
        }
    }

    async fn refresh(&self) {
        if let Err(error) = self.take_in().await {
            tracing::error!(%error, "the pods of nodes cannot be read");
        }
    }

    /// Takes in what the hub has delivered.
    async fn take_in(&self) -> Result<(), StoreError> {
        let mut seen = self.seen.lock().await;
        let channel = self.hub.channel(PREFIX).await?;
        loop {
            let events = match *seen {
                Some(revision) => channel.read(revision, BATCH).ok(),
                None => None,
            };
            let Some(events) = events else {
                *seen = Some(self.reload().await?);
                continue;
            };
            let Some(last) = events.last() else { return Ok(()) };
            let mut pods = self.pods.write();
            for change in &events {
                let event = &change.event;
                let Some(pod) = name(&event.key) else { continue };
                if event.deleted { pods.remove(pod) } else { pods.bind(pod, &node(&event.entry.value)) }
            }
            drop(pods);
            *seen = Some(last.event.revision);
        }
    }

    /// Starts anew from what is stored, a page at a time. Returns the revision of that.
    async fn reload(&self) -> Result<Revision, StoreError> {
        let mut all = Pods::default();
        let snapshot = self.store.range(Range::prefix(PREFIX), None, 0).await?;
        for page in snapshot.entries.chunks(PAGE) {
            for entry in page {
                if let Some(pod) = name(&entry.key) {
                    all.bind(pod, &node(&entry.value));
                }
            }
            tokio::task::yield_now().await;
        }
        *self.pods.write() = all;
        Ok(snapshot.revision)
    }
}

fn name(key: &[u8]) -> Option<&str> {
    key.strip_prefix(PREFIX.as_bytes()).and_then(|name| std::str::from_utf8(name).ok())
}

fn node(pod: &[u8]) -> String {
    let node = Raw::new(pod).path(&["spec", "nodeName"]).and_then(|node| node.as_str());
    node.unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_move_between_nodes() {
        let mut pods = Pods::default();
        let of = |pods: &Pods, node: &str, namespace: Option<&str>| {
            pods.of(node, namespace).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        pods.bind("a/p", "");
        assert!(of(&pods, "", None).is_empty());
        for pod in ["a/p", "ab/q", "a/r"] {
            pods.bind(pod, "n");
        }
        assert_eq!(of(&pods, "n", Some("a")), ["a/p", "a/r"]);
        assert_eq!(of(&pods, "n", None), ["a/p", "a/r", "ab/q"]);
        pods.bind("a/p", "m");
        assert_eq!(of(&pods, "n", Some("a")), ["a/r"]);
        assert_eq!(of(&pods, "m", None), ["a/p"]);
        pods.remove("a/p");
        pods.remove("a/unknown");
        assert!(!pods.nodes.contains_key("m") && pods.bound.len() == 2);
    }
}
