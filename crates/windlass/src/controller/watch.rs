//! Which objects of a kind are watched, and which of their changes count.

use std::sync::Arc;

use crate::cache::{Caches, Scope};
use crate::object::{Object, TypedObject, is_cluster_scoped};
use crate::predicate::Predicate;
use crate::reflector::Transform;
use crate::remote_cluster::RemoteCluster;

/// Which objects of another kind wake a controller, and which of their changes count: for
/// [`Controller::owns_with`](super::Controller::owns_with) and [`Controller::watches_with`](super::Controller::watches_with). For the controller's own kind there are
/// [`Controller::scope`](super::Controller::scope), [`Controller::predicate`](super::Controller::predicate) and [`Controller::transform`](super::Controller::transform).
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use windlass::cache::Scope;
/// use windlass::controller::{Controller, Watch};
/// use windlass::predicate;
///
/// let secrets = Watch::<Secret>::default()
///     .scope(Scope::default().namespace("petstore").fields("type=Opaque"))
///     .predicate(predicate::labels_changed().or(predicate::resource_version_changed()));
/// let controller = Controller::<ConfigMap>::new("settings").owns_with(secrets);
/// ```
#[derive(Debug)]
pub struct Watch<K: Object> {
    pub(crate) scope: Scope,
    pub(crate) predicate: Option<Predicate<K>>,
    pub(crate) dt: K::DynamicType,
    /// Of another cluster than the controller's own.
    pub(crate) caches: Option<Caches>,
    pub(crate) transform: Option<Keep<K>>,
}

/// A function that changes objects before they are kept.
pub(crate) struct Keep<K>(pub(crate) Transform<K>);

impl<K> std::fmt::Debug for Keep<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("transform")
    }
}

impl<K: TypedObject> Default for Watch<K> {
    fn default() -> Self {
        Self::dynamic(K::DynamicType::default())
    }
}

impl<K: Object> Clone for Watch<K> {
    fn clone(&self) -> Self {
        Self {
            scope: self.scope.clone(),
            predicate: self.predicate.clone(),
            dt: self.dt.clone(),
            caches: self.caches.clone(),
            transform: self.transform.as_ref().map(|keep| Keep(Arc::clone(&keep.0))),
        }
    }
}

impl<K: Object> Watch<K> {
    /// All objects of a kind known only at run time.
    pub fn dynamic(dt: K::DynamicType) -> Self {
        Self { scope: Scope::default(), predicate: None, dt, caches: None, transform: None }
    }

    /// Objects of another cluster than the controller's.
    #[must_use]
    pub fn cluster(mut self, cluster: &RemoteCluster) -> Self {
        self.caches = Some(cluster.caches().clone());
        self
    }

    /// Only objects that a scope selects. The server filters, and nothing else is cached. Others who
    /// read the kind still see all of it: see [`CachedClient::get`](crate::CachedClient::get) and [`CachedClient::list`](crate::CachedClient::list).
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Changes objects before they are cached, to save the memory of fields that are never read: see
    /// [`Caches::transform`]. It applies to all readers of the kind. A kind has at most one transform, which must be
    /// set before the kind is watched, or [`Manager::add`](crate::Manager::add) fails.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # use windlass::controller::Watch;
    /// let names = Watch::<Secret>::default().transform(|secret| secret.data = None);
    /// ```
    #[must_use]
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Keep(Arc::new(change)));
        self
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        is_cluster_scoped::<K>() || self.scope.is_cluster_scoped()
    }

    /// Only changes that a predicate accepts. Deletions always count. Several predicates must all
    /// accept. A change on which one panics counts, too; the panic is logged, and counted by
    /// `windlass_cache_panics_total`.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(match self.predicate.take() {
            Some(other) => other.and(predicate),
            None => predicate,
        });
        self
    }
}
