//! The catalog: every resource the server serves at this moment.
//!
//! Readers take an immutable [`Snapshot`] and never wait; installing or removing a CRD swaps in a new
//! one. Discovery and OpenAPI documents hang off the snapshot they describe, made when first asked for.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use windlass_store::Revision;

use windlass_kinds::crd::CustomKind;
use windlass_kinds::strategy::{self, Flag, Flags, Strategy};
use windlass_kinds::{BuiltinKind, builtin_kind};

use crate::object;
use crate::remote::Remotes;
use crate::resource::{Resource, builtins};
use crate::validation::metadata::Rules;

mod documents;
mod gate;
pub use documents::Documents;
pub use gate::Gate;

/// A resource together with how its objects behave.
pub struct Served {
    /// Names, verbs, schema, columns.
    pub resource: Resource,
    /// Defaulting, validation and the rest.
    pub behaviour: Behaviour,
    /// How every stored object of the kind begins: `{"kind":"Pod","apiVersion":"v1",`.
    pub head: Box<str>,
    /// Objects last written at or before this revision were written under an older schema.
    pub current_since: Revision,
    /// The revision at which the resource came into being; it has no history before that.
    pub since: Revision,
    /// What creates pass through until the CRD of a custom resource is being deleted.
    pub gate: Option<Arc<Gate>>,
    /// Cancelled when the resource is no longer served, or the server stops: ends its watches.
    pub ended: CancellationToken,
}

/// Objects that are computed when they are read.
pub trait Computed: Send + Sync + 'static {
    /// All objects of a namespace, or of all namespaces, in the order of their names.
    fn list(&self, namespace: Option<&str>) -> Vec<Value>;

    /// One object. The namespace is empty for a kind without namespaces.
    fn get(&self, namespace: &str, name: &str) -> Option<Value>;
}

/// How objects of a kind behave.
pub enum Behaviour {
    /// As Kubernetes' own kinds do.
    Builtin(&'static BuiltinKind),
    /// As a CRD says.
    Custom(Arc<CustomKind>),
    /// Computed when they are read.
    Computed(Arc<dyn Computed>),
}

impl Served {
    fn new(resource: Resource, behaviour: Behaviour) -> Self {
        let head = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", resource.kind, resource.api_version());
        let ended = CancellationToken::new();
        Self { resource, behaviour, head: head.into(), current_since: 0, since: 0, gate: None, ended }
    }

    /// The custom kind, if it is one.
    pub fn custom(&self) -> Option<&Arc<CustomKind>> {
        match &self.behaviour {
            Behaviour::Builtin(_) | Behaviour::Computed(_) => None,
            Behaviour::Custom(kind) => Some(kind),
        }
    }

    /// The strategy.
    pub fn strategy(&self) -> &dyn Strategy {
        match &self.behaviour {
            Behaviour::Builtin(kind) => kind.strategy,
            Behaviour::Custom(kind) => kind.strategy(&self.resource.version),
            Behaviour::Computed(_) => &strategy::Plain,
        }
    }

    /// What of its behaviour takes no code.
    fn flags(&self) -> Flags {
        match &self.behaviour {
            Behaviour::Builtin(kind) => kind.flags,
            Behaviour::Custom(_) => Flags::CUSTOM,
            Behaviour::Computed(_) => Flags::NONE,
        }
    }

    /// Whether the kind has a flag.
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags().has(flag)
    }

    /// What the kind asks of metadata.
    pub(crate) fn metadata_rules(&self) -> Rules {
        self.flags().metadata_rules(self.namespaced)
    }

    /// Completes an object that the server itself creates as a create would.
    pub(crate) fn complete(&self, object: &mut Value) {
        let metadata = object::metadata_mut(object);
        metadata.insert("uid".into(), object::new_uid().into());
        metadata.insert("creationTimestamp".into(), object::time(jiff::Timestamp::now()).into());
        let strategy = self.strategy();
        strategy.default(object);
        strategy.prepare_create(object);
    }
}

impl Deref for Served {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        &self.resource
    }
}

/// Group, version, plural.
type ByName = HashMap<Box<str>, HashMap<Box<str>, HashMap<Box<str>, Arc<Served>>>>;

/// The resources served at one moment.
pub struct Snapshot {
    served: Vec<Arc<Served>>,
    by_name: ByName,
    remotes: Arc<Remotes>,
    documents: Documents,
}

/// A custom resource to serve.
pub struct Custom {
    /// Names, verbs, schema, columns.
    pub resource: Resource,
    /// What its CRD says.
    pub kind: Arc<CustomKind>,
    /// What creates of its objects pass through.
    pub gate: Arc<Gate>,
    /// Objects last written at or before this revision were written under an older schema.
    pub current_since: Revision,
    /// The revision at which the CRD was created.
    pub since: Revision,
}

impl Snapshot {
    fn builtin() -> Self {
        let served = builtins().iter().map(|resource| {
            let kind = builtin_kind(&resource.group, &resource.kind);
            Arc::new(Served::new(resource.clone(), Behaviour::Builtin(kind)))
        });
        Self::of(served.collect(), Arc::default())
    }

    fn of(served: Vec<Arc<Served>>, remotes: Arc<Remotes>) -> Self {
        let mut by_name = ByName::new();
        for one in &served {
            by_name
                .entry(one.group.clone())
                .or_default()
                .entry(one.version.clone())
                .or_default()
                .insert(one.plural.clone(), Arc::clone(one));
        }
        Self { served, by_name, remotes, documents: Documents::default() }
    }

    /// The resource called `plural` in a group and version.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_name.get(group)?.get(version)?.get(plural)
    }

    /// Whether anything is served in a group.
    pub fn has_group(&self, group: &str) -> bool {
        self.by_name.contains_key(group)
    }

    /// Whether a group has built-in resources.
    pub(crate) fn has_builtin_group(&self, group: &str) -> bool {
        let versions = self.by_name.get(group).into_iter().flat_map(HashMap::values);
        versions.flat_map(HashMap::values).any(|served| served.custom().is_none())
    }

    /// Whether anything is served in a version of a group.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.by_name.get(group).is_some_and(|versions| versions.contains_key(version))
    }

    /// Every resource.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.served.iter().map(|served| &served.resource)
    }

    /// Everything served.
    pub fn served(&self) -> &[Arc<Served>] {
        &self.served
    }

    /// What other servers serve.
    pub(crate) fn remotes(&self) -> &Remotes {
        &self.remotes
    }

    /// Documents about this snapshot.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }
}

/// The resources served now.
pub struct Catalog {
    current: ArcSwap<Snapshot>,
    /// Held while a snapshot is made of the one before.
    changing: parking_lot::Mutex<()>,
}

impl Catalog {
    /// Just the built-in kinds.
    pub fn new() -> Self {
        Self { current: ArcSwap::from_pointee(Snapshot::builtin()), changing: parking_lot::Mutex::new(()) }
    }

    /// What is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Serves the built-in kinds and these custom ones from now on. Watches of custom resources that
    /// are gone or have changed end, so that their clients come back and see what is served now. Those of
    /// a resource whose CRD is being deleted go on, as they are to tell of the deletion of its objects.
    pub fn install(&self, custom: Vec<Custom>) {
        let _changing = self.changing.lock();
        let old = self.snapshot();
        let mut served: Vec<Arc<Served>> = old.served.iter().filter(|s| s.custom().is_none()).cloned().collect();
        let mut kept: HashSet<*const Served> = served.iter().map(Arc::as_ptr).collect();
        served.extend(custom.into_iter().map(|custom| {
            let Custom { resource, kind, gate, current_since, since } = custom;
            let mut ended = CancellationToken::new();
            if let Some(before) = old.find(&resource.group, &resource.version, &resource.plural)
                && let Some(known) = before.custom()
                && (&known.uid, before.current_since) == (&kind.uid, current_since)
                && before.has_names_of(&resource)
            {
                kept.insert(Arc::as_ptr(before));
                if known.terminating == kind.terminating {
                    return Arc::clone(before);
                }
                ended = before.ended.clone();
            }
            Arc::new(Served {
                current_since,
                since,
                gate: Some(gate),
                ended,
                ..Served::new(resource, Behaviour::Custom(kind))
            })
        }));
        self.current.store(Arc::new(Snapshot::of(served, Arc::clone(&old.remotes))));
        for gone in old.served.iter().filter(|served| !kept.contains(&Arc::as_ptr(served))) {
            gone.ended.cancel();
        }
    }

    /// Serves kinds that are computed, besides everything else, from now on.
    pub fn add_computed(&self, resources: Vec<Resource>, objects: &Arc<dyn Computed>) {
        let _changing = self.changing.lock();
        let computed = |resource| Arc::new(Served::new(resource, Behaviour::Computed(Arc::clone(objects))));
        let old = self.snapshot();
        let served = old.served.iter().cloned().chain(resources.into_iter().map(computed)).collect();
        self.current.store(Arc::new(Snapshot::of(served, Arc::clone(&old.remotes))));
    }

    /// Passes on requests for these group versions, from now on.
    pub(crate) fn set_remotes(&self, remotes: Remotes) {
        let _changing = self.changing.lock();
        let served = self.snapshot().served.clone();
        self.current.store(Arc::new(Snapshot::of(served, Arc::new(remotes))));
    }

    /// Ends every watch.
    pub(crate) fn end_watches(&self) {
        for served in self.snapshot().served() {
            served.ended.cancel();
        }
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}
