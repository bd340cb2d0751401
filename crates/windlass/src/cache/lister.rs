//! Reading one kind from the cache.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource as _;
use kube::api::ApiResource;
use kube::core::Selector;

use super::known::Known;
use super::reading::{Reading, Take};
use crate::key::ObjectKey;
use crate::object::{AsObject, Object, describe};
use crate::reflector::{AnyHandler, AnyObject, Change, IndexFn, Reflector, Subscription, SyncError, typed, typed_ref};

/// Reads objects of one kind from the cache, without requests to the server. Clones share the cache.
///
/// Objects are shared: to change one, change a copy of it and write that (`Draft` does). A lister does not wait:
/// before the first list of the kind is complete it shows what has arrived so far. [`wait_synced`](Self::wait_synced)
/// waits for that.
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
    reading: Arc<Reading>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.reading))
    }
}

impl<K: Object> std::fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister")
            .field("kind", &self.reading.describe())
            .field("objects", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Object> Lister<K> {
    pub(super) fn new(reading: Arc<Reading>) -> Self {
        Self { reading, kind: PhantomData }
    }

    /// Whether these are the objects of a resource.
    pub(crate) fn is_of(&self, resource: &ApiResource) -> bool {
        self.reading.describe() == describe(resource)
    }

    /// One object; `None` if it does not exist or is outside of what is watched.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.reading.get(key).map(typed)
    }

    /// Checks that a namespace (`None`: objects of no namespace) is watched; the error names those that are.
    pub fn check_covers(&self, namespace: Option<&str>) -> Result<(), SyncError> {
        self.reading.check_covers(namespace)
    }

    /// What this process wrote in another version of the kind, and is not known in this one yet.
    pub(crate) fn behind(&self) -> BTreeSet<ObjectKey> {
        self.reading.behind()
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.all(take))
    }

    /// The keys of all objects, in no particular order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.reading.keys()
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.in_namespace(namespace, take))
    }

    /// All objects that a predicate accepts. The predicate must not read from the cache of this kind.
    pub fn filter(&self, accept: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.collect(|reading, take| {
            reading.all(&mut |object| {
                if accept(typed_ref(&*object)) {
                    take(object);
                }
            });
        })
    }

    /// All objects whose labels match a selector.
    pub fn matching(&self, selector: &Selector) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.matching(selector, take))
    }

    /// All objects with this value of a label, through an index that the first call adds.
    pub fn labelled(&self, label: &str, value: &str) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.labelled(label, value, take))
    }

    /// All objects with an owner reference to another, controller or not, through an index that the first call adds.
    pub fn owned_by<Form>(&self, owner: &impl AsObject<Form>) -> Vec<Arc<K>> {
        let uid = owner.as_object().meta().uid.as_deref();
        uid.map(|uid| self.owned_by_uid(uid)).unwrap_or_default()
    }

    pub(crate) fn owned_by_uid(&self, uid: &str) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.owned_by(uid, take))
    }

    /// Adds an index: the function returns the values under which an object is found. An index may be added at any
    /// time and contains what is known at once; if there is one of that name, it stays.
    pub fn add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let values = move |object: &dyn AnyObject| values(typed_ref(object));
        self.reading.ensure_index(&user_index(name), &(Arc::new(values) as IndexFn));
    }

    /// Adds an index unless there is one of that name; false if there is.
    pub(crate) fn try_add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> bool {
        let values = move |object: &dyn AnyObject| values(typed_ref(object));
        self.reading.try_add_index(&user_index(name), &(Arc::new(values) as IndexFn))
    }

    pub(crate) fn reflectors(&self) -> &[Arc<Reflector>] {
        self.reading.reflectors()
    }

    /// Whether an index would file an object under a value.
    pub(crate) fn files(&self, index: &str, value: &str, object: &K) -> bool {
        self.reading.files(&user_index(index), value, object)
    }

    /// Whether there is an index of that name.
    pub fn has_index(&self, name: &str) -> bool {
        self.reading.has_index(&user_index(name))
    }

    /// All objects with a value in an index that was added with [`add_index`](Self::add_index); none if there is no
    /// such index.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.collect(|reading, take| reading.by_index(&user_index(index), value, take))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.reading.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list of the kind is complete.
    pub fn is_synced(&self) -> bool {
        self.reading.is_synced()
    }

    /// Waits until the first list of the kind is complete. The error names the kind and the cause. It is returned at
    /// once if a permission is missing, or if the manager stops.
    pub async fn wait_synced(&self) -> Result<(), SyncError> {
        self.reading.wait_synced().await
    }

    /// [`wait_synced`](Self::wait_synced), and until all that other watches of the kind have told is known here.
    pub(super) async fn wait_current(&self, known: &Known<K>) -> Result<(), SyncError> {
        self.reading.wait_current(known.reflectors()).await
    }

    /// Calls a handler for every known object and then for every change, until the subscription is dropped. The
    /// handler must not block, and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        let handler = move |change: &Change<dyn AnyObject>| handler(&change.typed());
        self.reading.subscribe(&(Arc::new(handler) as AnyHandler))
    }

    fn collect(&self, read: impl FnOnce(&Reading, Take<'_>)) -> Vec<Arc<K>> {
        let mut found = Vec::new();
        read(&self.reading, &mut |object| found.push(typed(object)));
        found
    }
}

/// Indexes that users add are apart from those of labels and owners.
fn user_index(name: &str) -> String {
    format!("user/{name}")
}
