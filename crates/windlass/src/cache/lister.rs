//! Reading one kind from the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use kube::api::ApiResource;
use kube::core::{Selector, SelectorExt};
use tokio_util::sync::CancellationToken;

use crate::key::ObjectKey;
use crate::object::{AsObject, Object, describe};
use crate::reflector::{Change, Reflector, Store, Subscription, SyncError};

/// Reads objects of one kind from the cache. Clones share the cache.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use windlass::{ObjectKey, cache::Lister};
/// # fn example(pods: Lister<Pod>) {
/// let one: Option<Arc<Pod>> = pods.get(&ObjectKey::new("default", "web-0"));
/// let web: Vec<Arc<Pod>> = pods.labelled("app", "web");
/// pods.add_index("node", |pod: &Pod| {
///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
/// });
/// let on_node = pods.by_index("node", "node-1");
/// # }
/// ```
pub struct Lister<K: Object> {
    /// Each of another namespace, or one: no two know the same object.
    reflectors: Arc<[Arc<Reflector<K>>]>,
    sync_timeout: Duration,
    /// Cancelled when nobody may wait any more.
    closing: CancellationToken,
}

impl<K: Object> Clone for Lister<K> {
    fn clone(&self) -> Self {
        let (reflectors, closing) = (Arc::clone(&self.reflectors), self.closing.clone());
        Self { reflectors, sync_timeout: self.sync_timeout, closing }
    }
}

impl<K: Object> std::fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister")
            .field("kind", &self.reflectors.first().map(|i| i.describe()))
            .field("objects", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Object> Lister<K> {
    pub(super) fn new(reflectors: Vec<Arc<Reflector<K>>>, sync_timeout: Duration, closing: CancellationToken) -> Self {
        Self { reflectors: reflectors.into(), sync_timeout, closing }
    }

    /// Whether these are the objects of a resource.
    pub(crate) fn is_of(&self, resource: &ApiResource) -> bool {
        self.reflectors.iter().all(|reflector| reflector.describe() == describe(resource))
    }

    /// One object; `None` also when it is outside of what is watched.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let reflector = self.reflectors.iter().find(|reflector| reflector.covers(key.namespace()))?;
        reflector.read(|store| store.get(key))
    }

    /// Whether a namespace (`None`: objects of no namespace) is watched; the error names what is.
    pub fn check_covers(&self, namespace: Option<&str>) -> Result<(), SyncError> {
        if self.reflectors.iter().any(|reflector| reflector.covers(namespace)) {
            return Ok(());
        }
        let watched: BTreeSet<&str> = self.reflectors.iter().filter_map(|reflector| reflector.namespace()).collect();
        Err(SyncError::NotWatched {
            kind: self.reflectors.first().map(|reflector| reflector.describe()).unwrap_or_default(),
            namespace: namespace.unwrap_or_default().to_owned(),
            watched: watched.into_iter().collect::<Vec<_>>().join(", "),
        })
    }

    /// What this process wrote in another version of the kind, and is not known in this one yet.
    pub(crate) fn behind(&self) -> BTreeSet<ObjectKey> {
        self.reflectors.iter().flat_map(|reflector| reflector.read(Store::behind)).collect()
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.filter(|_| true)
    }

    /// The keys of all objects, in no particular order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = Vec::new();
        for reflector in &*self.reflectors {
            keys.extend(reflector.read(|store| store.keys().cloned().collect::<Vec<_>>()));
        }
        keys
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.gather(|store| {
            let keys = store.keys().filter(|key| key.namespace() == Some(namespace));
            keys.filter_map(|key| store.get(key)).collect()
        })
    }

    /// All objects that a predicate accepts. The predicate must not use the cache of this kind.
    pub fn filter(&self, accept: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.gather(|store| store.iter().filter(|object| accept(object)).collect())
    }

    /// All objects whose labels a selector matches.
    pub fn matching(&self, selector: &Selector) -> Vec<Arc<K>> {
        let none = BTreeMap::new();
        self.filter(|object| selector.matches(object.meta().labels.as_ref().unwrap_or(&none)))
    }

    /// All objects with a label of this value, through an index made at the first call.
    pub fn labelled(&self, label: &str, value: &str) -> Vec<Arc<K>> {
        let name = format!("label/{label}");
        let label = label.to_owned();
        self.ensure_index(&name, move |object: &K| {
            let labels = object.meta().labels.as_ref();
            labels.and_then(|labels| labels.get(&label)).cloned().into_iter().collect()
        });
        self.read_index(&name, value)
    }

    /// All objects owned by another (controller or not), through an index made at the first call.
    pub fn owned_by<Form>(&self, owner: &impl AsObject<Form>) -> Vec<Arc<K>> {
        let uid = owner.as_object().meta().uid.as_deref();
        uid.map(|uid| self.owned_by_uid(uid)).unwrap_or_default()
    }

    pub(crate) fn owned_by_uid(&self, uid: &str) -> Vec<Arc<K>> {
        self.ensure_index("owner", |object: &K| {
            let owners = object.meta().owner_references.iter().flatten();
            owners.map(|owner| owner.uid.clone()).collect()
        });
        self.read_index("owner", uid)
    }

    /// Adds an index: `values` names what an object is filed under. A name that exists is kept.
    /// Indexes may be added at any time; what is known is filed at once.
    pub fn add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        self.ensure_index(&format!("user/{name}"), values);
    }

    /// Adds an index unless there is one of that name; false if there is.
    pub(crate) fn try_add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> bool {
        let (name, values) = (format!("user/{name}"), Arc::new(values));
        if self.reflectors.iter().any(|reflector| reflector.read(|store| store.has_index(&name))) {
            return false;
        }
        let mut added = self.reflectors.iter().map(|reflector| {
            let values = Arc::clone(&values);
            reflector.ensure_index(&name, move || values)
        });
        // Of two calls at once, the one that was first at the first of them wins.
        let first = added.next().unwrap_or(true);
        first && added.fold(true, |all, _| all)
    }

    pub(crate) fn reflectors(&self) -> &[Arc<Reflector<K>>] {
        &self.reflectors
    }

    /// All objects filed under a value of an index added with [`add_index`](Self::add_index); none if
    /// there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.read_index(&format!("user/{index}"), value)
    }

    /// Whether an index of this name was added with [`add_index`](Self::add_index).
    pub fn has_index(&self, index: &str) -> bool {
        let name = format!("user/{index}");
        self.reflectors.iter().all(|reflector| reflector.read(|store| store.has_index(&name)))
    }

    /// Whether an index would file an object under a value.
    pub(crate) fn files(&self, index: &str, value: &str, object: &K) -> bool {
        let name = format!("user/{index}");
        self.reflectors.iter().any(|reflector| reflector.read(|store| store.files(&name, value, object)))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.reflectors.iter().map(|reflector| reflector.read(Store::len)).sum()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the kind has been listed completely once.
    pub fn is_synced(&self) -> bool {
        self.reflectors.iter().all(|reflector| reflector.is_synced())
    }

    /// Waits until the kind has been listed completely once. The error names the kind and what
    /// stands in the way; if that is a missing permission, or the manager is stopping, there is no
    /// waiting.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        for reflector in &*self.reflectors {
            reflector.wait_for_reader(self.sync_timeout, &self.closing).await?;
        }
        Ok(())
    }

    /// Calls a handler for every object that is known and then for every change, until the
    /// subscription is dropped. The handler must not block, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let handler = Arc::new(handler);
        let subscriptions: Vec<_> = self
            .reflectors
            .iter()
            .map(|reflector| {
                let handler = Arc::clone(&handler);
                reflector.subscribe(move |change| handler(change))
            })
            .collect();
        Subscription::joined(subscriptions)
    }

    fn ensure_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let values = Arc::new(values);
        for reflector in &*self.reflectors {
            let values = Arc::clone(&values);
            reflector.ensure_index(name, move || values);
        }
    }

    fn read_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        self.gather(|store| store.by_index(name, value))
    }

    fn gather(&self, read: impl Fn(&Store<K>) -> Vec<Arc<K>>) -> Vec<Arc<K>> {
        let mut found: Vec<Arc<K>> = Vec::new();
        for reflector in &*self.reflectors {
            found.extend(reflector.read(&read));
        }
        found
    }
}
