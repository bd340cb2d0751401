//! What a type must offer to be watched, cached and written, and the forms in which functions take an object.

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::sync::Arc;

use kube::Resource;
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta, TypeMeta};
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes object",
    label = "expected an object",
    note = "objects are the types of `k8s_openapi`, types with `#[derive(CustomResource)]`, `PartialObjectMeta` and \
            `DynamicObject`",
    note = "writes of the client, such as `create` and `update`, take `&K`: with an `Arc` or a `Draft`, write `&*object`",
    note = "functions that only read an object, such as `ObjectKey::of` and `recorder().normal`, take `&K`, `&Arc<K>` and \
            `&Draft<K>`, but no reference to a reference"
)]
pub trait Object:
    Resource<DynamicType: Clone, Scope: 'static> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

#[diagnostic::do_not_recommend]
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

/// An object type whose kind the compiler knows: every [`Object`] but `DynamicObject` and what is made of it, whose group,
/// version and kind are known only at run time.
///
/// It is implemented for everything that qualifies; there is nothing to write.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// fn takes<K: windlass::TypedObject>() {}
/// takes::<ConfigMap>();
/// takes::<kube::api::PartialObjectMeta<ConfigMap>>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes object of a kind that the compiler knows",
    label = "expected an object of a known kind",
    note = "the types of `k8s_openapi`, types with `#[derive(CustomResource)]` and `PartialObjectMeta` of one of them have a \
            known kind",
    note = "the kind of a `DynamicObject` is known only at run time: `Controller::dynamic`, `Watch::dynamic` (for \
            `owns_with` and `watches_with`), `client.dynamic` and `Caches::lister_of` are told which it is",
    note = "writes of the client, such as `create` and `update`, take `&K`: with an `Arc` or a `Draft`, write `&*object`"
)]
pub trait TypedObject: Object<DynamicType: Default> {}

#[diagnostic::do_not_recommend]
impl<K: Object<DynamicType: Default>> TypedObject for K {}

/// An object by reference: `&K`, `&Arc<K>` and `&Draft<K>` all work wherever a function takes `&impl AsObject`.
/// Functions that only read the object do, such as [`ObjectKey::of`](crate::ObjectKey::of),
/// [`Recorder::normal`](crate::events::Recorder::normal) and [`Context::children`](crate::Context::children). Writes of
/// the client take `&K` (`&*object` for an `Arc`), and [`Context::draft`](crate::Context::draft) takes `&Arc<K>`.
///
/// `Form` tells the three apart for the compiler, which infers it. The trait is sealed: there is nothing to implement.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass::{Draft, ObjectKey};
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("settings".into());
/// let key = ObjectKey::of(&map);
/// let shared = Arc::new(map);
/// assert_eq!(ObjectKey::of(&shared), key);
/// assert_eq!(ObjectKey::of(&Draft::new(shared)), key);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes object",
    label = "expected a reference to an object, to an `Arc` of one or to a `Draft` of one",
    note = "objects are the types of `k8s_openapi`, types with `#[derive(CustomResource)]`, `PartialObjectMeta` and \
            `DynamicObject`",
    note = "functions that take an object by reference take `&K`, `&Arc<K>` and `&Draft<K>`, but no reference to a \
            reference"
)]
pub trait AsObject<Form>: form::Sealed<Form> {
    /// The type of the object.
    type Object: Resource + 'static;

    /// The object.
    fn as_object(&self) -> &Self::Object;
}

/// The forms in which an object is given: markers, so that the implementations of [`AsObject`] do not overlap.
pub(crate) mod form {
    use std::sync::Arc;

    use kube::Resource;

    /// `&K`.
    #[derive(Debug)]
    pub struct Plain;
    /// `&Arc<K>`.
    #[derive(Debug)]
    pub struct Shared;
    /// `&Draft<K>`.
    #[derive(Debug)]
    pub struct Drafted;

    pub trait Sealed<Form> {}
    #[diagnostic::do_not_recommend]
    impl<K: Resource + 'static> Sealed<Plain> for K {}
    impl<K: Resource + 'static> Sealed<Shared> for Arc<K> {}
}

#[diagnostic::do_not_recommend]
impl<K: Resource + 'static> AsObject<form::Plain> for K {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

impl<K: Resource + 'static> AsObject<form::Shared> for Arc<K> {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

/// The kind of an object: a type that stands for one kind says it, and of others the object does, if the server or
/// its maker said it. `None` if nothing does.
pub(crate) fn types_of<K: Resource + Serialize + 'static>(object: &K) -> Option<TypeMeta> {
    if let Some(dt) = (&() as &dyn Any).downcast_ref::<K::DynamicType>() {
        return Some(TypeMeta { api_version: K::api_version(dt).into_owned(), kind: K::kind(dt).into_owned() });
    }
    let any = object as &dyn Any;
    let types = if let Some(object) = any.downcast_ref::<DynamicObject>() {
        object.types.clone()
    } else if let Some(object) = any.downcast_ref::<PartialObjectMeta<DynamicObject>>() {
        object.types.clone()
    } else {
        serde_json::to_value(object).ok().and_then(|object| {
            let text = |field: &str| object.get(field)?.as_str().map(str::to_owned);
            Some(TypeMeta { api_version: text("apiVersion")?, kind: text("kind")? })
        })
    };
    // Of metadata alone, the server says no more than that it is metadata.
    let tells = |types: &TypeMeta| !types.kind.is_empty() && !types.api_version.is_empty();
    types.filter(|types| tells(types) && types.kind != "PartialObjectMetadata")
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

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
