//! The APIService objects of what this server serves itself.
//!
//! ```text
//! built-in group versions ──┐
//!                           ├─▶ open: one transaction ─▶ run: as CRDs and APIServices change
//! CRDs' served versions ────┘
//! ```
//!
//! Those of built-in group versions are put right when the server starts and left to people until the next start;
//! those of custom ones are kept at all times. A label says which is which, and what lacks it is left alone. What is
//! served here is always available. Mirrors `kube-aggregator/pkg/controllers/autoregister`, `status/local` next to it
//! and `pkg/controlplane/controller/crdregistration`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_store::{Entry, Expect, Range, Revision, StoreError, TxnResult, Write};

use windlass_kinds::strategy::api_service::set_local;

use crate::api::Api;
use crate::catalog::Served;
use crate::discovery::{CUSTOM_PRIORITY, priority};
use crate::loopback::{self, Failed};
use crate::object;
use crate::state::contention::Attempts;
use crate::state::custom_versions::name;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _, semantically_equal};

const GROUP: &str = "apiregistration.k8s.io";
const PREFIX: &str = "/registry/apiregistration.k8s.io/apiservices/";
const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Says that, and when, the server looks after an APIService.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const ON_START: &str = "onstart";
const ALWAYS: &str = "true";
/// How many events are taken in at once.
const BATCH: usize = 256;
/// How long a write waits that was refused, at first and at most: upstream's default rate limiter of a queue.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(1000);

/// See the module's introduction.
pub(crate) struct Registrar {
    api: Arc<Api>,
    /// The APIServices that CRDs want.
    custom: BTreeSet<String>,
    /// The revision up to which APIServices have been looked at.
    seen: Revision,
    /// What was refused: when to try again, and how long to wait the next time.
    retries: BTreeMap<String, (Instant, Duration)>,
}

impl Registrar {
    /// Puts everything right, before anybody is served.
    pub(crate) async fn open(api: Arc<Api>) -> Result<Self, StoreError> {
        let custom = api.custom_versions.wanted.borrow().clone();
        let mut seen = 0;
        let snapshot = api.catalog.snapshot();
        let Some(served) = snapshot.find(GROUP, "v1", "apiservices") else {
            return Ok(Self { api, custom, seen, retries: BTreeMap::new() });
        };
        let mut attempts = Attempts::begin();
        loop {
            let there = api.store.range(Range::prefix(PREFIX), None, 0).await?;
            seen = there.revision;
            let writes = writes(served, wanted(&custom), &there.entries);
            let is_done = writes.is_empty() || matches!(api.store.txn(writes).await?, TxnResult::Committed { .. });
            if is_done || !attempts.again() {
                break;
            }
        }
        Ok(Self { api, custom, seen, retries: BTreeMap::new() })
    }

    /// Follows changes until the hub is gone.
    pub(crate) async fn run(mut self) {
        let Ok(channel) = self.api.hub.channel(PREFIX).await else { return };
        let mut newest = channel.subscribe();
        let mut versions = self.api.custom_versions.wanted.subscribe();
        loop {
            let mut names = BTreeSet::new();
            if let Ok(events) = channel.read(self.seen, BATCH) {
                self.seen = events.last().map_or(self.seen, |last| last.event.revision);
                names.extend(events.iter().map(|event| name_in(&event.event.key)));
            } else {
                let Ok(there) = self.api.store.range(Range::prefix(PREFIX), None, 0).await else { return };
                self.seen = there.revision;
                names.extend(there.entries.iter().map(|entry| name_in(&entry.key)));
                names.extend(self.custom.iter().cloned());
            }
            let before = std::mem::replace(&mut self.custom, versions.borrow_and_update().clone());
            names.extend(self.custom.symmetric_difference(&before).cloned());
            let now = Instant::now();
            names.extend(self.retries.iter().filter(|(_, (at, _))| *at <= now).map(|(name, _)| name.clone()));
            for name in &names {
                self.look_after(name).await;
            }
            if !names.is_empty() {
                continue;
            }
            let retry = self.retries.values().map(|(at, _)| *at).min();
            // Losing the race cancels a wait, never a change: a receiver remembers what it has not shown.
            let is_over = tokio::select! {
                changed = newest.changed() => changed.is_err(),
                changed = versions.changed() => changed.is_err(),
                () = tokio::time::sleep_until(retry.unwrap_or(now)), if retry.is_some() => false,
            };
            if is_over {
                return;
            }
        }
    }

    async fn look_after(&mut self, name: &str) {
        let Err(Failed { method, path, message }) = self.put_right(name).await else {
            self.retries.remove(name);
            return;
        };
        tracing::warn!(%method, %path, %message, "an API service cannot be updated");
        let wait = self.retries.get(name).map_or(FIRST_RETRY, |(_, wait)| *wait);
        self.retries.insert(name.to_owned(), (Instant::now() + wait, (wait * 2).min(LAST_RETRY)));
    }

    /// Does what one APIService needs. Its events lead back here until there is nothing left to do.
    async fn put_right(&self, name: &str) -> Result<(), Failed> {
        let path = format!("{PATH}/{name}");
        let is_wanted = self.custom.contains(name);
        let Some(mut found) = loopback::get(&self.api, &path).await? else {
            if !is_wanted {
                return Ok(());
            }
            return loopback::send(&self.api, Method::POST, PATH, &service(name, &custom_spec(name), ALWAYS)).await;
        };
        if managed(&found) == ALWAYS {
            if !is_wanted && !is_builtin(name) {
                let options = json!({"preconditions": {"uid": found.at("metadata").at("uid")}});
                return loopback::send(&self.api, Method::DELETE, &path, &options).await;
            }
            if is_wanted && set_spec(&mut found, &custom_spec(name)) {
                return loopback::send(&self.api, Method::PUT, &path, &found).await;
            }
        }
        if !found.at("spec").has("service") && set_local(&mut found, &object::time(Timestamp::now())) {
            return loopback::send(&self.api, Method::PUT, &format!("{path}/status"), &found).await;
        }
        Ok(())
    }
}

/// An APIService that there should be: its spec, and when it is looked after.
type Wanted = (Value, &'static str);

/// Every APIService that there should be.
fn wanted(custom: &BTreeSet<String>) -> BTreeMap<String, Wanted> {
    let builtin = builtins().map(|(group, version)| (name(group, version), (builtin_spec(group, version), ON_START)));
    let custom = custom.iter().map(|name| (name.clone(), (custom_spec(name), ALWAYS)));
    builtin.chain(custom).collect()
}

/// What has to be written for what is there to be what is wanted.
fn writes(served: &Served, mut wanted: BTreeMap<String, Wanted>, there: &[Entry]) -> Vec<Write> {
    let mut writes = Vec::new();
    for entry in there {
        let (key, expect) = (entry.key.clone(), Expect::At(entry.modified));
        let wanted = wanted.remove(&name_in(&key));
        let mut found = match stored::decode(&entry.value) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(key = %String::from_utf8_lossy(&key), %error, "an API service cannot be read");
                continue;
            }
        };
        let mut changed = false;
        if matches!(managed(&found), ON_START | ALWAYS) {
            let Some((spec, _)) = wanted else {
                // What has finalizers is left to those who put them there.
                if object::finalizers(&found).is_empty() {
                    writes.push(Write::Delete { key, expect, last: None });
                }
                continue;
            };
            changed = set_spec(&mut found, &spec);
        }
        if !found.at("spec").has("service") {
            changed |= set_local(&mut found, &object::time(Timestamp::now()));
        }
        if changed {
            writes.push(Write::Put { key, expect, value: stored::encode(&found) });
        }
    }
    for (name, (spec, when)) in wanted {
        let mut made = service(&name, &spec, when);
        served.complete(&mut made);
        let key = Bytes::from(format!("{PREFIX}{name}"));
        writes.push(Write::Put { key, expect: Expect::Absent, value: stored::encode(&made) });
    }
    writes
}

/// Whether the spec was another.
fn set_spec(object: &mut Value, spec: &Value) -> bool {
    let differs = !semantically_equal(object.at("spec"), spec);
    if differs {
        object.put("spec", spec.clone());
    }
    differs
}

fn service(name: &str, spec: &Value, when: &str) -> Value {
    json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": name, "labels": {MANAGED: when}},
        "spec": spec,
    })
}

fn managed(object: &Value) -> &str {
    object.below(&["metadata", "labels"]).text(MANAGED)
}

/// The built-in group versions that have APIServices. That of APIServices is none of them: upstream has it in the
/// server in front of the one it registers.
fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = crate::resource::builtins().iter().map(|resource| (&*resource.group, &*resource.version));
    all.filter(|(group, _)| *group != GROUP).collect::<BTreeSet<_>>().into_iter()
}

fn is_builtin(name: &str) -> bool {
    name.split_once('.').is_some_and(|(version, group)| builtins().any(|builtin| builtin == (group, version)))
}

/// Upstream's priorities, of the tables in `cmd/kube-apiserver/app/aggregator.go` and
/// `pkg/controlplane/apiserver/aggregator.go`.
fn builtin_spec(group: &str, version: &str) -> Value {
    let version_priority = match (group, version) {
        ("", _) => return json!({"version": version, "groupPriorityMinimum": 18000, "versionPriority": 1}),
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    spec(group, version, priority(group), version_priority)
}

fn custom_spec(name: &str) -> Value {
    let (version, group) = name.split_once('.').unwrap_or((name, ""));
    spec(group, version, CUSTOM_PRIORITY, 100)
}

fn spec(group: &str, version: &str, priority: u32, version_priority: u32) -> Value {
    json!({
        "group": group, "version": version, "groupPriorityMinimum": priority, "versionPriority": version_priority,
    })
}

fn name_in(key: &[u8]) -> String {
    String::from_utf8_lossy(key.strip_prefix(PREFIX.as_bytes()).unwrap_or(key)).into_owned()
}
