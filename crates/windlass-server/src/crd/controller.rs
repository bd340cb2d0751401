//! Keeps the catalog in step with the stored CRDs, and CRDs in step with what is served.
//!
//! One task follows the CRDs through the watch hub. For each change it brings the CRD's status up to
//! date (names, establishment), removes the objects of a CRD that is being deleted, and installs the
//! resulting resources in the catalog. A handler that wrote a CRD waits for [`Progress`] to pass its
//! revision, so that a new kind is served when the client hears of it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_store::{Entry, Expect, Range, Revision, StoreError, TxnResult, Write};

use super::lifecycle::{self, AcceptedNames};
use super::{CustomKind, Gate};
use crate::admission;
use crate::api::Api;
use crate::catalog::Custom;
use crate::codec::json;
use crate::effort;
use crate::object;
use crate::registry::stored;
use crate::resource::Resource;
use crate::status::Status;
use crate::validation::access::Access;

const PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// How long a status waits that admission refused, at first and at most: upstream's default rate limiter of a queue.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1000);

/// The revision up to which CRDs have taken effect.
pub type Progress = watch::Sender<Revision>;

/// A stored CRD.
struct Known {
    crd: Arc<Value>,
    /// How many bytes it takes.
    size: usize,
    modified: Revision,
    /// The revision at which its present spec came into effect.
    current_since: Revision,
    /// The revision at which it was created.
    created: Revision,
    /// Whether its status says if its schemas are structural.
    structure_noted: bool,
    /// What creates of its objects pass through.
    gate: Arc<Gate>,
    /// When to try again if admission refused its status, and how long to wait the next time.
    retry: Option<(Instant, Duration)>,
    /// The resources it defines, made when they are first installed.
    served: OnceLock<Vec<(Resource, Arc<CustomKind>)>>,
}

impl Known {
    /// Asks admission about its new status. If that refuses it, returns how long to wait before the next time.
    async fn refused(&mut self, api: &Arc<Api>, before: &Value) -> Option<Duration> {
        let status = admit(api, before, &mut self.crd).await.err()?;
        let name = before.at("metadata").text("name");
        tracing::warn!(name, reason = %status.message, "admission keeps a custom resource definition from effect");
        Some(self.retry.map_or(FIRST_RETRY, |(_, wait)| wait))
    }

    /// The resources it defines. `None` if the runtime is about to end.
    async fn serve(&self) -> Option<Vec<(Resource, Arc<CustomKind>)>> {
        let (crd, gate) = (Arc::clone(&self.crd), Arc::clone(&self.gate));
        apart(self.size, move || lifecycle::serve(&crd, &gate)).await
    }
}

/// See the module's introduction.
pub struct CrdController {
    api: Arc<Api>,
    known: BTreeMap<Bytes, Known>,
    seen: Revision,
    /// Whether nothing is served yet, webhooks' own requests included: nobody is asked then.
    opening: bool,
}

impl CrdController {
    /// Nothing has taken effect yet.
    pub fn progress() -> Progress {
        watch::channel(0).0
    }

    /// Installs the CRDs that are stored.
    pub async fn open(api: Arc<Api>) -> Result<Self, StoreError> {
        let mut controller = Self { api, known: BTreeMap::new(), seen: 0, opening: true };
        controller.reload().await?;
        controller.opening = false;
        Ok(controller)
    }

    /// Follows changes until the hub is gone.
    pub async fn run(mut self) {
        let Ok(channel) = self.api.hub.channel(PREFIX).await else { return };
        let mut newest = channel.subscribe();
        let mut progress = self.api.hub.progress();
        loop {
            let step = match channel.read(self.seen, 256) {
                Ok(events) if events.is_empty() => {
                    let cleaning = self.known.values().any(|known| lifecycle::awaits_cleanup(&known.crd));
                    let retry = self.known.values().filter_map(|known| Some(known.retry?.0)).min();
                    // While objects of a CRD are going away, anything may be the last of them.
                    let changed = tokio::select! {
                        changed = newest.changed() => changed.map(|()| cleaning),
                        changed = progress.changed(), if cleaning => changed.map(|()| true),
                        () = tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => Ok(true),
                    };
                    match changed {
                        Err(_) => return,
                        Ok(false) => continue,
                        Ok(true) => self.settle().await,
                    }
                }
                Ok(events) => {
                    for event in events {
                        let event = &event.event;
                        self.seen = event.revision;
                        if event.deleted {
                            self.known.remove(&event.key);
                        } else {
                            self.learn(&event.entry).await;
                        }
                    }
                    self.settle().await
                }
                Err(_) => self.reload().await,
            };
            if let Err(error) = step {
                tracing::error!(%error, "custom resource definitions no longer take effect: the store cannot be used");
                return;
            }
        }
    }

    /// Starts from what is stored now.
    async fn reload(&mut self) -> Result<(), StoreError> {
        let snapshot = self.api.store.range(Range::prefix(PREFIX), None, 0).await?;
        let before = std::mem::take(&mut self.known);
        for entry in snapshot.entries {
            self.learn(&entry).await;
        }
        for (key, known) in &mut self.known {
            if let Some(before) = before.get(key).filter(|before| before.created == known.created) {
                known.gate = Arc::clone(&before.gate);
            }
        }
        self.seen = snapshot.revision;
        self.settle().await
    }

    async fn learn(&mut self, entry: &Entry) {
        let Entry { key, created, modified, .. } = entry.clone();
        if self.known.get(&key).is_some_and(|known| known.modified >= modified) {
            return;
        }
        let value = entry.value.clone();
        let Some(parsed) = apart(value.len(), move || json::parse(&value)).await else { return };
        let crd = match parsed {
            Ok(parsed) => parsed.value,
            Err(error) => {
                tracing::error!(key = %String::from_utf8_lossy(&key), %error, "a stored CRD cannot be read");
                return;
            }
        };
        let mut learned = Known {
            modified,
            current_since: modified,
            created,
            structure_noted: lifecycle::is_as_created(&crd),
            crd: Arc::new(crd),
            size: entry.value.len(),
            gate: Arc::default(),
            retry: None,
            served: OnceLock::new(),
        };
        if let Some(known) = self.known.get(&key).filter(|known| known.created == created) {
            learned.gate = Arc::clone(&known.gate);
        }
        if let Some(known) = self.known.get(&key)
            && known.created == created
            && known.crd.at("spec") == learned.crd.at("spec")
        {
            learned.current_since = known.current_since;
            // Large schemas take their time; a change of status has no part in what they say.
            learned.structure_noted = known.structure_noted;
            if lifecycle::serves_alike(&known.crd, &learned.crd) {
                learned.served = known.served.clone();
            }
        }
        self.known.insert(key, learned);
    }

    /// Brings every CRD's status up to date and installs what they define.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let keys: Vec<Bytes> = self.known.keys().cloned().collect();
        for key in keys {
            self.settle_one(&key).await?;
        }
        for known in self.known.values() {
            if known.served.get().is_none()
                && let Some(served) = known.serve().await
            {
                known.served.get_or_init(|| served);
            }
        }
        self.install();
        for (key, known) in &self.known {
            if lifecycle::awaits_cleanup(&known.crd) {
                self.clean_up(key.clone(), known).await?;
            }
        }
        self.api.crds.send_replace(self.seen);
        Ok(())
    }

    async fn settle_one(&mut self, key: &Bytes) -> Result<(), StoreError> {
        let Some(known) = self.known.get(key) else { return Ok(()) };
        if known.crd.at("metadata").has("deletionTimestamp") {
            return Ok(());
        }
        let group = known.crd.at("spec").text("group").to_owned();
        let others = self.known.iter().filter(|(other, _)| *other != key).map(|(_, known)| &*known.crd);
        let taken = AcceptedNames::of_group(&group, others);
        let Some(known) = self.known.get_mut(key) else { return Ok(()) };
        let now = object::time(Timestamp::now());
        if known.retry.is_some_and(|(at, _)| at > Instant::now()) {
            return Ok(());
        }
        let look = !std::mem::replace(&mut known.structure_noted, true);
        let before = admission::has_a_say(&self.api).then(|| Arc::clone(&known.crd));
        if !lifecycle::update_status(Arc::make_mut(&mut known.crd), &taken, &now, look) {
            return Ok(());
        }
        if let Some(before) = before {
            let refused = if self.opening { Some(Duration::ZERO) } else { known.refused(&self.api, &before).await };
            if let Some(wait) = refused {
                known.retry = Some((Instant::now() + wait, (wait * 2).clamp(FIRST_RETRY, LAST_RETRY)));
                (known.crd, known.structure_noted) = (before, !look);
                return Ok(());
            }
        }
        known.retry = None;
        // Reading a large schema takes about as long as the disk does.
        let written = put(&self.api, key, Expect::At(known.modified), &known.crd, known.size);
        let (written, served) = futures::future::join(written, known.serve()).await;
        match written? {
            Some(entry) => {
                known.modified = entry.modified;
                known.served = served.map(OnceLock::from).unwrap_or_default();
            }
            // It has changed meanwhile: its event is on its way, and everything is looked at again.
            None => known.structure_noted = false,
        }
        Ok(())
    }

    fn install(&self) {
        let mut custom = Vec::new();
        for known in self.known.values() {
            for (resource, kind) in known.served.get().into_iter().flatten() {
                let (resource, kind) = (resource.clone(), Arc::clone(kind));
                custom.push(Custom { resource, kind, current_since: known.current_since, since: known.created });
            }
        }
        self.api.catalog.install(custom);
    }

    /// Deletes the objects of a CRD that is going away, then lets go of it. Objects with finalizers are
    /// marked, and the CRD stays until they are gone.
    async fn clean_up(&self, key: Bytes, known: &Known) -> Result<(), StoreError> {
        let spec = known.crd.at("spec");
        let prefix = format!("/registry/{}/{}/", spec.text("group"), spec.at("names").text("plural"));
        known.gate.shut().await;
        let left = crate::registry::delete_all(&self.api, &prefix).await?;
        let now = object::time(Timestamp::now());
        let mut crd = Arc::clone(&known.crd);
        let expect = Expect::At(known.modified);
        if left > 0 {
            lifecycle::deletion_in_progress(Arc::make_mut(&mut crd), &now);
            if crd != known.crd {
                put(&self.api, &key, expect, &crd, known.size).await?;
            }
            return Ok(());
        }
        lifecycle::finish_deletion(Arc::make_mut(&mut crd), &now);
        if crd.at("metadata").list("finalizers").is_empty() {
            let last = Some(stored::encode(&crd));
            self.api.store.txn(vec![Write::Delete { key, expect, last }]).await?;
        } else {
            put(&self.api, &key, expect, &crd, known.size).await?;
        }
        Ok(())
    }
}

/// Lets admission have its say about a CRD's new status: upstream's controllers write it as clients do, and so a
/// webhook may keep a CRD from being served.
async fn admit(api: &Arc<Api>, before: &Value, crd: &mut Arc<Value>) -> Result<(), Status> {
    let snapshot = api.catalog.snapshot();
    let Some(served) = snapshot.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned() else {
        return Ok(());
    };
    drop(snapshot);
    admission::own_status(api, &served, Arc::make_mut(crd), before).await
}

/// Does what takes as long as a CRD is large: where requests are served only if it is small. `None` if the runtime is
/// about to end.
async fn apart<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if effort::is_large_write(size) { effort::at_once(work).await } else { Some(work()) }
}

/// Writes a CRD; `None` if it has changed meanwhile, in which case its event is on its way.
async fn put(
    api: &Api,
    key: &Bytes,
    expect: Expect,
    crd: &Arc<Value>,
    size: usize,
) -> Result<Option<Entry>, StoreError> {
    let crd = Arc::clone(crd);
    let Some(value) = apart(size, move || stored::encode_about(&crd, size)).await else { return Ok(None) };
    match api.store.txn(vec![Write::Put { key: key.clone(), expect, value }]).await? {
        TxnResult::Committed { mut entries, .. } => Ok(entries.pop().flatten()),
        TxnResult::Conflict { .. } => Ok(None),
    }
}
