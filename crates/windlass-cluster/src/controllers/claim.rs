//! Control of what a selector matches: a controller adopts what has no controller, and releases what no
//! longer matches. Mirrors upstream's `pkg/controller/controller_ref_manager.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::Patch;
use kube::core::{Selector, SelectorExt as _};
use serde_json::json;
use windlass::cache::Lister;
use windlass::{Context, Object, ObjectKey, owner};

/// The index of objects without a controller, by namespace.
const ORPHANS: &str = "orphans";

/// A selector that an API server accepted; nothing for one that cannot be understood.
pub(super) fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok()
}

/// Whether a selector matches an object's labels.
pub(super) fn selects<K: kube::Resource>(selector: &Selector, object: &K) -> bool {
    let none = BTreeMap::new();
    selector.matches(object.meta().labels.as_ref().unwrap_or(&none))
}

/// The reference by which `owner` controls something.
pub(super) fn controller_reference<O: Object<DynamicType: Default>>(owner: &O) -> OwnerReference {
    let dt = O::DynamicType::default();
    OwnerReference {
        api_version: O::api_version(&dt).into_owned(),
        kind: O::kind(&dt).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What `owner` controls, and what has no controller in its namespace.
pub(super) fn candidates<K: Object, O: Object>(lister: &Lister<K>, owner: &O) -> Vec<Arc<K>> {
    let mut found = lister.owned_by(owner);
    found.retain(|object| owner::is_controlled_by(&**object, owner));
    found.extend(orphans(lister, owner.meta().namespace.as_deref().unwrap_or_default()));
    found
}

/// What has no controller in a namespace.
fn orphans<K: Object>(lister: &Lister<K>, namespace: &str) -> Vec<Arc<K>> {
    lister.add_index(ORPHANS, |object: &K| match owner::controller(object) {
        Some(_) => Vec::new(),
        None => object.meta().namespace.iter().cloned().collect(),
    });
    lister.by_index(ORPHANS, namespace)
}

/// The keys of the owners that may want to adopt an object, if it has no controller.
pub(super) fn adopters<K: Object, O: Object>(
    object: &K,
    owners: &Lister<O>,
    selector_of: impl Fn(&O) -> Option<&LabelSelector>,
) -> Vec<ObjectKey> {
    adopters_by(object, owners, |owner| selector_of(owner).and_then(selector))
}

/// The same for owners whose selectors have another form.
pub(super) fn adopters_by<K: Object, O: Object>(
    object: &K,
    owners: &Lister<O>,
    selector_of: impl Fn(&O) -> Option<Selector>,
) -> Vec<ObjectKey> {
    if owner::controller(object).is_some() {
        return Vec::new();
    }
    let in_namespace = owners.in_namespace(object.meta().namespace.as_deref().unwrap_or_default());
    let wants = |owner: &&Arc<O>| selector_of(owner).is_some_and(|selector| selects(&selector, object));
    in_namespace.iter().filter(wants).map(|owner| ObjectKey::of(&**owner)).collect()
}

/// Adopts and releases, and returns what is the owner's then. An owner that is being deleted does
/// neither.
pub(super) async fn claim<K, O>(
    ctx: &Context,
    owner: &O,
    selector: &Selector,
    candidates: Vec<Arc<K>>,
    finalizers: &[&str],
) -> windlass::Result<Vec<Arc<K>>>
where
    K: Object<DynamicType: Default>,
    O: Object<DynamicType: Default>,
{
    claim_matching(ctx, owner, |object: &K| selects(selector, object), candidates, finalizers).await
}

/// Adopts and releases by more than a selector; see [`claim`].
pub(super) async fn claim_matching<K, O>(
    ctx: &Context,
    owner: &O,
    accept: impl Fn(&K) -> bool,
    candidates: Vec<Arc<K>>,
    finalizers: &[&str],
) -> windlass::Result<Vec<Arc<K>>>
where
    K: Object<DynamicType: Default>,
    O: Object<DynamicType: Default>,
{
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    let ends = owner.meta().deletion_timestamp.is_some();
    let mut checked = false;
    let mut claimed = Vec::new();
    for candidate in candidates {
        let matches = accept(&candidate);
        match owner::controller(&*candidate) {
            Some(controller) if controller.uid != uid => {}
            Some(_) if matches => claimed.push(candidate),
            Some(_) if ends => {}
            Some(_) => release::<K>(ctx, &*candidate, uid).await?,
            None if !matches || ends || candidate.meta().deletion_timestamp.is_some() => {}
            None => {
                if !checked {
                    check_alive(ctx, owner).await?;
                    checked = true;
                }
                claimed.extend(adopt(ctx, &*candidate, owner, finalizers).await?);
            }
        }
    }
    Ok(claimed)
}

/// What is being deleted must not adopt, and the cache may not show that it is.
async fn check_alive<O: Object<DynamicType: Default>>(ctx: &Context, owner: &O) -> windlass::Result<()> {
    let key = ObjectKey::of(owner);
    let live = ctx.live().get::<O>(&key).await?;
    match live.filter(|live| live.meta().uid == owner.meta().uid) {
        None => Err(format!("{key} is gone and cannot adopt").into()),
        Some(live) if live.meta().deletion_timestamp.is_some() => {
            Err(format!("{key} has just been deleted and cannot adopt").into())
        }
        Some(_) => Ok(()),
    }
}

async fn adopt<K, O>(ctx: &Context, object: &K, owner: &O, finalizers: &[&str]) -> windlass::Result<Option<Arc<K>>>
where
    K: Object<DynamicType: Default>,
    O: Object<DynamicType: Default>,
{
    let mut metadata = json!({"uid": object.meta().uid, "ownerReferences": [controller_reference(owner)]});
    if !finalizers.is_empty() {
        metadata["finalizers"] = json!(finalizers);
    }
    match ctx.client().patch::<K>(&ObjectKey::of(object), &Patch::Strategic(json!({"metadata": metadata}))).await {
        Ok(adopted) => Ok(Some(Arc::new(adopted))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn release<K: Object<DynamicType: Default>>(ctx: &Context, object: &K, owner: &str) -> windlass::Result<()> {
    let patch = json!({"metadata": {
        "uid": object.meta().uid, "ownerReferences": [{"$patch": "delete", "uid": owner}],
    }});
    match ctx.client().patch::<K>(&ObjectKey::of(object), &Patch::Strategic(patch)).await {
        // Invalid: the uid is that of a later object of the same name.
        Err(error) if !error.is_not_found() && !error.is_invalid() => Err(error.into()),
        _ => Ok(()),
    }
}
