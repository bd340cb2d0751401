//! Looks at live objects and deletes, orphans or releases them.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::api::{ApiResource, GetParams, Patch, PropagationPolicy};
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass::client::options::{DeleteOptions, ListOptions};
use windlass::client::{ClientError, Objects, retry_on_conflict};
use windlass::queue::{Completion, Priority};
use windlass::{CachedClient, ObjectKey};

use super::Shared;
use super::graph::{FOREGROUND, Identity, Kind, Node, ORPHAN};
use crate::controllers::discovery::{discover, is_absent};
use crate::controllers::inventory::{Kinds, is_watched};
use crate::controllers::metadata::Metadata;

/// Kinds listed at the same time.
const LISTS: usize = 16;

/// Why an object could not be dealt with.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    /// No such kind is served; it may be soon.
    #[error("unable to get REST mapping for {0}/{1}.")]
    Unmapped(Arc<str>, Arc<str>),
    /// An object of the cluster names an owner in a namespace: that never becomes right.
    #[error("cluster-scoped objects cannot refer to namespaced owners")]
    NamespacedOwner,
    /// A dependent exists that the graph does not know yet.
    #[error("a dependent has not been observed yet")]
    Behind,
    /// A request failed.
    #[error(transparent)]
    Request(#[from] ClientError),
    /// An object could not be read.
    #[error("an object cannot be read: {0}")]
    Read(kube::Error),
    /// The kinds could not be discovered.
    #[error("the served kinds cannot be discovered: {0}")]
    Discover(kube::Error),
}

impl CollectError {
    fn unmapped(kind: &Kind) -> Self {
        Self::Unmapped(Arc::clone(&kind.api_version), Arc::clone(&kind.name))
    }
}

/// How an attempt ended.
enum Attempt {
    /// Nothing more to do.
    Done,
    /// The object does not exist.
    Absent,
}

/// The owners of an object, by what is left of them.
#[derive(Default)]
struct Owners {
    /// They exist.
    solid: Vec<OwnerReference>,
    /// They do not.
    dangling: Vec<OwnerReference>,
    /// They wait for their dependents to go.
    waiting: Vec<OwnerReference>,
}

/// Where an object is.
struct Place {
    kind: Kind,
    resource: ApiResource,
    objects: Objects<Metadata>,
    key: ObjectKey,
}

/// See the [module documentation](self).
pub(super) struct Collector {
    client: CachedClient,
    kinds: watch::Receiver<Kinds>,
    shared: Arc<Shared>,
}

impl Collector {
    pub(super) fn new(client: CachedClient, kinds: watch::Receiver<Kinds>, shared: Arc<Shared>) -> Self {
        Self { client, kinds, shared }
    }

    /// Deletes an object if nothing holds it any more.
    pub(super) async fn attempt_to_delete(&self, uid: &str) -> Completion {
        self.complete().await;
        let Some(node) = self.node(uid) else { return Completion::Done };
        match self.delete(&node).await {
            Ok(Attempt::Absent) => {
                let (effects, again) = self.shared.graph.lock().absent(&node.identity);
                self.shared.carry_out(effects, Priority::NORMAL);
                if again { Completion::Retry } else { Completion::Done }
            }
            // It exists, but its informer has not shown it: it may be gone again before it does.
            Ok(Attempt::Done) if self.node(uid).is_some_and(|node| node.is_virtual) => Completion::Retry,
            Ok(Attempt::Done) | Err(CollectError::NamespacedOwner) => Completion::Done,
            Err(error) => {
                if matches!(error, CollectError::Unmapped(..)) {
                    self.shared.unmapped.lock().insert(Arc::clone(&node.identity.uid));
                }
                failed(&node, &error)
            }
        }
    }

    /// Removes an object from the owners of its dependents, then lets it go.
    pub(super) async fn attempt_to_orphan(&self, uid: &str) -> Completion {
        self.complete().await;
        let Some(node) = self.node(uid) else { return Completion::Done };
        // One that is overlooked would be deleted, so the graph is not asked: it may be behind.
        let dependents = match self.find_dependents(&node.identity).await {
            Ok(dependents) => dependents,
            Err(error) => return failed(&node, &error),
        };
        let owners = [uid];
        let orphaned = dependents.iter().map(|(dependent, _)| self.remove_owners(dependent, &owners));
        for result in futures::future::join_all(orphaned).await {
            match result {
                Err(CollectError::Request(error)) if error.is_not_found() => {}
                Err(error) => return failed(&node, &error),
                Ok(()) => {}
            }
        }
        match self.remove_finalizer(&node.identity, ORPHAN).await {
            Ok(()) => Completion::Done,
            Err(error) => failed(&node, &error),
        }
    }

    /// Waits until the objects of all kinds are known.
    async fn complete(&self) {
        // An error means that the inventory is gone, and the collector about to be told to stop.
        let _ = self.kinds.clone().wait_for(|kinds| kinds.complete).await;
    }

    fn node(&self, uid: &str) -> Option<Node> {
        self.shared.graph.lock().node(uid).cloned()
    }

    async fn delete(&self, node: &Node) -> Result<Attempt, CollectError> {
        let identity = &node.identity;
        // Once it is being deleted there is only its end to wait for.
        if node.is_deleting && !node.is_deleting_dependents {
            return Ok(Attempt::Done);
        }
        let place = self.locate(identity)?;
        let Some(latest) = self.look(&place).await?.filter(|latest| latest.uid() == &*identity.uid) else {
            return Ok(Attempt::Absent);
        };
        if node.is_deleting_dependents {
            return self.finish_foreground(identity).await;
        }
        let references = latest.metadata.owner_references.clone().unwrap_or_default();
        if references.is_empty() {
            return Ok(Attempt::Done);
        }
        let owners = self.classify(node, references).await?;
        if !owners.solid.is_empty() {
            // An owner that waits would wait forever for an object that another one keeps.
            let lost: Vec<&str> = owners.dangling.iter().chain(&owners.waiting).map(|owner| &*owner.uid).collect();
            if !lost.is_empty() {
                self.remove_owners(identity, &lost).await?;
            }
            return Ok(Attempt::Done);
        }
        let policy = if !owners.waiting.is_empty() && node.has_dependents() {
            let dependents =
                self.shared.graph.lock().dependents(&identity.uid).into_iter().cloned().collect::<Vec<_>>();
            if dependents.iter().any(|dependent| dependent.is_deleting_dependents) {
                // Both ends wait for their dependents: most likely a circle, which is cut here.
                self.unblock_owners(node).await?;
            }
            PropagationPolicy::Foreground
        } else if has(&latest, ORPHAN) {
            PropagationPolicy::Orphan
        } else if has(&latest, FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        self.delete_object(&place, latest, policy).await
    }

    /// Deletes exactly what was looked at; if it changed meanwhile, only if its owners did not.
    async fn delete_object(
        &self,
        place: &Place,
        seen: Metadata,
        policy: PropagationPolicy,
    ) -> Result<Attempt, CollectError> {
        let uid = seen.metadata.uid.clone();
        let Place { objects, key, .. } = place;
        let as_seen = DeleteOptions::of(&seen).propagation(policy.clone());
        let deleted = match objects.delete_with(key, as_seen).await {
            Err(error) if error.is_conflict() => {
                let Some(live) = self.look(place).await? else { return Ok(Attempt::Absent) };
                let same_owners = live.metadata.owner_references == seen.metadata.owner_references;
                if live.uid() != seen.uid() || !same_owners {
                    return Err(error.into());
                }
                // Frequent writes of something else must not keep an object alive.
                objects.delete_with(key, DeleteOptions::new().uid(seen.uid()).propagation(policy)).await?
            }
            other => other?,
        };
        // Also said when the kind is no longer served.
        let absent = !deleted && self.look(place).await?.is_none_or(|live| Some(live.uid()) != uid.as_deref());
        Ok(if absent { Attempt::Absent } else { Attempt::Done })
    }

    /// Lets an object that is deleted in the foreground go once nothing blocks it.
    async fn finish_foreground(&self, identity: &Identity) -> Result<Attempt, CollectError> {
        let blocking: Vec<_> = {
            let graph = self.shared.graph.lock();
            let blocking = graph.blocking(&identity.uid).into_iter();
            blocking.map(|node| (Arc::clone(&node.identity.uid), node.is_deleting_dependents)).collect()
        };
        if blocking.is_empty() {
            let blocks =
                |owner: &OwnerReference| *owner.uid == *identity.uid && owner.block_owner_deletion == Some(true);
            let found = self.find_dependents(identity).await?;
            if found.iter().flat_map(|(_, object)| object.metadata.owner_references.iter().flatten()).any(blocks) {
                return Err(CollectError::Behind);
            }
            self.remove_finalizer(identity, FOREGROUND).await?;
        }
        for (uid, is_deleting_dependents) in blocking {
            if !is_deleting_dependents {
                self.shared.delete.add(uid, Priority::NORMAL);
            }
        }
        Ok(Attempt::Done)
    }

    async fn classify(&self, node: &Node, references: Vec<OwnerReference>) -> Result<Owners, CollectError> {
        let mut owners = Owners::default();
        for reference in references {
            let lost = node.has_lost(&reference.uid);
            let found = if lost { None } else { self.find_owner(&node.identity, &reference).await? };
            match found {
                None => owners.dangling.push(reference),
                Some(owner) if owner.is_deleting() && has(&owner, FOREGROUND) => owners.waiting.push(reference),
                Some(_) => owners.solid.push(reference),
            }
        }
        Ok(owners)
    }

    /// The owner a reference names, if it exists.
    async fn find_owner(
        &self,
        dependent: &Identity,
        reference: &OwnerReference,
    ) -> Result<Option<Metadata>, CollectError> {
        let mut owner = Identity::of_owner(reference, "");
        let mut known = self.is_absent(&owner);
        owner.namespace = Arc::clone(&dependent.namespace);
        known |= self.is_absent(&owner);
        if known {
            return Ok(None);
        }
        if !self.is_namespaced(&owner.kind)? {
            owner.namespace = "".into();
        }
        let place = self.locate(&owner)?;
        let found = self.look(&place).await?.filter(|found| found.uid() == reference.uid);
        if found.is_none() {
            self.shared.graph.lock().note_absent(owner);
        }
        Ok(found)
    }

    /// Everything that names an object as its owner, asked from the server.
    async fn find_dependents(&self, owner: &Identity) -> Result<Vec<(Identity, Metadata)>, CollectError> {
        let namespace = Some(&*owner.namespace).filter(|namespace| !namespace.is_empty());
        let kinds = discover(self.client.kube()).await.map_err(CollectError::Discover)?.preferred.into_iter();
        let kinds = kinds.filter(|served| is_watched(served) && (served.namespaced || namespace.is_none()));
        let found = kinds.map(async |served| {
            let objects = self.client.objects_of::<Metadata>(served.resource.clone());
            let listed = objects.live().list_with(ListOptions::new().namespace(namespace.unwrap_or_default())).await;
            (served, listed)
        });
        let found: Vec<_> = futures::stream::iter(found).buffer_unordered(LISTS).collect().await;
        let mut dependents = Vec::new();
        for (served, listed) in found {
            let listed = match listed {
                // The kind went meanwhile, and its objects with it.
                Err(error) if error.is_not_found() => Vec::new(),
                other => other?,
            };
            let kind = super::kind_of(&served);
            let owned = |object: &Metadata| {
                object.metadata.owner_references.iter().flatten().any(|reference| *reference.uid == *owner.uid)
            };
            let owned = listed.into_iter().filter(owned);
            dependents.extend(owned.map(|object| (Identity::of_object(&kind, &object), object)));
        }
        Ok(dependents)
    }

    fn is_absent(&self, identity: &Identity) -> bool {
        self.shared.graph.lock().is_absent(identity)
    }

    fn is_namespaced(&self, kind: &Kind) -> Result<bool, CollectError> {
        let kinds = self.kinds.borrow();
        let served = kinds.discovered.find(&kind.api_version, &kind.name);
        Ok(served.ok_or_else(|| CollectError::unmapped(kind))?.namespaced)
    }

    /// Where an object is.
    fn locate(&self, identity: &Identity) -> Result<Place, CollectError> {
        let Identity { kind, namespace, name, .. } = identity;
        let kinds = self.kinds.borrow();
        let served = kinds.discovered.find(&kind.api_version, &kind.name);
        let served = served.ok_or_else(|| CollectError::unmapped(kind))?;
        let key = match served.namespaced {
            true if namespace.is_empty() => return Err(CollectError::NamespacedOwner),
            true => ObjectKey::new(namespace, name),
            false => ObjectKey::cluster(name),
        };
        let objects = self.client.objects_of(served.resource.clone());
        Ok(Place { kind: kind.clone(), resource: served.resource.clone(), objects, key })
    }

    /// The object as the server has it now. A kind that is not served any more says nothing about its objects.
    async fn look(&self, place: &Place) -> Result<Option<Metadata>, CollectError> {
        let path = Metadata::url_path(&place.resource, place.key.namespace());
        let request = kube::core::Request::new(path).get_metadata(place.key.name(), &GetParams::default());
        let request = request.map_err(|error| CollectError::Read(kube::Error::BuildRequest(error)))?;
        match self.client.kube().request(request).await {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if is_absent(&status, place.key.name()) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_not_found() => Err(CollectError::unmapped(&place.kind)),
            Err(error) => Err(CollectError::Read(error)),
        }
    }

    /// Takes owners off an object.
    async fn remove_owners(&self, identity: &Identity, owners: &[&str]) -> Result<(), CollectError> {
        let removed: Vec<Value> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        // The uid makes sure that it is this object and no later one.
        let strategic = json!({"metadata": {"ownerReferences": removed, "uid": &*identity.uid}});
        let rest = |owner: &OwnerReference| (!owners.contains(&&*owner.uid)).then(|| owner.clone());
        self.patch_owners(identity, strategic, rest).await
    }

    /// Makes an object's owners not wait for it.
    async fn unblock_owners(&self, node: &Node) -> Result<(), CollectError> {
        let unblock = |owner: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..owner.clone() };
        let blocked = node.owners.iter().filter(|owner| owner.block_owner_deletion == Some(true));
        let unblocked: Vec<OwnerReference> = blocked.map(unblock).collect();
        let strategic = json!({"metadata": {"ownerReferences": unblocked, "uid": &*node.identity.uid}});
        self.patch_owners(&node.identity, strategic, |owner| Some(unblock(owner))).await
    }

    /// Sends a strategic merge patch, or, where the kind knows none, the whole list of owners.
    async fn patch_owners(
        &self,
        identity: &Identity,
        strategic: Value,
        change: impl Fn(&OwnerReference) -> Option<OwnerReference>,
    ) -> Result<(), CollectError> {
        let place = self.locate(identity)?;
        let Place { objects, key, .. } = &place;
        match objects.patch(key, &Patch::Strategic(strategic)).await {
            Ok(_) => return Ok(()),
            Err(error) if error.status().is_some_and(|status| status.code == 415) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(live) = self.look(&place).await?.filter(|live| live.uid() == &*identity.uid) else {
            return Ok(());
        };
        let owners: Vec<_> = live.metadata.owner_references.iter().flatten().filter_map(change).collect();
        // Without any left the field goes.
        let owners = Some(owners).filter(|owners| !owners.is_empty());
        let version = live.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "ownerReferences": owners}});
        objects.patch(key, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn remove_finalizer(&self, identity: &Identity, finalizer: &str) -> Result<(), CollectError> {
        let place = self.locate(identity)?;
        retry_on_conflict(|| async {
            let live = match self.look(&place).await {
                Ok(Some(live)) if has(&live, finalizer) => live,
                Ok(_) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            let rest: Vec<&String> = live.finalizers().iter().filter(|known| *known != finalizer).collect();
            let rest = Some(rest).filter(|rest| !rest.is_empty());
            let patch = json!({"metadata": {"resourceVersion": live.metadata.resource_version, "finalizers": rest}});
            match place.objects.patch(&place.key, &Patch::Merge(patch)).await {
                Err(error) if error.is_not_found() => Ok(Ok(())),
                patched => patched.map(|_| Ok(())),
            }
        })
        .await?
    }
}

/// Reports what went wrong, unless it is in the nature of things, and asks for another try.
fn failed(node: &Node, error: &CollectError) -> Completion {
    let expected = match error {
        CollectError::Unmapped(..) | CollectError::Behind => true,
        CollectError::Request(error) => error.is_conflict(),
        CollectError::NamespacedOwner | CollectError::Read(_) | CollectError::Discover(_) => false,
    };
    if expected {
        tracing::debug!(object = %node.identity, %error, "garbage collection is tried again");
    } else {
        tracing::warn!(object = %node.identity, %error, "garbage collection failed");
    }
    Completion::Retry
}

fn has(object: &Metadata, finalizer: &str) -> bool {
    object.finalizers().iter().any(|known| known == finalizer)
}
