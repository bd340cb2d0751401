//! `metadata.managedFields`: who owns what, since when.
//!
//! An [`Entry`] wraps one item of the list as it is stored. Entries read from a stored object were
//! written here and are taken as they are; entries a client sends are checked and normalised.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::fields::{self, Trie};

/// Update entries beyond this many are merged, oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that holds the fields of merged entries.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// One item of `managedFields`.
#[derive(Debug)]
pub(super) struct Entry(Map<String, Value>);

/// The two ways to come to own a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl Entry {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str, set: Trie) -> Self {
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
        put("apiVersion", api_version.into());
        put("fieldsType", "FieldsV1".into());
        put("fieldsV1", Value::Object(set));
        put("manager", manager.into());
        put("operation", operation.text().into());
        if !subresource.is_empty() {
            put("subresource", subresource.into());
        }
        Self(entry)
    }

    /// Checks and normalises an entry a client sent.
    fn decode(value: &Value, index: usize) -> Result<Self, String> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {index}",
                    crate::field::quote(other)
                ));
            }
        }
        let set = fields::decode(value.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|problem| format!("error decoding set: {problem}"))?;
        let mut entry = Self::new(text("manager"), operation, text("apiVersion"), text("subresource"), set);
        if let Ok(time) = text("time").parse::<Timestamp>() {
            entry.set_time(time);
        }
        Ok(entry)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn manager(&self) -> &str {
        self.text("manager")
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(super) fn subresource(&self) -> &str {
        self.text("subresource")
    }

    pub(super) fn is_apply(&self) -> bool {
        self.text("operation") == "Apply"
    }

    pub(super) fn operation(&self) -> Operation {
        if self.is_apply() { Operation::Apply } else { Operation::Update }
    }

    /// The time as stored: to the second, in UTC, so that texts sort as times do. Empty if unknown.
    fn time(&self) -> &str {
        self.text("time")
    }

    pub(super) fn set_time(&mut self, now: Timestamp) {
        self.0.insert("time".to_owned(), time_text(now).into());
    }

    pub(super) fn copy_time(&mut self, other: &Self) {
        if let Some(time) = other.0.get("time") {
            self.0.insert("time".to_owned(), time.clone());
        }
    }

    pub(super) fn set(&self) -> Option<&Trie> {
        self.0.get("fieldsV1").and_then(Value::as_object)
    }

    pub(super) fn set_mut(&mut self) -> &mut Trie {
        let fields = self.0.entry("fieldsV1").or_insert_with(|| Value::Object(Map::new()));
        if !fields.is_object() {
            *fields = Value::Object(Map::new());
        }
        fields.as_object_mut().expect("invariant: fieldsV1 was just made an object")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set().is_none_or(Map::is_empty)
    }

    /// Whose entry this is; see [`belongs_to`](Self::belongs_to).
    fn writer(&self) -> [String; 4] {
        let version = if self.is_apply() { "" } else { self.api_version() };
        [self.manager(), self.operation().text(), self.subresource(), version].map(str::to_owned)
    }

    /// Whether this is the entry of that writer. Appliers keep theirs when they change version.
    pub(super) fn belongs_to(&self, manager: &str, operation: Operation, api_version: &str, subresource: &str) -> bool {
        self.manager() == manager
            && self.text("operation") == operation.text()
            && self.subresource() == subresource
            && (operation == Operation::Apply || self.api_version() == api_version)
    }
}

fn time_text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).map_or_else(|_| now.to_string(), |seconds| seconds.to_string())
}

/// The entries of an object.
#[derive(Debug, Default)]
pub(super) struct Managers(pub(super) Vec<Entry>);

impl Managers {
    /// The entries of a stored object.
    pub(super) fn of(object: &Value) -> Self {
        object.pointer("/metadata/managedFields").cloned().map(Self::stored).unwrap_or_default()
    }

    fn stored(list: Value) -> Self {
        let Value::Array(list) = list else { return Self::default() };
        let entries = list.into_iter().filter_map(|entry| match entry {
            Value::Object(entry) => Some(Entry(entry)),
            _ => None,
        });
        Self(entries.collect())
    }

    /// Takes the entries out of a stored object.
    pub(super) fn take(object: &mut Value) -> Self {
        take_list(object).map(Self::stored).unwrap_or_default()
    }

    /// The entries an update starts from: those the client sent if they make sense, else the live
    /// object's. They are taken out of `new`.
    pub(super) fn live_or_new(live: Option<&Value>, new: &mut Value, subresource: &str) -> Self {
        let sent = take_list(new);
        let of_live = || live.map(Self::of).unwrap_or_default();
        // Subresources cannot set the list.
        let Some(Value::Array(sent)) = sent.filter(|_| subresource.is_empty()) else { return of_live() };
        if is_reset(&sent) {
            return Self::default();
        }
        let live_list = live.and_then(|live| live.pointer("/metadata/managedFields")).and_then(Value::as_array);
        if live_list == Some(&sent) {
            return Self::stored(Value::Array(sent));
        }
        decode(&sent).unwrap_or_else(|_| of_live())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the entries into an object, in upstream's order.
    pub(super) fn store(mut self, object: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        self.0.sort_by(|left, right| sort_key(left).cmp(&sort_key(right)));
        let list: Vec<Value> = self.0.into_iter().map(|entry| Value::Object(entry.0)).collect();
        if let Value::Object(object) = object
            && let Value::Object(metadata) = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
        {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }

    /// Merges the oldest update entries of each version until few enough are left.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<usize> = (0..self.0.len()).filter(|i| !self.0[*i].is_apply()).collect();
        let mut excess = updaters.len().saturating_sub(MAX_UPDATE_MANAGERS);
        if excess == 0 {
            return;
        }
        updaters.sort_by(|l, r| {
            let key =
                |i: usize| (self.0[i].time(), self.0[i].manager(), self.0[i].api_version(), self.0[i].subresource());
            key(*l).cmp(&key(*r))
        });
        // The oldest entry of a version stays itself until a second one of its version has to go.
        let mut oldest: HashMap<String, usize> = HashMap::new();
        let mut buckets: HashMap<String, usize> = HashMap::new();
        for index in updaters.iter().copied() {
            let (entry, version) = (&self.0[index], self.0[index].api_version());
            if entry.belongs_to(ANCIENT_CHANGES, Operation::Update, version, "") {
                buckets.insert(version.to_owned(), index);
            }
        }
        let mut merged = vec![false; self.0.len()];
        for index in updaters {
            if excess == 0 {
                break;
            }
            let version = self.0[index].api_version().to_owned();
            let Some(&first) = oldest.get(&version) else {
                oldest.insert(version, index);
                continue;
            };
            let bucket = *buckets.entry(version).or_insert(first);
            if bucket == index {
                continue;
            }
            let set = std::mem::take(self.0[index].set_mut());
            let time = self.0[index].0.remove("time");
            let entry = &mut self.0[bucket];
            entry.0.insert("manager".to_owned(), ANCIENT_CHANGES.into());
            entry.0.remove("subresource");
            fields::union(entry.set_mut(), &set);
            match time {
                Some(time) => entry.0.insert("time".to_owned(), time),
                None => entry.0.remove("time"),
            };
            merged[index] = true;
            excess -= 1;
        }
        let mut index = 0;
        self.0.retain(|_| {
            index += 1;
            !merged[index - 1]
        });
    }
}

fn sort_key(entry: &Entry) -> (&str, &str, &str, &str, &str) {
    (entry.text("operation"), entry.time(), entry.manager(), entry.api_version(), entry.subresource())
}

fn take_list(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// An empty list, or one empty entry, clears all ownership.
fn is_reset(list: &[Value]) -> bool {
    match list {
        [] => true,
        [Value::Object(entry)] => entry.values().all(|value| value.is_null() || value.as_str() == Some("")),
        _ => false,
    }
}

/// Reads a list that a client sent. Entries of one writer are merged.
fn decode(list: &[Value]) -> Result<Managers, String> {
    let mut out: Vec<Entry> = Vec::with_capacity(list.len());
    let mut writers = HashMap::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let entry = Entry::decode(value, index)?;
        // The last entry of a writer counts.
        let place = *writers.entry(entry.writer()).or_insert(out.len());
        if place == out.len() {
            out.push(entry);
        } else {
            out[place] = entry;
        }
    }
    Ok(Managers(out))
}

/// What is wrong with a `managedFields` list that admission changed, if anything.
pub(super) fn check(list: &Value) -> Result<(), String> {
    match list {
        Value::Array(list) => decode(list).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(manager: &str, version: &str, second: i64) -> Entry {
        let mut set = Map::new();
        set.insert(fields::field(manager), fields::leaf());
        let mut entry = Entry::new(manager, Operation::Update, version, "", set);
        entry.set_time(at(second));
        entry
    }

    #[test]
    fn times_are_whole_seconds() {
        let mut one = entry("m", "v1", 0);
        one.set_time(Timestamp::new(1_700_000_000, 5_000_000).unwrap());
        assert_eq!(one.time(), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn the_oldest_updates_are_merged() {
        let mut managers = Managers((0..12).map(|i| entry(&format!("m{i:02}"), "v1", i)).collect());
        managers.cap();
        assert_eq!(managers.0.len(), 10);
        let mut object = json!({});
        managers.store(&mut object);
        let list = &object["metadata"]["managedFields"];
        assert_eq!(list[0]["manager"], "ancient-changes");
        assert_eq!(list[0]["time"], "1970-01-01T00:00:02Z");
        assert_eq!(list[0]["fieldsV1"], json!({"f:m00": {}, "f:m01": {}, "f:m02": {}}));
        assert_eq!(list[1]["manager"], "m03");

        // One more goes into the bucket that is there.
        let mut managers = Managers::of(&object);
        managers.0.push(entry("m12", "v1", 12));
        managers.cap();
        managers.store(&mut object);
        let list = &object["metadata"]["managedFields"];
        assert_eq!(list.as_array().unwrap().len(), 10);
        assert_eq!(list[0]["manager"], "ancient-changes");
        assert_eq!(list[0]["fieldsV1"], json!({"f:m00": {}, "f:m01": {}, "f:m02": {}, "f:m03": {}}));
    }

    #[test]
    fn versions_have_buckets_of_their_own() {
        let versions = ["v1", "v2"];
        let mut managers = Managers((0..12).map(|i| entry(&format!("m{i:02}"), versions[i as usize % 2], i)).collect());
        managers.cap();
        assert_eq!(managers.0.len(), 10);
        let buckets: Vec<&str> =
            managers.0.iter().filter(|e| e.manager() == ANCIENT_CHANGES).map(Entry::api_version).collect();
        assert_eq!(buckets, ["v1", "v2"]);
    }

    #[test]
    fn what_a_client_sends_is_checked() {
        let good = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                          "fieldsV1": {"f:a": {}}, "time": "2024-01-01T02:00:00+01:00"});
        let managers = decode(std::slice::from_ref(&good)).unwrap();
        assert_eq!(managers.0[0].time(), "2024-01-01T01:00:00Z");
        for (name, value, problem) in [
            ("operation", "x", "operation must be `Apply` or `Update`"),
            ("apiVersion", "", "apiVersion must not be empty"),
            ("fieldsType", "", "missing fieldsType in managed fields entry 0"),
            ("fieldsType", "V2", "invalid fieldsType \"V2\" in managed fields entry 0"),
        ] {
            let mut bad = good.clone();
            bad[name] = json!(value);
            assert_eq!(check(&json!([bad])).unwrap_err(), problem);
        }
        // What makes no sense falls back to the live object's list.
        let live = json!({"metadata": {"managedFields": [good]}});
        let mut new = json!({"metadata": {"managedFields": [{"manager": "x"}]}});
        assert_eq!(Managers::live_or_new(Some(&live), &mut new, "").0[0].manager(), "m");
        for reset in [json!([]), json!([{}])] {
            let mut new = json!({"metadata": {"managedFields": reset}});
            assert!(Managers::live_or_new(Some(&live), &mut new, "").is_empty());
            let mut new = json!({"metadata": {"managedFields": [{}]}});
            assert_eq!(Managers::live_or_new(Some(&live), &mut new, "status").0.len(), 1);
        }
    }
}
