//! What a type must offer to be watched, cached and written.

use std::any::{Any, TypeId};
use std::fmt::Debug;

use kube::Resource;
use kube::api::{ApiResource, DynamicObject, TypeMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A Kubernetes object type: every `#[derive(CustomResource)]` type and every type of
/// `k8s_openapi` is one, and so are `PartialObjectMeta<K>` (metadata only) and `DynamicObject`.
///
/// It is implemented for everything that qualifies; there is nothing to write.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// fn takes<K: windlass::Object>() {}
/// takes::<ConfigMap>();
/// takes::<kube::api::PartialObjectMeta<ConfigMap>>();
/// takes::<kube::api::DynamicObject>();
/// ```
pub trait Object:
    Resource<DynamicType: Clone, Scope: 'static> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType: Clone, Scope: 'static>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// `pets.petstore.example.com/v1alpha1`: how errors and logs name a kind, in the words that RBAC
/// rules and `kubectl get` use.
pub(crate) fn describe(resource: &ApiResource) -> String {
    if resource.group.is_empty() {
        format!("{}/{}", resource.plural, resource.version)
    } else {
        format!("{}.{}/{}", resource.plural, resource.group, resource.version)
    }
}

/// Whether a type says that its objects are in no namespace. Dynamic types do not say.
pub(crate) fn is_cluster_scoped<K: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::ClusterResourceScope>()
}

/// Whether a type says that its objects are in namespaces.
pub(crate) fn is_namespaced<K: Resource<Scope: 'static>>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<k8s_openapi::NamespaceResourceScope>()
}

/// The kind of objects that do not know it by their type, and are sent without it in lists.
pub(crate) fn types_to_fill<K: Object>(dt: &K::DynamicType) -> Option<TypeMeta> {
    let dynamic = TypeId::of::<K>() == TypeId::of::<DynamicObject>();
    dynamic.then(|| TypeMeta { api_version: K::api_version(dt).into_owned(), kind: K::kind(dt).into_owned() })
}

/// Says of an object what kind it is, if it was sent without.
pub(crate) fn fill_types<K: Object>(object: &mut K, types: &TypeMeta) {
    if let Some(object) = (object as &mut dyn Any).downcast_mut::<DynamicObject>() {
        object.types.get_or_insert_with(|| types.clone());
    }
}

/// The resource version as a number. Those of one resource are ordered, whatever versions of its
/// kind were used to write it; `None` for servers that use something else.
pub(crate) fn version_of<K: Resource>(object: &K) -> Option<u64> {
    parse_version(object.meta().resource_version.as_deref()?)
}

pub(crate) fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// What somebody's panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
