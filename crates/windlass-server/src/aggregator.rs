//! The aggregator: keeps the catalog's [`Remotes`] and the conditions of their APIServices right.
//!
//! ```text
//! APIServices ──────────────┐                 ┌─▶ status.conditions[Available]
//! Services, EndpointSlices ─┼─▶ check, probe ─┤
//! every 30 s ───────────────┘                 └─▶ discovery, OpenAPI ─▶ Remotes of the catalog
//! ```
//!
//! Each APIService is checked by at most one task at a time, so that a server that does not answer delays no other.
//! Nothing runs, and Services are not followed, as long as there is no APIService with a Service. Mirrors
//! `kube-aggregator/pkg/controllers/status/remote` and the controllers of discovery and OpenAPI next to it.

mod availability;
mod learn;
mod publish;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass_store::{Entry, Range, Revision, StoreError};

use crate::api::Api;
use crate::remote::{Backend, Known, Remote, Remotes};
use crate::stored;
use crate::validation::access::Access as _;
use crate::watch::Channel;
use availability::Condition;
pub(crate) use publish::publish;

const SERVICES: &str = "/registry/services/specs/";
const SLICES: &str = "/registry/endpointslices/";
const API_SERVICES: &str = "/registry/apiregistration.k8s.io/apiservices/";
/// How many events are taken in at once.
const BATCH: usize = 256;
/// How often a server is checked although nothing has changed, as upstream's resync.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// How often a server is asked what it serves.
const LEARN_EVERY: Duration = Duration::from_secs(60);
/// How long a failed check waits for the next one, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// See the module's introduction.
pub(crate) struct Aggregator {
    api: Arc<Api>,
    followed: BTreeMap<String, Followed>,
    checks: JoinSet<Checked>,
    /// The revision up to which APIServices have been looked at.
    seen: Revision,
}

/// An APIService with a Service.
struct Followed {
    spec: Value,
    /// What its status says about it.
    condition: Condition,
    /// What the last check found. Messages differ from one check to the next, so a status that says this is not checked
    /// again for having changed.
    found: Option<Condition>,
    backend: Arc<Backend>,
    known: Known,
    learnt: Option<Instant>,
    /// When it is to be checked next.
    due: Instant,
    retry: Duration,
    is_checking: bool,
}

/// What came of a check.
struct Checked {
    name: String,
    spec: Value,
    found: Condition,
    /// Whether to check again soon: the server may answer without anything having changed here.
    retry: bool,
    known: Option<Known>,
}

/// The changes of a resource, if they are followed.
struct Changes {
    channel: Arc<Channel>,
    newest: watch::Receiver<Revision>,
    seen: Revision,
}

impl Aggregator {
    /// Serves what is registered, before anybody is served.
    pub(crate) async fn open(api: Arc<Api>) -> Result<Self, StoreError> {
        let mut aggregator = Self { api, followed: BTreeMap::new(), checks: JoinSet::new(), seen: 0 };
        aggregator.read_all().await?;
        Ok(aggregator)
    }

    /// Follows changes until the hub is gone.
    pub(crate) async fn run(mut self) {
        let Ok(channel) = self.api.hub.channel(API_SERVICES).await else { return };
        let mut newest = channel.subscribe();
        let mut targets: Option<[Changes; 2]> = None;
        loop {
            if !self.catch_up(&channel).await {
                return;
            }
            if targets.is_none() && !self.followed.is_empty() {
                publish(&self.api).await;
                targets = self.follow_targets().await;
            }
            for changes in targets.iter_mut().flatten() {
                self.note_targets(changes);
            }
            self.start_checks();
            let due = self.followed.values().filter(|f| !f.is_checking).map(|f| f.due).min();
            let [services, slices] = match &mut targets {
                None => [None, None],
                Some([services, slices]) => [Some(&mut services.newest), Some(&mut slices.newest)],
            };
            // Losing the race cancels a wait, never a change: receivers and the task set remember what they have.
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return },
                Some(()) = changed(services) => {}
                Some(()) = changed(slices) => {}
                Some(checked) = self.checks.join_next() => {
                    // A check that panicked has been reported; it is not tried again until something changes.
                    if let Ok(checked) = checked {
                        self.finish(checked);
                    }
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// Takes in what happened to APIServices. Whether the store still answers.
    async fn catch_up(&mut self, channel: &Channel) -> bool {
        loop {
            let Ok(events) = channel.read(self.seen, BATCH) else { return self.read_all().await.is_ok() };
            let Some(last) = events.last() else { return true };
            self.seen = last.event.revision;
            let keys: BTreeSet<&[u8]> = events.iter().map(|event| &*event.event.key).collect();
            let mut changed = false;
            for key in keys {
                let Ok(entry) = self.api.store.get(key).await else { return false };
                changed |= self.take_in(&name_in(key), entry.as_ref());
            }
            if changed {
                self.serve();
            }
        }
    }

    async fn read_all(&mut self) -> Result<(), StoreError> {
        let there = self.api.store.range(Range::prefix(API_SERVICES), None, 0).await?;
        self.seen = there.revision;
        let names: BTreeSet<String> = there.entries.iter().map(|entry| name_in(&entry.key)).collect();
        self.followed.retain(|name, _| names.contains(name));
        for entry in &there.entries {
            self.take_in(&name_in(&entry.key), Some(entry));
        }
        self.serve();
        Ok(())
    }

    /// Takes in an APIService as it is now. Whether something else is served than before.
    fn take_in(&mut self, name: &str, entry: Option<&Entry>) -> bool {
        let object = entry.and_then(|entry| stored::decode(&entry.value).ok());
        let Some(object) = object.filter(|object| object.at("spec").has("service")) else {
            return self.followed.remove(name).is_some();
        };
        let (spec, condition) = (object.at("spec").clone(), Condition::of(&object));
        if let Some(known) = self.followed.get_mut(name)
            && known.spec == spec
        {
            if known.condition == condition {
                return false;
            }
            // Another client may have changed it, unless it is the check that is under way.
            if !known.is_checking && known.found.as_ref() != Some(&condition) {
                known.due = Instant::now();
            }
            known.condition = condition;
            return true;
        }
        let backend =
            Backend::new(Arc::clone(&self.api.store), self.api.reach.dial.clone(), &spec, &self.api.front_proxy);
        let before = self.followed.get(name);
        let followed = Followed {
            spec,
            condition,
            found: None,
            backend: Arc::new(backend),
            known: before.map(|before| before.known.clone()).unwrap_or_default(),
            learnt: None,
            due: Instant::now(),
            retry: FIRST_RETRY,
            is_checking: before.is_some_and(|before| before.is_checking),
        };
        self.followed.insert(name.to_owned(), followed);
        true
    }

    /// Serves what is followed from now on.
    fn serve(&self) {
        let number = |spec: &Value, field: &str| u32::try_from(spec.int(field)).unwrap_or_default();
        let remotes = self.followed.values().map(|followed| Remote {
            group: followed.spec.text("group").to_owned(),
            version: followed.spec.text("version").to_owned(),
            group_priority: number(&followed.spec, "groupPriorityMinimum"),
            version_priority: number(&followed.spec, "versionPriority"),
            is_available: followed.condition.is_true(),
            backend: Arc::clone(&followed.backend),
            known: followed.known.clone(),
        });
        let remotes = Remotes::new(remotes);
        if !(remotes.is_empty() && self.api.catalog.snapshot().remotes().is_empty()) {
            self.api.catalog.set_remotes(remotes);
        }
    }

    async fn follow_targets(&self) -> Option<[Changes; 2]> {
        Some([self.follow(SERVICES).await?, self.follow(SLICES).await?])
    }

    async fn follow(&self, prefix: &str) -> Option<Changes> {
        let seen = *self.api.store.revision().borrow();
        let channel = self.api.hub.channel(prefix).await.ok()?;
        Some(Changes { newest: channel.subscribe(), channel, seen })
    }

    /// Has those checked whose Service or endpoints have changed.
    fn note_targets(&mut self, changes: &mut Changes) {
        changes.newest.borrow_and_update();
        let now = Instant::now();
        loop {
            let events = match changes.channel.read(changes.seen, BATCH) {
                Ok(events) => events,
                Err(oldest) => {
                    changes.seen = oldest;
                    self.followed.values_mut().for_each(|followed| followed.due = now);
                    continue;
                }
            };
            let Some(last) = events.last() else { return };
            changes.seen = last.event.revision;
            for event in &events {
                let key = String::from_utf8_lossy(&event.event.key);
                for followed in self.followed.values_mut().filter(|f| concerns(&key, &event.event.entry, &f.backend)) {
                    followed.due = now;
                }
            }
        }
    }

    fn start_checks(&mut self) {
        let now = Instant::now();
        for (name, followed) in &mut self.followed {
            if followed.is_checking || followed.due > now {
                continue;
            }
            followed.is_checking = true;
            followed.due = now + CHECK_EVERY;
            let is_recent = followed.learnt.is_some_and(|learnt| now.duration_since(learnt) < LEARN_EVERY);
            let learns = !(is_recent && followed.known.is_fresh);
            let (api, name, spec) = (Arc::clone(&self.api), name.clone(), followed.spec.clone());
            let (backend, known) = (Arc::clone(&followed.backend), followed.known.clone());
            self.checks.spawn(async move {
                let found = availability::check(&*api.store, &backend, &spec).await;
                let passed = found.is_true();
                let written = availability::write(&api, &name, &spec, &found).await;
                let known = match passed {
                    true if learns => Some(learn::ask(&backend, &spec, known).await),
                    true => None,
                    false => Some(Known { is_fresh: false, discovery: None, ..known }),
                };
                let retry = !written || found.should_retry();
                Checked { name, spec, found, retry, known }
            });
        }
    }

    fn finish(&mut self, checked: Checked) {
        let Some(followed) = self.followed.get_mut(&checked.name) else { return };
        followed.is_checking = false;
        if followed.spec != checked.spec {
            followed.due = Instant::now();
            return;
        }
        if checked.retry {
            followed.due = followed.due.min(Instant::now() + followed.retry);
            followed.retry = (followed.retry * 2).min(LAST_RETRY);
        } else {
            followed.retry = FIRST_RETRY;
        }
        let passed = checked.found.is_true();
        followed.found = Some(checked.found);
        let Some(known) = checked.known else { return };
        followed.learnt = passed.then(Instant::now);
        if followed.known != known {
            followed.known = known;
            self.serve();
        }
    }
}

/// Whether a change of a Service or EndpointSlice is about the server behind an APIService.
fn concerns(key: &str, entry: &Entry, backend: &Backend) -> bool {
    let (namespace, service) = backend.service();
    if let Some(name) = key.strip_prefix(SERVICES) {
        return name.split_once('/') == Some((namespace, service));
    }
    let Some((in_namespace, _)) = key.strip_prefix(SLICES).and_then(|name| name.split_once('/')) else { return false };
    let of_service = |slice: Value| slice.below(&["metadata", "labels"]).text("kubernetes.io/service-name") == service;
    // What cannot be read may be of any Service.
    in_namespace == namespace && stored::decode(&entry.value).map_or(true, of_service)
}

async fn changed(newest: Option<&mut watch::Receiver<Revision>>) -> Option<()> {
    newest?.changed().await.ok()
}

fn name_in(key: &[u8]) -> String {
    String::from_utf8_lossy(key.strip_prefix(API_SERVICES.as_bytes()).unwrap_or(key)).into_owned()
}
