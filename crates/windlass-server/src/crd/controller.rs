//! Keeps the catalog in step with the stored CRDs, and CRDs in step with what is served.
//!
//! One task follows the CRDs through the watch hub. For each change it brings the CRD's status up to
//! date (names, establishment), and that of those which wait for one of its names, and installs the
//! resulting resources in the catalog. A handler that wrote a CRD waits for `Progress` to pass its
//! revision, so that a new kind is served when the client hears of it. The objects of a CRD that is being
//! deleted are cleaned up beside it, in `cleanup`, and where admission has a say in a status it is asked beside it,
//! in `inquiry`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;
use windlass_store::{Entry, Expect, Range, Revision, StoreError, TxnResult, Write};

use super::cleanup::Cleanups;
use super::inquiry::{Inquiries, Proposal, Verdict};
use crate::admission;
use crate::api::Api;
use crate::catalog::{Custom, Gate};
use crate::codec::json;
use crate::effort;
use crate::object;
use crate::resource::Resource;
use crate::status::Status;
use crate::validation::access::Access;
use crate::{registry, stored};
use windlass_kinds::crd::CustomKind;
use windlass_kinds::crd::lifecycle::{self, AcceptedNames};

const PREFIX: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// How long a status waits that admission refused, at first and at most: upstream's default rate limiter of a queue.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1000);

/// A stored CRD.
struct Known {
    /// What it says, but for its schemas: there may be hundreds of CRDs, and few are in use.
    outline: Value,
    /// All of it.
    stored: Bytes,
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
    /// Waits before admission is asked about its status again.
    fn refused(&mut self, status: &Status) {
        let name = self.outline.at("metadata").text("name");
        tracing::warn!(name, reason = %status.message, "admission keeps a custom resource definition from effect");
        let wait = self.retry.map_or(FIRST_RETRY, |(_, wait)| wait);
        self.retry = Some((Instant::now() + wait, (wait * 2).min(LAST_RETRY)));
    }

    /// The resources it defines.
    fn serve(&self, api: &Api) -> Vec<(Resource, Arc<CustomKind>)> {
        lifecycle::serve_stored(&self.outline, self.stored.clone(), &api.schemas)
    }

    /// All that it says. `None` if the runtime is about to end.
    async fn read(&self) -> Option<Value> {
        let stored = self.stored.clone();
        // It was read before.
        apart(stored.len(), move || json::parse(&stored).map(|parsed| parsed.value).unwrap_or_default()).await
    }
}

/// See the module's introduction.
pub struct CrdController {
    api: Arc<Api>,
    known: BTreeMap<Bytes, Known>,
    /// The CRDs of each group.
    groups: BTreeMap<Box<str>, BTreeSet<Bytes>>,
    /// Whose status may have to change.
    unsettled: BTreeSet<Bytes>,
    /// Whether what is installed is what is known.
    installed: bool,
    cleanups: Cleanups,
    inquiries: Inquiries,
    seen: Revision,
    /// Whether nothing is served yet, webhooks' own requests included: none is asked then.
    opening: bool,
}

impl CrdController {
    /// Installs the CRDs that are stored.
    pub async fn open(api: Arc<Api>) -> Result<Self, StoreError> {
        let mut controller = Self {
            api,
            known: BTreeMap::new(),
            groups: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            installed: false,
            cleanups: Cleanups::default(),
            inquiries: Inquiries::default(),
            seen: 0,
            opening: true,
        };
        controller.reload().await?;
        controller.opening = false;
        Ok(controller)
    }

    /// Follows changes until the hub is gone.
    pub async fn run(mut self) {
        let Ok(channel) = self.api.hub.channel(PREFIX).await else { return };
        let mut newest = channel.subscribe();
        loop {
            let step = match channel.read(self.seen, 256) {
                Ok(events) if events.is_empty() => {
                    let refused = self.known.iter().filter(|(key, _)| !self.inquiries.concern(key));
                    let retry = refused.filter_map(|(_, known)| Some(known.retry?.0)).min();
                    let verdict = tokio::select! {
                        changed = newest.changed() => match changed {
                            Ok(()) => continue,
                            Err(_) => return,
                        },
                        verdict = self.inquiries.next() => Some(verdict),
                        () = tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => None,
                    };
                    match verdict {
                        Some(verdict) => self.conclude(verdict).await,
                        None => self.try_again().await,
                    }
                }
                Ok(events) => {
                    for event in events {
                        let event = &event.event;
                        self.seen = event.revision;
                        if event.deleted {
                            self.forget(&event.key);
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

    /// Looks again at the CRDs whose status admission refused.
    async fn try_again(&mut self) -> Result<(), StoreError> {
        let refused = self.known.iter().filter(|(_, known)| known.retry.is_some());
        self.unsettled.extend(refused.map(|(key, _)| key.clone()));
        self.settle().await
    }

    /// Does what admission said about the status of a CRD.
    async fn conclude(&mut self, verdict: Verdict) -> Result<(), StoreError> {
        let Verdict { proposal, admitted } = verdict;
        let taken = self.names_of_others(&proposal.key);
        if let Some(known) = self.known.get_mut(&proposal.key).filter(|known| known.modified == proposal.modified) {
            match admitted {
                Ok(crd) if proposal.holds(&taken) => {
                    known.structure_noted = true;
                    self.write(&proposal.key, &crd).await?;
                    self.unsettle_rivals(&proposal.key);
                }
                Ok(_) => {
                    self.unsettled.insert(proposal.key);
                }
                Err(status) => known.refused(&status),
            }
        }
        self.settle().await
    }

    /// Starts from what is stored now.
    async fn reload(&mut self) -> Result<(), StoreError> {
        let snapshot = self.api.store.range(Range::prefix(PREFIX), None, 0).await?;
        let before = std::mem::take(&mut self.known);
        self.inquiries = Inquiries::default();
        self.groups.clear();
        self.installed = false;
        for entry in snapshot.entries {
            self.learn(&entry).await;
        }
        for (key, known) in &mut self.known {
            if let Some(before) = before.get(key).filter(|before| before.created == known.created) {
                known.gate = Arc::clone(&before.gate);
            }
        }
        let created = |crds: &BTreeMap<Bytes, Known>, key: &Bytes| crds.get(key).map(|known| known.created);
        self.cleanups.retain(|key| created(&self.known, key) == created(&before, key));
        self.seen = snapshot.revision;
        self.settle().await
    }

    async fn learn(&mut self, entry: &Entry) {
        let Entry { key, created, modified, .. } = entry.clone();
        if self.known.get(&key).is_some_and(|known| known.modified >= modified) {
            return;
        }
        self.inquiries.end(&key);
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
            outline: lifecycle::outline(&crd),
            stored: entry.value.clone(),
            modified,
            current_since: modified,
            created,
            structure_noted: lifecycle::is_as_created(&crd),
            gate: Arc::default(),
            retry: None,
            served: OnceLock::new(),
        };
        if let Some(known) = self.known.get(&key).filter(|known| known.created == created) {
            learned.gate = Arc::clone(&known.gate);
        }
        if let Some(known) = self.known.get(&key)
            && known.created == created
            && known.outline.at("spec") == learned.outline.at("spec")
            && known.read().await.is_some_and(|known| known.at("spec") == crd.at("spec"))
        {
            learned.current_since = known.current_since;
            // Large schemas take their time; a change of status has no part in what they say.
            learned.structure_noted = known.structure_noted;
            if lifecycle::serves_alike(&known.outline, &learned.outline) {
                learned.served = known.served.clone();
                for (_, kind) in learned.served.get().into_iter().flatten() {
                    kind.replace_stored(learned.stored.clone());
                }
            }
        }
        self.installed &= learned.served.get().is_some();
        let group = learned.outline.at("spec").text("group");
        if !self.groups.contains_key(group) {
            self.groups.insert(group.into(), BTreeSet::new());
        }
        if let Some(keys) = self.groups.get_mut(group) {
            keys.insert(key.clone());
        }
        self.known.insert(key.clone(), learned);
        self.unsettle_rivals(&key);
        self.unsettled.insert(key);
    }

    fn forget(&mut self, key: &Bytes) {
        self.cleanups.end(key);
        self.inquiries.end(key);
        self.unsettle_rivals(key);
        self.unsettled.remove(key);
        let Some(gone) = self.known.remove(key) else { return };
        self.installed = false;
        let group = gone.outline.at("spec").text("group");
        if let Some(keys) = self.groups.get_mut(group) {
            keys.remove(key);
            if keys.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    /// Names that a CRD had may be free now: a CRD of its group that waits for one is looked at again. One that has its
    /// names keeps them.
    fn unsettle_rivals(&mut self, key: &Bytes) {
        let group = self.known.get(key).map(|known| known.outline.at("spec").text("group"));
        let keys = group.and_then(|group| self.groups.get(group)).into_iter().flatten();
        let waits =
            |other: &&Bytes| self.known.get(*other).is_some_and(|other| !lifecycle::has_its_names(&other.outline));
        let rivals: Vec<Bytes> = keys.filter(|other| *other != key).filter(waits).cloned().collect();
        self.unsettled.extend(rivals);
    }

    /// Brings the status of CRDs up to date that may need it, and installs what they define.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let mut going = Vec::new();
        while let Some(key) = self.unsettled.pop_first() {
            if self.settle_one(&key).await? {
                self.unsettle_rivals(&key);
            }
            if let Some(known) = self.known.get(&key)
                && known.served.get().is_none()
            {
                known.served.get_or_init(|| known.serve(&self.api));
                self.installed = false;
            }
            match self.known.get(&key) {
                Some(known) if lifecycle::awaits_cleanup(&known.outline) => going.push((key, Arc::clone(&known.gate))),
                _ => self.cleanups.end(&key),
            }
        }
        if !std::mem::replace(&mut self.installed, true) {
            self.install();
        }
        // Only what is served as going is cleaned up.
        for (key, gate) in going {
            self.cleanups.begin(&self.api, key, gate);
        }
        self.api.crds.publish(self.seen, self.inquiries.revisions());
        Ok(())
    }

    /// Whether the status of a CRD had to be changed.
    async fn settle_one(&mut self, key: &Bytes) -> Result<bool, StoreError> {
        let Some(known) = self.known.get(key) else { return Ok(false) };
        if known.outline.at("metadata").has("deletionTimestamp") || self.inquiries.concern(key) {
            return Ok(false);
        }
        let taken = self.names_of_others(key);
        let Some(known) = self.known.get_mut(key) else { return Ok(false) };
        let now = object::time(Timestamp::now());
        if known.retry.is_some_and(|(at, _)| at > Instant::now()) {
            return Ok(false);
        }
        let look = !std::mem::replace(&mut known.structure_noted, true);
        // What schemas say is looked at only if there is something to say of them.
        if !look && !lifecycle::update_status(&mut known.outline.clone(), &taken, &now, false) {
            return Ok(false);
        }
        let Some(before) = known.read().await.map(Arc::new) else { return Ok(false) };
        let mut after = Arc::clone(&before);
        if !lifecycle::update_status(Arc::make_mut(&mut after), &taken, &now, look) {
            return Ok(false);
        }
        if admission::has_a_say(&self.api) {
            // Nothing is different until admission has had its say.
            known.structure_noted = !look;
            if self.opening {
                known.retry = Some((Instant::now(), FIRST_RETRY));
            } else {
                let proposal = Proposal { key: key.clone(), modified: known.modified, before, after, now };
                self.inquiries.begin(&self.api, proposal);
            }
            return Ok(false);
        }
        drop(before);
        self.write(key, &after).await?;
        Ok(true)
    }

    /// The names that the other CRDs of a CRD's group have.
    fn names_of_others(&self, key: &Bytes) -> AcceptedNames {
        let group = self.known.get(key).map(|known| known.outline.at("spec").text("group"));
        let keys = group.and_then(|group| self.groups.get(group)).into_iter().flatten();
        let others = keys.filter(|other| *other != key).filter_map(|other| self.known.get(other));
        AcceptedNames::of(others.map(|other| &other.outline))
    }

    /// Stores the new status of a CRD.
    async fn write(&mut self, key: &Bytes, crd: &Arc<Value>) -> Result<(), StoreError> {
        let Some(known) = self.known.get_mut(key) else { return Ok(()) };
        known.retry = None;
        match put(&self.api, key, Expect::At(known.modified), crd, known.stored.len()).await? {
            Some(entry) => {
                known.modified = entry.modified;
                known.outline = lifecycle::outline(crd);
                known.stored = entry.value;
                known.served = known.serve(&self.api).into();
            }
            // It has changed meanwhile: its event is on its way, and it is looked at again.
            None => known.structure_noted = false,
        }
        self.installed = false;
        Ok(())
    }

    fn install(&self) {
        let mut custom = Vec::new();
        for known in self.known.values() {
            for (resource, kind) in known.served.get().into_iter().flatten() {
                let (resource, kind) = (resource.clone(), Arc::clone(kind));
                let gate = Arc::clone(&known.gate);
                custom.push(Custom { resource, kind, gate, current_since: known.current_since, since: known.created });
            }
        }
        self.api.catalog.install(custom);
        self.api.custom_versions.set(self.known.values().flat_map(|known| served_versions(&known.outline)).collect());
    }
}

/// The group versions that a CRD wants served, whether it is established or not.
fn served_versions(crd: &Value) -> impl Iterator<Item = (&str, &str)> {
    let spec = crd.at("spec");
    let served = spec.list("versions").iter().filter(|version| version.flag("served"));
    served.map(|version| (spec.text("group"), version.text("name")))
}

/// Lets admission have its say about a CRD's new status: upstream's controllers write it as clients do, and so a
/// webhook may keep a CRD from being served.
pub(super) async fn admit(api: &Arc<Api>, before: &Value, crd: &mut Arc<Value>) -> Result<(), Status> {
    let snapshot = api.catalog.snapshot();
    let Some(served) = snapshot.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned() else {
        return Ok(());
    };
    drop(snapshot);
    registry::own_status(api, &served, Arc::make_mut(crd), before).await
}

/// Does what takes as long as a CRD is large: where requests are served only if it is small. `None` if the runtime is
/// about to end.
async fn apart<T: Send + 'static>(size: usize, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if effort::is_large_write(size) { effort::at_once(work).await } else { Some(work()) }
}

/// Writes a CRD; `None` if it has changed meanwhile, in which case its event is on its way.
pub(super) async fn put(
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
