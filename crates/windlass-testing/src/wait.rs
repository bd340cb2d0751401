//! Waiting for the operator.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, ListParams};
use parking_lot::Mutex;
use serde_json::Value;
use windlass::conditions::ConditionStatus;
use windlass::{AsObject, Object, ObjectKey, TypedObject};

use crate::objects::{key_of, kind};
use crate::{Env, WAIT_TIMEOUT, warnings};

/// How soon a read that failed, or that showed more than the cache, is made again if nothing changes.
const RECHECK_PAUSE: Duration = Duration::from_millis(10);

impl Env {
    /// Waits until an object exists and fulfils a condition, and returns the object.
    ///
    /// The key may be anything that [becomes one](ObjectKey), as `"shop/blog"`. As for all functions of `Env`, a key
    /// without a namespace means `default` if the kind is namespaced.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ServiceAccount;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default(), async |env: Env| {
    ///     let account = env.wait_until::<ServiceAccount>("kube-system/default", |_| true).await;
    ///     assert!(account.metadata.uid.is_some());
    /// });
    /// ```
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time. The message has the object.
    #[track_caller]
    pub fn wait_until<K>(
        &self,
        key: impl Into<ObjectKey>,
        condition: impl Fn(&K) -> bool,
    ) -> impl Future<Output = Arc<K>>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move {
            let what = || format!("{} {key} to exist and fulfil the condition", kind::<K>());
            let found = self.wait(what, at, &key, |object: Option<&K>| object.is_some_and(&condition)).await;
            found.expect("invariant: only an object that exists fulfils the condition")
        }
    }

    /// Waits until there is no object of this key.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time. The message has the object.
    #[track_caller]
    pub fn wait_gone<K>(&self, key: impl Into<ObjectKey>) -> impl Future<Output = ()>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move {
            let what = || format!("{} {key} to be gone", kind::<K>());
            self.wait(what, at, &key, |object: Option<&K>| object.is_none()).await;
        }
    }

    /// Waits until an object has a condition with a status, `true`, `false` or [`ConditionStatus::Unknown`], in its
    /// `status.conditions`, and returns the object.
    ///
    /// A condition that was written for an earlier generation of the object, as its `observedGeneration` tells, does
    /// not count.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time. The message has the object.
    #[track_caller]
    pub fn wait_for_condition<K>(
        &self,
        key: impl Into<ObjectKey>,
        type_: &str,
        status: impl Into<ConditionStatus>,
    ) -> impl Future<Output = Arc<K>>
    where
        K: TypedObject,
    {
        let (at, key, status) = (Location::caller(), key_of::<K>(key), status.into());
        async move {
            let what = || format!("the condition {type_} of {} {key} to be {}", kind::<K>(), status.as_str());
            let says = |object: Option<&K>| {
                object
                    .and_then(|object| serde_json::to_value(object).ok())
                    .is_some_and(|object| has_condition(&object, type_, status))
            };
            let found = self.wait(what, at, &key, says).await;
            found.expect("invariant: only an object that exists has conditions")
        }
    }

    /// Waits until an object is as it should be (`None`: there is none), and returns it. For an object that must exist,
    /// [`wait_until`](Self::wait_until) is simpler. The message of a test that waits too long says `what`.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time. The message has the object.
    #[track_caller]
    pub fn wait_for<K>(
        &self,
        what: &str,
        key: impl Into<ObjectKey>,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> impl Future<Output = Option<Arc<K>>>
    where
        K: TypedObject,
    {
        let (at, key) = (Location::caller(), key_of::<K>(key));
        async move { self.wait(|| what.to_owned(), at, &key, condition).await }
    }

    async fn wait<K>(
        &self,
        what: impl Fn() -> String,
        at: &Location<'_>,
        key: &ObjectKey,
        condition: impl Fn(Option<&K>) -> bool,
    ) -> Option<Arc<K>>
    where
        K: TypedObject,
    {
        let lister = self.client().lister::<K>();
        let changed = Arc::new(tokio::sync::Notify::new());
        let told = Arc::clone(&changed);
        let subscription = lister.subscribe(move |_| told.notify_one());
        let waiting = async {
            lister.wait_synced().await.unwrap_or_else(|error| panic!("waiting for {}: {error}", what()));
            loop {
                let object = lister.get(key);
                if !condition(object.as_deref()) {
                    changed.notified().await;
                } else if object.is_some() || self.is_absent::<K>(key).await {
                    return object;
                } else {
                    // The cache will show the object soon, unless that is deleted before.
                    let _ = tokio::time::timeout(RECHECK_PAUSE, changed.notified()).await;
                }
            }
        };
        let found = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
        drop(subscription);
        found.unwrap_or_else(|_| {
            let kind = kind::<K>();
            let state = match lister.get(key) {
                Some(object) => format!("{kind} {key} is {}", shown(&*object)),
                None if lister.is_synced() => format!("{kind} {key} does not exist"),
                None => format!("objects of kind {kind} cannot be listed; is the kind installed?"),
            };
            panic!("timed out waiting for {} (at {at}); {state}{}", what(), self.reasons())
        })
    }

    /// Whether the server has no such object: the cache may not show yet what another client has just created.
    async fn is_absent<K: TypedObject>(&self, key: &ObjectKey) -> bool {
        matches!(self.client().live().get::<K>(key).await, Ok(None))
    }

    /// Waits until a condition holds. It is checked whenever an object in the cluster has changed, and now and then for
    /// what changes elsewhere.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    #[track_caller]
    pub fn eventually(&self, what: &str, condition: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
        let at = Location::caller();
        async move { self.holds(what, at, condition).await }
    }

    async fn holds(&self, what: &str, at: &Location<'_>, condition: impl AsyncFn() -> bool) {
        let mut revision = self.inner.revision.clone();
        let waiting = async {
            let mut pause = Duration::from_millis(1);
            while !condition().await {
                // Caches follow a change a moment later: look again soon, then more rarely.
                let changed = tokio::time::timeout(pause, revision.changed()).await.is_ok();
                pause = if changed { Duration::from_millis(1) } else { (pause * 2).min(Duration::from_millis(50)) };
            }
        };
        let held = tokio::time::timeout(WAIT_TIMEOUT, waiting).await;
        held.unwrap_or_else(|_| panic!("timed out waiting for {what} (at {at}){}", self.reasons()));
    }

    /// Which managers have ended, and what failed last, for the message of a wait that timed out.
    pub(crate) fn reasons(&self) -> String {
        let ended = self.inner.managers.obituaries().into_iter();
        let failed = warnings::last_failure().map(|warning| format!("the last failure: {warning}"));
        ended.chain(failed).flat_map(|reason| ["; ".to_owned(), reason]).collect()
    }

    /// The events so far, of either API, oldest first; of a series, its first.
    pub async fn events(&self) -> Vec<Event> {
        let events: Api<Event> = Api::all(self.harness().clone());
        let list = events.list(&ListParams::default()).await;
        let mut items = list.unwrap_or_else(|error| panic!("events: {error}")).items;
        items.sort_by_key(reported);
        items
    }

    /// Waits for an event about an object, by its reason. The object is `&K` or `&Arc<K>`, such as
    /// [`create`](Self::create) and [`wait_until`](Self::wait_until) return.
    ///
    /// # Panics
    /// When that takes more than 30 seconds of the test's time.
    #[track_caller]
    pub fn wait_for_event<Form>(&self, about: &impl AsObject<Form>, reason: &str) -> impl Future<Output = Event> {
        let (at, about) = (Location::caller(), about.as_object().meta());
        async move {
            let (uid, found) = (about.uid.as_ref(), Mutex::new(None));
            let what = format!("an event {reason} about {}", about.name.as_deref().unwrap_or_default());
            let reported = async || {
                let fits = |event: &Event| {
                    event.reason.as_deref() == Some(reason)
                        && event.regarding.as_ref().is_some_and(|object| object.uid.as_ref() == uid)
                };
                let event = self.events().await.into_iter().find(fits);
                let there = event.is_some();
                *found.lock() = event;
                there
            };
            self.holds(&what, at, reported).await;
            found.into_inner().expect("invariant: found before the wait ended")
        }
    }
}

/// An object as it is shown in messages: without what people do not read.
fn shown<K: Object>(object: &K) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    format!("{value:#}")
}

fn has_condition(object: &Value, type_: &str, status: ConditionStatus) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        condition["type"] == type_
            && condition["status"] == status.as_str()
            && observed.is_none_or(|observed| Some(observed) >= generation)
    })
}

/// When an event was first reported, in nanoseconds, as well as can be known; then, which was
/// written first.
///
/// Only events of the newer API have a time with fractions. The names of all that recorders write, here
/// and in client-go, end in the time.
fn reported(event: &Event) -> (i128, u64) {
    let time = event.event_time.as_ref().map(|time| time.0);
    let time = time.or_else(|| event.deprecated_first_timestamp.as_ref().map(|time| time.0));
    let time = time.or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let time = time.map_or(0, Timestamp::as_nanosecond);
    let named = event.metadata.name.as_deref().and_then(|name| i128::from_str_radix(name.rsplit_once('.')?.1, 16).ok());
    let second = |nanoseconds: i128| nanoseconds.div_euclid(1_000_000_000);
    let precise = named.filter(|named| second(*named) == second(time)).unwrap_or(time);
    let revision = event.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    (precise, revision.unwrap_or_default())
}
