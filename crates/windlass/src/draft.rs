//! Drafts: change an object freely, then send only what changed.
//!
//! A [`Draft`] remembers the object as it was read. [`Draft::commit`] compares and sends at most
//! one merge patch for specification and metadata and one for the status, and none when nothing
//! changed. Fields that this program does not know are left alone. That holds inside lists too, where
//! elements can be told apart by a `name`, a `type` or another of the fields that Kubernetes' own
//! kinds have for it: an element that stays keeps what is not known of it, and for that the object is read from the
//! server first. In a list without such a field, an element that this program changes is written as it knows it.
//! So is a condition that it changes.
//!
//! A merge patch replaces lists as a whole. So that this undoes nothing that others wrote, a patch
//! with a list carries the resource version, and the server refuses it when the object has changed.
//! It is sent again if the lists in question are as they were; conditions are merged by type. Where
//! others changed the same list, or the same condition, committing fails with a conflict, because the draft
//! is based on an outdated state. It also fails when the object was deleted and created again: a draft changes only
//! the object that it was made of.
//!
//! Where a [transform](crate::cache::Caches::transform) hides parts of what is cached, a draft of a cached object
//! does not know the whole list that it changes. So the object is read from the server before a list of such a kind
//! is sent, and if the list is another there, committing fails with [`ClientError::Hidden`]: make the draft of what
//! [`CachedClient::live`](crate::CachedClient::live) reads. Conditions are merged by type here, too.

mod condition;
pub(crate) mod elements;

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use condition::Refused;
use kube::Resource;
use kube::api::{ApiResource, Patch};
use serde_json::{Map, Value, json};

use crate::client::{ClientError, Objects, Target};
use crate::decode::from_ref;
use crate::key::ObjectKey;
use crate::object::{AsObject, Object, describe, form};
use crate::retry::ConflictRetry;

/// An object being changed. See the [module documentation](self).
///
/// ```no_run
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use windlass::{CachedClient, Draft};
/// # async fn example(client: &CachedClient, settings: Arc<ConfigMap>) -> windlass::Result<()> {
/// let mut draft = Draft::new(settings);
/// draft.data.get_or_insert_default().insert("mode".into(), "fast".into());
/// draft.commit(client).await?; // one patch: {"data":{"mode":"fast"}}, for this object's uid
/// draft.commit(client).await?; // nothing: nothing changed
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a draft changes nothing before it is committed"]
pub struct Draft<K> {
    base: Arc<K>,
    object: K,
    /// A condition that could not be set: committing fails.
    refused: Option<Refused>,
}

impl<K> Deref for Draft<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K> DerefMut for Draft<K> {
    fn deref_mut(&mut self) -> &mut K {
        &mut self.object
    }
}

impl<K: Resource + 'static> form::Sealed<form::Drafted> for Draft<K> {}

impl<K: Resource + 'static> AsObject<form::Drafted> for Draft<K> {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

/// What a commit sent.
///
/// ```
/// # use windlass::{CachedClient, Draft};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # async fn example(client: &CachedClient, mut draft: Draft<ConfigMap>) -> windlass::Result<()> {
/// if draft.commit(client).await?.object {
///     tracing::info!("there was something to change");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Committed {
    /// Specification or metadata were patched.
    pub object: bool,
    /// The status was patched.
    pub status: bool,
}

impl<K: Object> Draft<K> {
    /// A draft that starts from an object as it was read.
    pub fn new(base: Arc<K>) -> Self {
        Self { object: K::clone(&base), base, refused: None }
    }

    /// The object as it was read or last committed.
    pub fn base(&self) -> &Arc<K> {
        &self.base
    }

    /// The changed object.
    pub fn into_inner(self) -> K {
        self.object
    }

    /// Sends what changed, and starts over from what the server answers. Where the object was patched and
    /// the status was not, committing again sends the status alone.
    ///
    /// The target is a [`Context`](crate::Context), a [`CachedClient`](crate::CachedClient) or, for a kind known only at run time,
    /// the [`Objects`] of it:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = windlass_server::Server::builder().start().await?;
    /// # let kube = kube::Client::new(server.service(), "default");
    /// # let client = windlass::CachedClient::standalone(kube, "example");
    /// use kube::api::{ApiResource, GroupVersionKind};
    /// use windlass::{Draft, ObjectKey};
    ///
    /// let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    /// let namespaces = client.dynamic(&kind);
    /// let mut draft = Draft::new(namespaces.get(&ObjectKey::cluster("default")).await?.ok_or("gone")?);
    /// draft.metadata.labels.get_or_insert_default().insert("seen".into(), "yes".into());
    /// assert!(draft.commit(&namespaces).await?.object);
    /// # client.caches().stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn commit(&mut self, target: &impl Target<K>) -> Result<Committed, ClientError> {
        let objects = &target.target();
        let dt = objects.dynamic_type();
        let key = ObjectKey::of(&*self.base);
        if let Some(Refused { condition, reason }) = self.refused.clone() {
            let kind = describe(&ApiResource::erase::<K>(dt));
            return Err(ClientError::Condition { kind, key: key.to_string(), condition, reason });
        }
        let (before, mut after) = (encode(&*self.base, dt)?, encode(&self.object, dt)?);
        let mut committed = Committed::default();
        let status_diff = diff_of("status", &before, &after);
        let object_diff = object_diff(&before, &after);
        let mut latest: Option<K> = None;
        if let Some(patch) = object_diff {
            let mut patched = self.commit_object(objects, &key, &before, patch).await?;
            patched.meta_mut().managed_fields = None;
            let mut answer = encode(&patched, dt)?;
            // A status that others changed meanwhile must still be noticed as a conflict.
            if answer["status"] == before["status"] {
                after["metadata"]["resourceVersion"] = json!(patched.meta().resource_version);
            }
            if status_diff.is_some() {
                answer["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
                self.base = Arc::new(decode("patch", &key, &with_status(&answer, &before), dt)?);
                self.object = decode("patch", &key, &with_status(&answer, &after), dt)?;
            }
            latest = Some(patched);
            committed.object = true;
        }
        if let Some(diff) = status_diff {
            match self.commit_status(objects, &key, &before, &after, diff).await {
                Ok(patched) => {
                    latest = Some(patched);
                    committed.status = true;
                }
                // The last finalizer is gone and the object with it.
                Err(error) if error.is_not_found() && self.is_ending() => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(mut latest) = latest {
            latest.meta_mut().managed_fields = None;
            self.object = latest.clone();
            self.base = Arc::new(latest);
        }
        Ok(committed)
    }

    async fn commit_object(
        &self,
        objects: &Objects<K>,
        key: &ObjectKey,
        before: &Value,
        patch: Value,
    ) -> Result<K, ClientError> {
        let dt = objects.dynamic_type();
        let mut guarded = replaces_list(before, &patch);
        let mut sent = patch.clone();
        let transformed = may_be_hidden(objects, before, &patch);
        guarded |= transformed;
        if (transformed || elements::loses(before, &patch))
            && let Some(live) = Live::look(objects, key).await?
        {
            match live.object_patch(before, &patch) {
                Some(patch) => sent = patch,
                None if transformed && live.version() == before["metadata"]["resourceVersion"] => {
                    return Err(hidden::<K>(dt, key, other_list(before, &live.known, &patch)));
                }
                // The server says why.
                None => {}
            }
        }
        let mut retry = ConflictRetry::new();
        loop {
            match objects.patch(key, &Patch::Merge(&sent)).await {
                // A uid cannot change. To those who ask, another object is a conflict, as with lists.
                Err(error) if !guarded && error.is_invalid() => {
                    let live = objects.live().get(key).await?;
                    if live.is_none_or(|live| live.meta().uid == self.base.meta().uid) {
                        return Err(error);
                    }
                    sent["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
                    guarded = true;
                }
                Err(error) if guarded && error.is_conflict() && retry.pause().await => {
                    let live = Live::look(objects, key).await?;
                    sent = live.and_then(|live| live.object_patch(before, &patch)).ok_or(error)?;
                }
                done => return done,
            }
        }
    }

    async fn commit_status(
        &self,
        objects: &Objects<K>,
        key: &ObjectKey,
        before: &Value,
        after: &Value,
        diff: Value,
    ) -> Result<K, ClientError> {
        let dt = objects.dynamic_type();
        let mut sent = diff.clone();
        let mut version = after["metadata"]["resourceVersion"].clone();
        let transformed = may_be_hidden(objects, &before["status"], &diff);
        if (transformed || elements::loses(&before["status"], &diff))
            && let Some(live) = Live::look(objects, key).await?
        {
            match live.status_patch(before, after, &diff) {
                Some(patch) => (sent, version) = (patch, live.version()),
                None if transformed && live.version() == version => {
                    let status = json!({ "status": diff });
                    return Err(hidden::<K>(dt, key, other_list(before, &live.known, &status)));
                }
                None => {}
            }
        }
        let mut retry = ConflictRetry::new();
        loop {
            // A uid would not do here: with the status alone, many kinds leave out what else is sent.
            let patch = json!({ "status": sent, "metadata": { "resourceVersion": version } });
            match objects.patch_status(key, &Patch::Merge(patch)).await {
                Err(error) if error.is_conflict() && retry.pause().await => {
                    let Some(live) = Live::look(objects, key).await? else { return Err(error) };
                    sent = live.status_patch(before, after, &diff).ok_or(error)?;
                    version = live.version();
                }
                done => return done,
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.base.meta().deletion_timestamp.is_some()
            && self.object.meta().finalizers.as_ref().is_none_or(Vec::is_empty)
    }
}

/// An object as the server has it.
struct Live {
    /// All of it.
    raw: Value,
    /// What this program knows of it.
    known: Value,
}

impl Live {
    async fn look<K: Object>(objects: &Objects<K>, key: &ObjectKey) -> Result<Option<Self>, ClientError> {
        let dt = objects.dynamic_type();
        if K::metadata_api() {
            let live = objects.live().get(key).await?;
            let known = live.as_ref().map(|live| encode(live, dt)).transpose()?;
            return Ok(known.map(|known| Self { raw: known.clone(), known }));
        }
        let whole = objects.client().dynamic(&ApiResource::erase::<K>(dt));
        let Some(live) = whole.live().get(key).await? else { return Ok(None) };
        let raw = serde_json::to_value(&live).map_err(|source| unencodable::<K>(dt, source))?;
        let known = encode(&decode::<K>("get", key, &raw, dt)?, dt)?;
        Ok(Some(Self { raw, known }))
    }

    fn version(&self) -> Value {
        self.raw["metadata"]["resourceVersion"].clone()
    }

    fn is_same(&self, before: &Value) -> bool {
        self.known["metadata"]["uid"] == before["metadata"]["uid"]
    }

    /// A patch for this state of the object; `None` if it is another, or others changed the same lists.
    fn object_patch(&self, before: &Value, patch: &Value) -> Option<Value> {
        if !self.is_same(before) || !same_lists(before, &self.known, patch) {
            return None;
        }
        let mut patch = patch.clone();
        elements::complete(&mut patch, &self.known, &self.raw);
        patch["metadata"]["resourceVersion"] = self.version();
        Some(patch)
    }

    /// The same for a patch of the status.
    fn status_patch(&self, before: &Value, after: &Value, diff: &Value) -> Option<Value> {
        let rebased = rebased(&before["status"], &after["status"], &self.known["status"], diff);
        let mut patch = rebased.filter(|_| self.is_same(before))?;
        elements::complete(&mut patch, &self.known["status"], &self.raw["status"]);
        Some(patch)
    }
}

fn encode<K: Object>(object: &K, dt: &K::DynamicType) -> Result<Value, ClientError> {
    serde_json::to_value(object).map_err(|source| unencodable::<K>(dt, source))
}

/// An object that came from the server, or from [`encode`] in parts. What does not fit is told of as it is
/// where objects are read.
fn decode<K: Object>(
    verb: &'static str,
    key: &ObjectKey,
    value: &Value,
    dt: &K::DynamicType,
) -> Result<K, ClientError> {
    from_ref(value).map_err(|error| {
        let kind = describe(&ApiResource::erase::<K>(dt));
        let source = Box::new(kube::Error::SerdeError(error.into()));
        ClientError::Request { verb, kind, key: key.to_string(), source }
    })
}

fn unencodable<K: Object>(dt: &K::DynamicType, source: serde_json::Error) -> ClientError {
    let kind = describe(&ApiResource::erase::<K>(dt));
    ClientError::Encode { kind, source }
}

/// An object with the status of another.
fn with_status(object: &Value, other: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.extend(other.get("status").map(|status| ("status".to_owned(), status.clone())));
    }
    object
}

/// The merge patch for everything but the status, guarded where it must be.
fn object_diff(before: &Value, after: &Value) -> Option<Value> {
    let without_status = |value: &Value| {
        let mut fields = value.as_object().cloned().unwrap_or_default();
        fields.remove("status");
        Value::Object(fields)
    };
    let mut patch = merge_diff(&without_status(before), &without_status(after))?;
    // A caller that changes the uid gets the server's answer to that.
    if let Some(uid) = before["metadata"].get("uid").filter(|_| patch["metadata"].get("uid").is_none()) {
        patch["metadata"]["uid"] = uid.clone();
    }
    if replaces_list(before, &patch) {
        let version = before["metadata"]["resourceVersion"].clone();
        patch["metadata"]["resourceVersion"] = version;
    }
    Some(patch)
}

fn diff_of(field: &str, before: &Value, after: &Value) -> Option<Value> {
    merge_diff(&before[field], &after[field])
}

/// The JSON merge patch (RFC 7386) that turns one document into another; `None` when they are
/// equal.
///
/// ```
/// use serde_json::json;
/// use windlass::draft::merge_diff;
///
/// let before = json!({"a": 1, "b": {"c": [1], "d": true}});
/// let after = json!({"a": 1, "b": {"c": [2]}});
/// assert_eq!(merge_diff(&before, &after), Some(json!({"b": {"c": [2], "d": null}})));
/// assert_eq!(merge_diff(&after, &after), None);
/// ```
pub fn merge_diff(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, value) in new {
        let diff = match old.get(field) {
            Some(known) => merge_diff(known, value),
            // Null means absent in a merge patch.
            None => (!value.is_null()).then(|| value.clone()),
        };
        if let Some(diff) = diff {
            patch.insert(field.clone(), diff);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn contains_list(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::Object(fields) => fields.values().any(contains_list),
        _ => false,
    }
}

/// Whether a merge patch replaces or removes lists, or adds some.
fn replaces_list(before: &Value, patch: &Value) -> bool {
    match patch {
        Value::Array(_) => true,
        Value::Object(fields) => fields.iter().any(|(field, patch)| replaces_list(&before[field], patch)),
        _ => contains_list(before),
    }
}

/// Whether the lists that a merge patch replaces are still what they were.
fn same_lists(before: &Value, live: &Value, patch: &Value) -> bool {
    other_list(before, live, patch).is_none()
}

/// Where a merge patch replaces a list that is not what it was: the fields that lead there, last first.
fn other_list<'p>(before: &Value, live: &Value, patch: &'p Value) -> Option<Vec<&'p str>> {
    let same = match patch {
        Value::Object(fields) => {
            return fields.iter().find_map(|(field, patch)| {
                let mut path = other_list(&before[field], &live[field], patch)?;
                path.push(field);
                Some(path)
            });
        }
        Value::Array(_) => before == live,
        _ => !(contains_list(before) || contains_list(live)) || before == live,
    };
    (!same).then(Vec::new)
}

/// Whether a merge patch may replace lists that a cached object does not show: it has some, or removes what may.
fn may_be_hidden<K: Object>(objects: &Objects<K>, before: &Value, patch: &Value) -> bool {
    fn replaces(before: &Value, patch: &Value) -> bool {
        match patch {
            Value::Array(_) => true,
            Value::Object(fields) => fields.iter().any(|(field, patch)| replaces(&before[field], patch)),
            _ => before.is_object() || before.is_array(),
        }
    }
    objects.client().caches().has_transform::<K>(objects.dynamic_type()) && replaces(before, patch)
}

/// The error for a list that the cache does not show as it is.
fn hidden<K: Object>(dt: &K::DynamicType, key: &ObjectKey, field: Option<Vec<&str>>) -> ClientError {
    let kind = describe(&ApiResource::erase::<K>(dt));
    let field = field.into_iter().flatten().rev().collect::<Vec<_>>().join(".");
    ClientError::Hidden { kind, key: key.to_string(), field }
}

/// The patch of a status, for what others have made of it since; `None` if they changed the same lists.
fn rebased(before: &Value, ours: &Value, theirs: &Value, diff: &Value) -> Option<Value> {
    const CONDITIONS: &str = "conditions";
    let Some(patch) = diff.as_object() else {
        return same_lists(before, theirs, diff).then(|| diff.clone());
    };
    let mut patch = patch.clone();
    let lists = [&before[CONDITIONS], &ours[CONDITIONS], &theirs[CONDITIONS]];
    let conditions = patch.remove(CONDITIONS).map(|patch| {
        let [before, ours, theirs] = lists;
        if !lists.iter().all(|list| is_conditions(list)) {
            return same_lists(before, theirs, &patch).then_some(patch);
        }
        let merged = merge_conditions(before, ours, theirs)?;
        // Where we took the list away and nothing has been put in it, it goes.
        Some(if patch.is_null() && merged.is_empty() { patch } else { Value::Array(merged) })
    });
    let mut patch = Value::Object(patch);
    if !same_lists(before, theirs, &patch) {
        return None;
    }
    if let Some(conditions) = conditions {
        patch[CONDITIONS] = conditions?;
    }
    Some(patch)
}

/// Whether this is a list of conditions, each with a type of its own; or no list at all.
fn is_conditions(value: &Value) -> bool {
    let Some(list) = value.as_array() else {
        return value.is_null();
    };
    let mut types = HashSet::new();
    list.iter().all(|condition| condition["type"].as_str().is_some_and(|type_| types.insert(type_)))
}

/// Three ways: conditions that we changed are ours, all others are as they are now; `None` if others changed
/// one that we changed.
fn merge_conditions(before: &Value, ours: &Value, theirs: &Value) -> Option<Vec<Value>> {
    fn list(value: &Value) -> &[Value] {
        value.as_array().map_or(&[], Vec::as_slice)
    }
    let (before, ours, theirs) = (list(before), list(ours), list(theirs));
    let find = |list: &'_ [Value], type_: &Value| list.iter().find(|known| known["type"] == *type_).cloned();
    let mut merged = theirs.to_vec();
    for type_ in before.iter().chain(ours).map(|condition| &condition["type"]) {
        let [was, wanted, is] = [before, ours, theirs].map(|list| find(list, type_));
        if wanted == was || wanted == is {
            continue;
        }
        if is != was {
            return None;
        }
        let place = merged.iter().position(|known| known["type"] == *type_);
        match (place, wanted) {
            (Some(place), Some(wanted)) => merged[place] = wanted,
            // One that was taken away is met once, and one that was added is met once.
            (Some(place), None) => drop(merged.remove(place)),
            (None, wanted) => merged.extend(wanted),
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CachedClient;

    /// A kind of which some objects cannot be written as JSON.
    #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
    #[kube(group = "example.com", version = "v1", kind = "Riddle", namespaced, schema = "disabled")]
    struct RiddleSpec {
        answers: std::collections::BTreeMap<Vec<u8>, u8>,
    }

    #[tokio::test]
    async fn what_cannot_be_encoded_is_not_sent() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            Err::<http::Response<kube::client::Body>, _>(format!("{} {}", request.method(), request.uri()))
        });
        let client = CachedClient::standalone(kube::Client::new(service, "default"), "test");
        let mut riddle = Riddle::new("open", RiddleSpec { answers: [].into() });
        riddle.metadata.namespace = Some("default".into());
        let mut draft = Draft::new(Arc::new(riddle));
        draft.spec.answers.insert(vec![4, 2], 42);
        let error = draft.commit(&client).await.expect_err("it cannot be encoded");
        assert!(matches!(&error, ClientError::Encode { .. }), "{error}");
        assert_eq!(error.to_string(), "encode riddles.example.com/v1: key must be a string");
        client.caches().stop().await;
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        let key = ObjectKey::new("default", "open");
        let error = decode::<Riddle>("get", &key, &json!({"metadata": {}, "spec": 1}), &()).expect_err("no spec");
        assert!(matches!(&error, ClientError::Request { .. }), "{error}");
        assert!(error.to_string().starts_with("get riddles.example.com/v1 default/open: "), "{error}");
        assert!(format!("{error:?}").contains("spec: invalid type: integer, expected struct RiddleSpec"), "{error:?}");
    }

    #[test]
    fn diffs_name_only_what_changed() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2}))),
            (json!({"a": {"b": 1}}), json!({"a": {}}), Some(json!({"a": {"b": null}}))),
            (json!({"a": [1]}), json!({"a": [1, 2]}), Some(json!({"a": [1, 2]}))),
            (json!({}), json!({"a": null}), None),
            (Value::Null, json!({"a": 1}), Some(json!({"a": 1}))),
            (json!({"a": 1}), Value::Null, Some(Value::Null)),
        ];
        for (before, after, patch) in cases {
            assert_eq!(merge_diff(&before, &after), patch, "{before} to {after}");
        }
    }

    #[test]
    fn lists_are_guarded_by_the_version() {
        let before = json!({"metadata": {"resourceVersion": "7", "uid": "u"}, "spec": {"a": 1}, "status": {}});
        let mut after = before.clone();
        after["spec"]["a"] = json!(2);
        after["status"]["x"] = json!(1);
        assert_eq!(object_diff(&before, &after), Some(json!({"spec": {"a": 2}, "metadata": {"uid": "u"}})));
        after["metadata"]["finalizers"] = json!(["f"]);
        assert_eq!(
            object_diff(&before, &after),
            Some(json!({
                "spec": {"a": 2},
                "metadata": {"finalizers": ["f"], "resourceVersion": "7", "uid": "u"},
            }))
        );
        assert_eq!(
            object_diff(&after, &before),
            Some(json!({
                "spec": {"a": 1},
                "metadata": {"finalizers": null, "resourceVersion": "7", "uid": "u"},
            }))
        );
    }

    #[test]
    fn conditions_of_others_survive() {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status});
        let before = json!([condition("A", "False"), condition("B", "False"), condition("C", "True")]);
        let ours = json!([condition("A", "True"), condition("B", "False"), condition("E", "True")]);
        let theirs =
            json!([condition("A", "False"), condition("B", "True"), condition("C", "True"), condition("D", "True")]);
        let merged =
            vec![condition("A", "True"), condition("B", "True"), condition("D", "True"), condition("E", "True")];
        assert_eq!(merge_conditions(&before, &ours, &theirs), Some(merged));
    }

    #[test]
    fn a_condition_that_both_changed_is_a_conflict() {
        let condition = |status: &str| json!([{"type": "A", "status": status}]);
        let (none, a, b, c) = (json!([]), condition("True"), condition("False"), condition("Unknown"));
        for (before, ours, theirs, merged) in [
            (&a, &b, &c, None),
            (&a, &b, &none, None),
            (&a, &none, &b, None),
            (&none, &a, &b, None),
            (&a, &b, &b, Some(&b)),
            (&a, &none, &none, Some(&none)),
            (&none, &a, &none, Some(&a)),
            (&a, &none, &a, Some(&none)),
            (&a, &a, &b, Some(&b)),
        ] {
            let expected = merged.and_then(Value::as_array).cloned();
            assert_eq!(merge_conditions(before, ours, theirs), expected, "{before}, {ours}, {theirs}");
        }
    }

    #[test]
    fn a_status_is_rebased_unless_others_changed_the_same_list() {
        let a = json!({"type": "A", "status": "True"});
        let b = json!({"type": "B", "status": "True"});
        let both = json!({"conditions": [a, b], "n": 1});
        let before = json!({"conditions": [a], "list": [1], "n": 1});
        for (what, ours, theirs, sent) in [
            ("a list we took away", json!({"n": 1}), json!({"conditions": [a], "list": [1, 2]}), None),
            (
                "a list that only we changed",
                json!({"conditions": [a], "list": [2], "n": 1}),
                json!({"conditions": [a, b], "list": [1], "n": 5}),
                Some(json!({"list": [2]})),
            ),
            ("a list that both changed", json!({"list": [2]}), json!({"list": [3]}), None),
            (
                "conditions we took away, with one that another added",
                json!({"list": [1], "n": 1}),
                json!({"conditions": [a, b], "list": [1]}),
                Some(json!({"conditions": [b]})),
            ),
            (
                "conditions we took away",
                json!({"list": [1], "n": 1}),
                json!({"conditions": [a], "list": [1], "n": 2}),
                Some(json!({"conditions": null})),
            ),
            ("the whole status", Value::Null, both.clone(), None),
            ("conditions that are none", json!({"conditions": ["x"], "list": [1], "n": 1}), both, None),
        ] {
            let diff = merge_diff(&before, &ours).expect("something changed");
            assert_eq!(rebased(&before, &ours, &theirs, &diff), sent, "{what}");
        }
    }
}
