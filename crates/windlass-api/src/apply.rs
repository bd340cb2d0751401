//! Server-side apply and field ownership, as pure functions on JSON.
//!
//! Every write goes through here. [`update`] notes which fields a create, an update or a patch changed;
//! [`apply`] merges an applied configuration into the live object, gives back what the applier no
//! longer wants, and refuses to take fields that others own. Both keep `metadata.managedFields`, which
//! records the owners.
//!
//! ```text
//! update:  compare(live, new) ──> changed paths ──> out of every other entry, into the writer's
//! apply:   validate(config) ──> merge(live, config) ──> prune(what the applier gave up)
//!          ──> compare(live, merged) ──> conflicts, or as above with the config's paths
//! ```
//!
//! This is `sigs.k8s.io/structured-merge-diff` with the managers that `apimachinery/pkg/util/managedfields`
//! wraps around it. Objects are in the shape they are stored in: with built-in kinds, struct fields that
//! Go always writes (`resources: {}`) are there. A merged object may contain nulls, which decoding
//! drops, as after any patch.
//!
//! The `scale` subresource is tracked as the Scale it is: [`ReplicasPaths`] makes its owners from those of its
//! object and puts them back.
//!
//! ```
//! use jiff::Timestamp;
//! use serde_json::json;
//! use windlass_api::apply::{Manager, OneVersion, Reset, update};
//! use windlass_api::schema::builtin;
//!
//! let schema = builtin::definition(builtin::by_kind("", "v1", "ConfigMap").unwrap());
//! let who = Manager {
//!     name: "editor",
//!     api_version: "v1",
//!     kind: "ConfigMap",
//!     subresource: "",
//!     reset: Reset::of_builtin("", "ConfigMap", ""),
//!     versions: &OneVersion,
//! };
//! let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
//! update(schema, None, &mut object, &who, Timestamp::UNIX_EPOCH);
//! let entry = &object["metadata"]["managedFields"][0];
//! assert_eq!(entry["manager"], "editor");
//! assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:k": {}}}));
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::Value;

use crate::schema::Schema;
use crate::status::Status;

mod compare;
mod conflict;
mod fields;
mod last_applied;
mod managers;
mod merge;
mod owned;
mod prune;
mod reset;
mod scale;
mod shape;
mod validate;

#[cfg(test)]
mod tests;

pub use reset::{FieldPath, Reset};
pub use scale::ReplicasPaths;

use compare::Change;
use conflict::Conflict;
use fields::Trie;
use managers::{Entry, Managers, Operation};
use shape::Shape;

/// Metadata that no manager owns.
static NEVER_OWNED: LazyLock<Trie> = LazyLock::new(|| {
    let metadata = [
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let leaves = |names: &[&str]| -> Trie { names.iter().map(|name| (fields::field(name), fields::leaf())).collect() };
    let mut set = leaves(&["apiVersion", "kind"]);
    set.extend(fields::node(true, leaves(&metadata)).map(|node| (fields::field("metadata"), node)));
    set
});

/// Who owns what an unmanaged object had before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

const OWNERS: &str = "managedFields";

/// The manager that writes, and through which endpoint.
#[derive(Clone, Copy)]
pub struct Manager<'a> {
    /// `fieldManager`, or what upstream derives from the user agent; empty reads as `unknown`.
    pub name: &'a str,
    /// The version the request is in, e.g. `apps/v1`.
    pub api_version: &'a str,
    /// The kind of the objects.
    pub kind: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// What the endpoint ignores.
    pub reset: Reset,
    /// How to read entries of other versions.
    pub versions: &'a dyn Versions,
}

/// The other versions an object can be read in. Entries of `managedFields` are in terms of the version
/// they were written through.
pub trait Versions {
    /// The object in `api_version`, with that version's schema.
    fn convert<'v, 'o>(&'v self, object: &'o Value, api_version: &str) -> Converted<'o, 'v>;
}

/// An object in another version and that version's schema, or why there is none.
pub type Converted<'o, 'v> = Result<(Cow<'o, Value>, &'v Schema), Unconvertible>;

/// Why an object cannot be read in another version.
#[derive(Debug)]
pub enum Unconvertible {
    /// The version does not exist (any more): its entries are dropped.
    NoSuchVersion,
    /// Converting failed, and with it whatever needs the object.
    Failed(Box<Status>),
}

impl Unconvertible {
    /// The failure, with what failed because of it.
    fn during(self, what: &str) -> Self {
        match self {
            Self::Failed(status) => Self::Failed(Box::new(Status::unclassified(format!("{what}: {}", status.message)))),
            Self::NoSuchVersion => Self::NoSuchVersion,
        }
    }
}

/// A kind with just one version.
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert<'v, 'o>(&'v self, _object: &'o Value, _api_version: &str) -> Converted<'o, 'v> {
        Err(Unconvertible::NoSuchVersion)
    }
}

/// Records ownership for a create (`live` is `None`), an update or a patch: everything that differs
/// between `live` and `new` now belongs to `who`. Fills `new.metadata.managedFields`.
///
/// A live object without owners stays without. `managedFields: []` or `[{}]` in `new` clears the owners, and
/// so does a failure to read the objects in a version that owners speak of.
pub fn update(schema: &Schema, live: Option<&Value>, new: &mut Value, who: &Manager<'_>, now: Timestamp) {
    let mut managers = Managers::live_or_new(live, new, who.subresource);
    if managers.is_empty() && live.is_some() {
        return;
    }
    let zero;
    let old = if let Some(live) = live {
        live
    } else {
        zero = shape::zero(schema);
        &zero
    };
    if let Err(status) = track(schema, old, new, &mut managers, who, now) {
        tracing::debug!(reason = %status.message, "owners of an object are forgotten");
        managers.0.clear();
    }
    managers.store(new);
}

/// Moves what changed from `old` to `new` to the entry of `who`.
fn track(
    schema: &Schema,
    old: &Value,
    new: &Value,
    managers: &mut Managers,
    who: &Manager<'_>,
    now: Timestamp,
) -> Result<(), Box<Status>> {
    reconcile(schema, old, who, managers)?;
    let mut diffs = Diffs::new(schema, old, new, who);
    diffs.take_from(managers)?;
    let mut taken = compare::taken(&diffs.changes);
    fields::difference(&mut taken, &NEVER_OWNED);
    if !taken.is_empty() {
        let name = who.entry_name();
        let own = |e: &&mut Entry| e.belongs_to(name, Operation::Update, who.api_version, who.subresource);
        let entry = if let Some(entry) = managers.0.iter_mut().find(own) {
            fields::union(entry.set_mut(), &taken);
            Some(entry)
        } else {
            managers.0.push(Entry::new(name, Operation::Update, who.api_version, who.subresource, taken));
            managers.0.last_mut()
        };
        if let Some(entry) = entry {
            entry.set_time(now);
        }
    }
    managers.cap();
    Ok(())
}

impl Manager<'_> {
    fn entry_name(&self) -> &str {
        if self.name.is_empty() { "unknown" } else { self.name }
    }
}

/// The difference of two objects, in every version that entries are in.
struct Diffs<'a> {
    changes: Vec<Change<'a>>,
    others: HashMap<String, Option<Vec<Change<'static>>>>,
    old: &'a Value,
    new: &'a Value,
    who: &'a Manager<'a>,
}

impl<'a> Diffs<'a> {
    fn new(schema: &'a Schema, old: &'a Value, new: &'a Value, who: &'a Manager<'a>) -> Self {
        let mut changes = compare::compare(Shape::root(schema), old, new);
        compare::reset(&mut changes, who.reset);
        Self { changes, others: HashMap::new(), old, new, who }
    }

    /// The changes in terms of a version; `None` if it does not exist.
    fn in_version(&mut self, api_version: &str) -> Result<Option<&[Change<'_>]>, Box<Status>> {
        if api_version == self.who.api_version {
            return Ok(Some(&self.changes));
        }
        if !self.others.contains_key(api_version) {
            let found = match self.convert(api_version) {
                Ok(found) => Some(found),
                Err(Unconvertible::NoSuchVersion) => None,
                Err(Unconvertible::Failed(status)) => return Err(status),
            };
            self.others.insert(api_version.to_owned(), found);
        }
        Ok(self.others.get(api_version).and_then(Option::as_deref))
    }

    fn convert(&self, api_version: &str) -> Result<Vec<Change<'static>>, Unconvertible> {
        let (old, schema) = self.who.versions.convert(self.old, api_version)?;
        let new = self.who.versions.convert(self.new, api_version);
        let (new, _) = new.map_err(|why| why.during("failed to convert new object"))?;
        let mut changes = compare::compare(Shape::root(schema), &old, &new);
        // What a custom resource's endpoint ignores is said in terms of its own version alone.
        if schema.name.is_some() {
            compare::reset(&mut changes, self.who.reset);
        }
        Ok(changes.into_iter().map(Change::into_owned).collect())
    }

    /// Takes what changed away from everybody. Entries of versions that are gone go.
    fn take_from(&mut self, managers: &mut Managers) -> Result<(), Box<Status>> {
        for entry in std::mem::take(&mut managers.0) {
            let mut entry = entry;
            let Some(changes) = self.in_version(entry.api_version())? else { continue };
            compare::subtract(entry.set_mut(), changes);
            if !entry.is_empty() {
                managers.0.push(entry);
            }
        }
        Ok(())
    }
}

/// Merges the configuration `applied` into `live` (`None` if there is no such object yet) and returns
/// the merged object with its owners.
///
/// Fails with 409 and one cause per path if others own what the configuration changes, unless `force`.
/// If nothing changes, not even the order of a list, the result equals `live` but for the owners.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    who: &Manager<'_>,
    force: bool,
    now: Timestamp,
) -> Result<Value, Status> {
    check_kind(applied, who)?;
    if applied.pointer("/metadata/managedFields").is_some_and(Value::is_array) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    validate::validate(Shape::root(schema), applied).map_err(|problem| {
        Status::unclassified(format!("failed to create typed patch object ({}): {problem}", identity(applied)))
    })?;
    let mut outcome = attempt(schema, live, applied, who, force, now);
    if who.name == "kubectl"
        && let (Some(live), Err(Refusal::Conflicts(conflicts))) = (live, &mut outcome)
        && let Some(allowed) = last_applied::still_live(schema, live, who.api_version)
    {
        conflicts.retain(|conflict| !fields::contains(&allowed, &conflict.path));
        if conflicts.is_empty() {
            outcome = attempt(schema, Some(live), applied, who, true, now);
        }
    }
    let mut object = outcome.map_err(Refusal::into_status)?;
    if who.name == "kubectl" {
        last_applied::refresh(&mut object, applied);
    }
    Ok(object)
}

/// Why a configuration is not applied.
enum Refusal {
    /// Others own what it changes.
    Conflicts(Vec<Conflict>),
    /// The object cannot be read in a version that owners speak of.
    Unconvertible(Box<Status>),
}

impl Refusal {
    fn into_status(self) -> Status {
        match self {
            Self::Conflicts(conflicts) => conflict::status(&conflicts),
            Self::Unconvertible(status) => *status,
        }
    }
}

impl From<Box<Status>> for Refusal {
    fn from(status: Box<Status>) -> Self {
        Self::Unconvertible(status)
    }
}

fn attempt(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    who: &Manager<'_>,
    force: bool,
    now: Timestamp,
) -> Result<Value, Refusal> {
    let mut wanted = owned::set_of(Shape::root(schema), applied);
    who.reset.apply(&mut wanted);
    let Some(live) = live else {
        let mut object = applied.clone();
        let mut managers = Managers::take(&mut object);
        managers.0.clear();
        managers.0.extend(who.applied_entry(wanted, Some(now), None));
        managers.store(&mut object);
        return Ok(object);
    };

    let mut merged = live.clone();
    let mut managers = Managers::take(&mut merged);
    if managers.is_empty() {
        let before = Manager { name: BEFORE_FIRST_APPLY, ..*who };
        track(schema, &shape::zero(schema), &merged, &mut managers, &before, now)?;
    }
    reconcile(schema, live, who, &mut managers)?;
    merge::merge(Shape::root(schema), &mut merged, applied);
    // The configuration may say `managedFields: null`.
    Managers::take(&mut merged);

    let own = |entry: &Entry| entry.belongs_to(who.entry_name(), Operation::Apply, who.api_version, who.subresource);
    let last = managers.0.iter().position(own).map(|index| managers.0.remove(index));
    if let Some(last) = &last {
        let mut managed: Vec<(&str, &Trie)> =
            managers.0.iter().filter_map(|entry| Some((entry.api_version(), entry.set()?))).collect();
        managed.push((who.api_version, &wanted));
        prune::prune(schema, &mut merged, last, &managed, who)?;
    }
    give_up(schema, live, &merged, &mut managers, who, force)?;
    let changed = !same_but_for_owners(live, &merged);
    managers.0.extend(who.applied_entry(wanted, changed.then_some(now), last.as_ref()));
    managers.store(&mut merged);
    Ok(merged)
}

/// Takes what the applier changes away from the others, who object unless `force`.
fn give_up(
    schema: &Schema,
    live: &Value,
    merged: &Value,
    managers: &mut Managers,
    who: &Manager<'_>,
    force: bool,
) -> Result<(), Refusal> {
    let mut diffs = Diffs::new(schema, live, merged, who);
    if !force {
        let mut conflicts = Vec::new();
        for entry in &managers.0 {
            if let (Some(set), Some(changes)) = (entry.set(), diffs.in_version(entry.api_version())?) {
                conflict::collect(entry, set, changes, &mut conflicts);
            }
        }
        if !conflicts.is_empty() {
            return Err(Refusal::Conflicts(conflicts));
        }
    }
    Ok(diffs.take_from(managers)?)
}

impl Manager<'_> {
    /// The applier's entry; `None` if the configuration says nothing that can be owned.
    fn applied_entry(&self, mut wanted: Trie, now: Option<Timestamp>, last: Option<&Entry>) -> Option<Entry> {
        fields::difference(&mut wanted, &NEVER_OWNED);
        if wanted.is_empty() {
            return None;
        }
        let mut entry = Entry::new(self.entry_name(), Operation::Apply, self.api_version, self.subresource, wanted);
        // The time is that of the last change of the object, not of the set.
        match (now, last) {
            (Some(now), _) => entry.set_time(now),
            (None, Some(last)) => entry.copy_time(last),
            (None, None) => {}
        }
        Some(entry)
    }
}

/// Custom resources change their schemas, and with them what can be owned. Entries are in terms of versions
/// that `live` must be readable in.
fn reconcile(schema: &Schema, live: &Value, who: &Manager<'_>, managers: &mut Managers) -> Result<(), Box<Status>> {
    if schema.name.is_some() {
        return Ok(());
    }
    for entry in &mut managers.0 {
        if entry.api_version() == who.api_version {
            owned::reconcile(Shape::root(schema), entry.set_mut());
            continue;
        }
        match who.versions.convert(live, entry.api_version()) {
            Ok((_, schema)) => owned::reconcile(Shape::root(schema), entry.set_mut()),
            // Goes when the changes are taken from it.
            Err(Unconvertible::NoSuchVersion) => {}
            Err(Unconvertible::Failed(status)) => return Err(status),
        }
    }
    Ok(())
}

fn check_kind(applied: &Value, who: &Manager<'_>) -> Result<(), Status> {
    let text = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    if (text("apiVersion"), text("kind")) == (who.api_version, who.kind) {
        return Ok(());
    }
    Err(Status::bad_request(format!("invalid object type: {}", group_version_kind(applied))))
}

/// `group/version, Kind=kind` as Go prints it; the core group is empty.
fn group_version_kind(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let slash = if text("apiVersion").contains('/') { "" } else { "/" };
    format!("{slash}{}, Kind={}", text("apiVersion"), text("kind"))
}

/// An object as errors name it: `namespace/name; group/version, Kind=kind`.
fn identity(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}; {}", text("/metadata/namespace"), text("/metadata/name"), group_version_kind(object))
}

/// Whether an object is one of a schema, as far as owners can be told of its fields; the failure is upstream's text.
pub fn check_typed(schema: &Schema, object: &Value) -> Result<(), String> {
    validate::validate(Shape::root(schema), object)
}

/// Merges a partial object into `object` without noting who did it: what mutating admission policies
/// apply. Atomic lists and maps cannot be set this way, lest what is not mentioned be lost.
pub fn apply_partial(schema: &Schema, object: &mut Value, config: &Value) -> Result<(), String> {
    let shape = Shape::root(schema);
    validate::validate(shape, config)
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Vec::new();
    merge::atomics(shape, config, "", &mut atomics);
    if !atomics.is_empty() {
        let atomics = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomics}"));
    }
    merge::merge(shape, object, config);
    Ok(())
}

/// Undoes changes of `managedFields` times if they are all that differs between `live` and `new`, so
/// that a write without effect stays without effect. For the registry, after everything else that
/// changes the object.
pub fn keep_times_if_unchanged(live: &Value, new: &mut Value) {
    fn list(object: &Value) -> Option<&[Value]> {
        object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice)
    }
    let (Some(old), Some(changed)) = (list(live), list(new)) else { return };
    let same_entry = |(old, new): (&Value, &Value)| match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut old = old.iter().filter(|(name, _)| *name != "time");
            let mut new = new.iter().filter(|(name, _)| *name != "time");
            old.by_ref().zip(new.by_ref()).all(|(old, new)| old == new) && old.next().is_none() && new.next().is_none()
        }
        _ => false,
    };
    let same = old.len() == changed.len()
        && old != changed
        && old.iter().zip(changed).all(same_entry)
        && same_but_for_owners(live, new);
    if same && let Some(list) = new.pointer_mut("/metadata/managedFields") {
        *list = Value::Array(old.to_vec());
    }
}

/// Whether two objects are the same apart from `managedFields`.
fn same_but_for_owners(left: &Value, right: &Value) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return compare::equal(left, right) };
    let without = |object: &Value, name: &str| object.as_object().is_some_and(|map| !map.contains_key(name));
    left.len() == right.len()
        && left.iter().zip(right).all(|((left_name, left), (right_name, right))| {
            if left_name != right_name {
                return false;
            }
            if left_name != "metadata" || (without(left, OWNERS) && without(right, OWNERS)) {
                return compare::equal(left, right);
            }
            let (Value::Object(left), Value::Object(right)) = (left, right) else { return compare::equal(left, right) };
            let mut left = left.iter().filter(|(name, _)| *name != OWNERS);
            let mut right = right.iter().filter(|(name, _)| *name != OWNERS);
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return true,
                    (Some((ln, lv)), Some((rn, rv))) if ln == rn && compare::equal(lv, rv) => {}
                    _ => return false,
                }
            }
        })
}

/// What is wrong with the `managedFields` mutating admission left in `object`, if anything: the
/// registry then restores them and warns with
/// `.metadata.managedFields was in an invalid state after admission; ...`.
pub fn check_managed_fields(object: &Value) -> Result<(), String> {
    managers::check(object.pointer("/metadata/managedFields").unwrap_or(&Value::Null))
}
