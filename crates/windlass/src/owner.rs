//! Owner references: who an object belongs to, so that it goes when its owner goes.
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use windlass::owner;
//!
//! let mut parent = ConfigMap::default();
//! parent.metadata.name = Some("parent".into());
//! parent.metadata.uid = Some("1".into());
//! let mut child = Secret::default();
//! owner::set_controller(&mut child, &parent).unwrap();
//! assert!(owner::is_controlled_by(&child, &parent));
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::TypeMeta;

use crate::object::{AsObject, Object, is_cluster_scoped, is_namespaced, types_of};

/// Why an object cannot be given an owner.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use windlass::owner::{self, OwnerError};
///
/// let never_stored = ConfigMap::default();
/// let error = owner::set_controller(&mut Secret::default(), &never_stored).unwrap_err();
/// assert!(matches!(error, OwnerError::NotStored { .. }));
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// Another object controls it already.
    #[error("{object:?} is already controlled by {kind} {name:?}")]
    AlreadyControlled {
        /// The object.
        object: String,
        /// The kind of its controller.
        kind: String,
        /// The name of its controller.
        name: String,
    },
    /// The owner has no name or UID: it was never stored.
    #[error("owner {kind} {name:?} has not been stored yet")]
    NotStored {
        /// The kind of the owner.
        kind: String,
        /// The name of the owner.
        name: String,
    },
    /// A namespaced owner cannot own what is elsewhere.
    #[error("owner in namespace {owner:?} cannot own an object in {object:?}")]
    OtherNamespace {
        /// The owner's namespace.
        owner: String,
        /// The object's namespace; empty when it has none.
        object: String,
    },
    /// A namespaced owner cannot own what is in no namespace: the garbage collector looks for the owner in the
    /// namespace of the object.
    #[error("owner in namespace {owner:?} cannot own {object:?}, which is in no namespace")]
    NoNamespace {
        /// The owner's namespace.
        owner: String,
        /// The object.
        object: String,
    },
    /// The owner is of a kind known only at run time and does not say which: its `types` are missing.
    #[error("owner {name:?} does not say what kind it is: its apiVersion and kind are missing")]
    UnknownKind {
        /// The name of the owner.
        name: String,
    },
}

crate::report::debug_as_message!(OwnerError);

/// Makes `owner` the controller of `object`: the one owner that looks after it. Fails when
/// another one does, and when the owner is in another namespace, or in one while the object is in
/// none.
///
/// A `DynamicObject` says itself what kind it is, if the server or [`DynamicObject::new`](kube::api::DynamicObject::new)
/// has told it; otherwise this is [`OwnerError::UnknownKind`].
///
/// ```
/// use k8s_openapi::api::core::v1::Secret;
/// use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
/// use windlass::owner;
///
/// let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("petstore.example.com", "v1", "Pet"));
/// let mut pet = DynamicObject::new("thor", &kind);
/// pet.metadata.uid = Some("1".into());
/// let mut child = Secret::default();
/// owner::set_controller(&mut child, &pet).unwrap();
/// assert!(owner::is_controlled_by(&child, &pet));
/// ```
pub fn set_controller<K, Form>(object: &mut K, owner: &impl AsObject<Form, Object: Object>) -> Result<(), OwnerError>
where
    K: Resource<Scope: 'static>,
{
    Owner::of(owner).control(object)
}

/// Makes `owner` one of the owners of `object`. Fails when the owner is in another namespace, or in
/// one while the object is in none, or does not say what [kind](set_controller) it is.
pub fn add<K, Form>(object: &mut K, owner: &impl AsObject<Form, Object: Object>) -> Result<(), OwnerError>
where
    K: Resource<Scope: 'static>,
{
    let mut reference = Owner::of(owner).reference(object)?;
    let known = object.meta().owner_references.iter().flatten();
    if let Some(known) = known.clone().find(|known| known.uid == reference.uid) {
        reference.controller = known.controller;
        reference.block_owner_deletion = known.block_owner_deletion;
    }
    upsert(object, reference);
    Ok(())
}

/// Removes `owner` from the owners of `object`, and says whether it was one.
pub fn remove<K: Resource, Form>(object: &mut K, owner: &impl AsObject<Form>) -> bool {
    let uid = owner.as_object().meta().uid.as_deref();
    let Some(references) = object.meta_mut().owner_references.as_mut() else {
        return false;
    };
    let before = references.len();
    references.retain(|reference| Some(reference.uid.as_str()) != uid);
    references.len() != before
}

/// Whether `owner` controls `object`.
pub fn is_controlled_by<Form, OwnerForm>(object: &impl AsObject<Form>, owner: &impl AsObject<OwnerForm>) -> bool {
    let uid = owner.as_object().meta().uid.as_deref();
    controller(object).is_some_and(|reference| Some(reference.uid.as_str()) == uid)
}

/// The reference to what controls an object.
pub fn controller<Form>(object: &impl AsObject<Form>) -> Option<&OwnerReference> {
    let references = object.as_object().meta().owner_references.as_ref()?;
    references.iter().find(|reference| reference.controller == Some(true))
}

/// What references to an owner say, of whatever type it is.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    types: Option<TypeMeta>,
    name: Option<String>,
    uid: Option<String>,
    pub(crate) namespace: Option<String>,
}

impl Owner {
    pub(crate) fn of<Form>(owner: &impl AsObject<Form, Object: Object>) -> Self {
        let owner = owner.as_object();
        let meta = owner.meta();
        Self {
            types: types_of(owner),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            namespace: meta.namespace.clone(),
        }
    }

    pub(crate) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Whether it controls an object.
    pub(crate) fn controls(&self, object: &(impl Resource + 'static)) -> bool {
        controller(object).is_some_and(|reference| Some(reference.uid.as_str()) == self.uid())
    }

    /// Makes it the controller of an object.
    pub(crate) fn control<K: Resource<Scope: 'static>>(&self, object: &mut K) -> Result<(), OwnerError> {
        let mut reference = self.reference(object)?;
        reference.controller = Some(true);
        reference.block_owner_deletion = Some(true);
        let mut others = object.meta().owner_references.iter().flatten();
        if let Some(other) = others.find(|known| known.controller == Some(true) && known.uid != reference.uid) {
            return Err(OwnerError::AlreadyControlled {
                object: object.meta().name.clone().unwrap_or_default(),
                kind: other.kind.clone(),
                name: other.name.clone(),
            });
        }
        upsert(object, reference);
        Ok(())
    }

    fn reference<K: Resource<Scope: 'static>>(&self, object: &K) -> Result<OwnerReference, OwnerError> {
        let child = object.meta();
        if let Some(namespace) = &self.namespace
            && child.namespace.as_ref().is_some_and(|other| other != namespace)
        {
            return Err(OwnerError::OtherNamespace {
                owner: namespace.clone(),
                object: child.namespace.clone().unwrap_or_default(),
            });
        }
        // Types known only at run time do not say where their objects are; these do.
        let nowhere = is_cluster_scoped::<K>() || (!is_namespaced::<K>() && child.namespace.is_none());
        if let Some(namespace) = self.namespace.as_ref().filter(|_| nowhere) {
            let object = child.name.clone().unwrap_or_default();
            return Err(OwnerError::NoNamespace { owner: namespace.clone(), object });
        }
        let name = self.name.clone().unwrap_or_default();
        let Some(types) = self.types.clone() else {
            return Err(OwnerError::UnknownKind { name });
        };
        match self.uid.clone() {
            Some(uid) if self.name.is_some() => {
                Ok(OwnerReference { api_version: types.api_version, kind: types.kind, name, uid, ..Default::default() })
            }
            _ => Err(OwnerError::NotStored { kind: types.kind, name }),
        }
    }
}

fn upsert<K: Resource>(object: &mut K, reference: OwnerReference) {
    let references = object.meta_mut().owner_references.get_or_insert_default();
    match references.iter_mut().find(|known| known.uid == reference.uid) {
        Some(known) => *known = reference,
        None => references.push(reference),
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};

    use super::*;

    fn parent(name: &str) -> ConfigMap {
        let mut parent = ConfigMap::default();
        parent.metadata.name = Some(name.into());
        parent.metadata.namespace = Some("a".into());
        parent.metadata.uid = Some(format!("uid-{name}"));
        parent
    }

    #[test]
    fn there_is_one_controller_and_any_number_of_owners() {
        let mut child = Secret::default();
        set_controller(&mut child, &parent("x")).expect("first");
        set_controller(&mut child, &parent("x")).expect("again");
        assert!(matches!(
            set_controller(&mut child, &parent("y")),
            Err(OwnerError::AlreadyControlled { name, .. }) if name == "x"
        ));
        add(&mut child, &parent("y")).expect("owner");
        add(&mut child, &parent("x")).expect("stays controller");
        assert!(is_controlled_by(&child, &parent("x")));
        assert!(!is_controlled_by(&child, &parent("y")));
        assert_eq!(child.metadata.owner_references.as_ref().map(Vec::len), Some(2));
        assert!(remove(&mut child, &parent("x")) && controller(&child).is_none());
    }

    #[test]
    fn owners_must_exist_and_be_near() {
        let mut child = Secret::default();
        assert!(matches!(add(&mut child, &ConfigMap::default()), Err(OwnerError::NotStored { .. })));
        child.metadata.namespace = Some("b".into());
        assert!(matches!(add(&mut child, &parent("x")), Err(OwnerError::OtherNamespace { .. })));
    }

    #[test]
    fn what_is_in_no_namespace_cannot_be_owned_from_one() {
        let mut role = ClusterRole::default();
        role.metadata.name = Some("reader".into());
        let refused = OwnerError::NoNamespace { owner: "a".into(), object: "reader".into() };
        assert_eq!(set_controller(&mut role, &parent("x")), Err(refused.clone()));
        assert_eq!(add(&mut role, &parent("x")), Err(refused));
        assert_eq!(role.metadata.owner_references, None);
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("b".into());
        namespace.metadata.uid = Some("uid-b".into());
        set_controller(&mut role, &namespace).expect("both are in none");
        set_controller(&mut Secret::default(), &namespace).expect("from no namespace into one");

        let kind = ApiResource::erase::<ClusterRole>(&());
        let mut dynamic = DynamicObject::new("reader", &kind);
        assert!(matches!(add(&mut dynamic, &parent("x")), Err(OwnerError::NoNamespace { .. })));
        dynamic.metadata.namespace = Some("a".into());
        add(&mut dynamic, &parent("x")).expect("in the same namespace");
    }

    #[test]
    fn a_dynamic_owner_says_its_kind_itself() {
        let kind = ApiResource::erase::<ConfigMap>(&());
        let mut owner = DynamicObject::new("x", &kind).within("a");
        owner.metadata.uid = Some("uid-x".into());
        let (mut child, mut same) = (Secret::default(), Secret::default());
        set_controller(&mut child, &Arc::new(owner.clone())).expect("it says so");
        set_controller(&mut same, &parent("x")).expect("a type says so");
        assert_eq!(child, same);
        owner.types = None;
        let refused = OwnerError::UnknownKind { name: "x".into() };
        assert_eq!(set_controller(&mut child, &owner), Err(refused.clone()));
        assert_eq!(add(&mut child, &owner), Err(refused));
        assert!(is_controlled_by(&child, &owner), "no kind is needed to look");
    }

    #[test]
    fn owners_tell_their_kind_where_they_know_it() {
        type Map = kube::core::Object<kube::core::NotUsed, kube::core::NotUsed>;
        let meta = || parent("x").metadata;
        let own: PartialObjectMeta<ConfigMap> = PartialObjectMeta { metadata: meta(), ..Default::default() };
        set_controller(&mut Secret::default(), &own).expect("the type of what it is of");
        let types = |kind: &str| Some(TypeMeta { api_version: "v1".into(), kind: kind.into() });
        let of =
            |kind| PartialObjectMeta::<DynamicObject> { types: types(kind), metadata: meta(), _phantom: PhantomData };
        set_controller(&mut Secret::default(), &of("ConfigMap")).expect("it says so");
        let error = set_controller(&mut Secret::default(), &of("PartialObjectMetadata"));
        assert!(matches!(error, Err(OwnerError::UnknownKind { .. })), "{error:?}");
        let mut map = Map::new("x", &ApiResource::erase::<ConfigMap>(&()), kube::core::NotUsed {});
        map.metadata = meta();
        let mut child = Secret::default();
        set_controller(&mut child, &map).expect("its JSON says so");
        assert_eq!(controller(&child).map(|owner| owner.kind.as_str()), Some("ConfigMap"));
    }
}
