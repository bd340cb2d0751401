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

use crate::object::{is_cluster_scoped, is_namespaced};

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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// A namespaced owner cannot own what is in no namespace: whoever looks for the owner, as the
    /// garbage collector does, looks where the object is.
    #[error("owner in namespace {owner:?} cannot own {object:?}, which is in no namespace")]
    NoNamespace {
        /// The owner's namespace.
        owner: String,
        /// The object.
        object: String,
    },
}

/// Makes `owner` the controller of `object`: the one owner that looks after it. Fails when
/// another one does, and when the owner is in another namespace, or in one while the object is in
/// none.
pub fn set_controller<K: Resource<Scope: 'static>, O: Resource>(object: &mut K, owner: &O) -> Result<(), OwnerError>
where
    O::DynamicType: Default,
{
    set_controller_with(object, owner, &O::DynamicType::default())
}

/// [`set_controller`] for an owner of a kind known only at run time.
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
/// owner::set_controller_with(&mut child, &pet, &kind).unwrap();
/// assert!(owner::is_controlled_by(&child, &pet));
/// ```
pub fn set_controller_with<K: Resource<Scope: 'static>, O: Resource>(
    object: &mut K,
    owner: &O,
    dt: &O::DynamicType,
) -> Result<(), OwnerError> {
    let mut reference = reference(object, owner, dt)?;
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    let others = object.meta().owner_references.iter().flatten();
    if let Some(other) = others.filter(|known| known.controller == Some(true)).find(|known| known.uid != reference.uid)
    {
        return Err(OwnerError::AlreadyControlled {
            object: object.meta().name.clone().unwrap_or_default(),
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    upsert(object, reference);
    Ok(())
}

/// Makes `owner` one of the owners of `object`. Fails when the owner is in another namespace, or in
/// one while the object is in none.
pub fn add<K: Resource<Scope: 'static>, O: Resource>(object: &mut K, owner: &O) -> Result<(), OwnerError>
where
    O::DynamicType: Default,
{
    add_with(object, owner, &O::DynamicType::default())
}

/// [`add`] for an owner of a kind known only at run time.
pub fn add_with<K: Resource<Scope: 'static>, O: Resource>(
    object: &mut K,
    owner: &O,
    dt: &O::DynamicType,
) -> Result<(), OwnerError> {
    let mut reference = reference(object, owner, dt)?;
    let known = object.meta().owner_references.iter().flatten();
    if let Some(known) = known.clone().find(|known| known.uid == reference.uid) {
        reference.controller = known.controller;
        reference.block_owner_deletion = known.block_owner_deletion;
    }
    upsert(object, reference);
    Ok(())
}

/// Removes `owner` from the owners of `object`, and says whether it was one.
pub fn remove<K: Resource, O: Resource>(object: &mut K, owner: &O) -> bool {
    let uid = owner.meta().uid.as_deref();
    let Some(references) = object.meta_mut().owner_references.as_mut() else {
        return false;
    };
    let before = references.len();
    references.retain(|reference| Some(reference.uid.as_str()) != uid);
    references.len() != before
}

/// Whether `owner` controls `object`.
pub fn is_controlled_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    let uid = owner.meta().uid.as_deref();
    controller(object).is_some_and(|reference| Some(reference.uid.as_str()) == uid)
}

/// The reference to what controls an object.
pub fn controller<K: Resource>(object: &K) -> Option<&OwnerReference> {
    let references = object.meta().owner_references.as_ref()?;
    references.iter().find(|reference| reference.controller == Some(true))
}

fn reference<K: Resource<Scope: 'static>, O: Resource>(
    object: &K,
    owner: &O,
    dt: &O::DynamicType,
) -> Result<OwnerReference, OwnerError> {
    let (own, child) = (owner.meta(), object.meta());
    if let Some(namespace) = &own.namespace
        && child.namespace.as_ref().is_some_and(|other| other != namespace)
    {
        return Err(OwnerError::OtherNamespace {
            owner: namespace.clone(),
            object: child.namespace.clone().unwrap_or_default(),
        });
    }
    // Types known only at run time do not say where their objects are; these do.
    let nowhere = is_cluster_scoped::<K>() || (!is_namespaced::<K>() && child.namespace.is_none());
    if let Some(namespace) = own.namespace.as_ref().filter(|_| nowhere) {
        let object = child.name.clone().unwrap_or_default();
        return Err(OwnerError::NoNamespace { owner: namespace.clone(), object });
    }
    owner.owner_ref(dt).ok_or_else(|| OwnerError::NotStored {
        kind: O::kind(dt).into_owned(),
        name: own.name.clone().unwrap_or_default(),
    })
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
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
    use k8s_openapi::api::rbac::v1::ClusterRole;
    use kube::api::{ApiResource, DynamicObject};

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
}
