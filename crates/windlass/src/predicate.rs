//! Predicates: which changes cause a reconcile.
//!
//! A predicate filters additions and updates. It cannot filter the end of an object: deletions, every change of an
//! object that is marked for deletion (also one that was marked while the operator was down), and the replacement of an
//! object by another of the same name always pass.
//!
//! Predicates about a *change*, such as [`generation_changed`], have nothing to compare with when an object is added,
//! listed for the first time, or resynced. The object may have changed while the operator was not watching, so these
//! predicates accept it, and so do their negations. `generation_changed().or(f)` therefore accepts additions, and
//! `generation_changed().and(f)` leaves them to `f`.
//!
//! ```
//! # use k8s_openapi::api::core::v1::Pod;
//! use windlass::predicate::{self, Predicate};
//!
//! let interesting: Predicate<Pod> = predicate::generation_changed()
//!     .or(predicate::labels_changed())
//!     .and(predicate::object(|pod: &Pod| pod.metadata.name.as_deref() != Some("ignored")));
//! ```

use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;

use crate::informer::Change;

/// Decides which changes count. See the [module documentation](self).
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass::informer::Change;
/// use windlass::predicate::{self, Predicate};
///
/// let running: Predicate<Pod> = predicate::object(|pod: &Pod| pod.spec.is_some());
/// let pod = Arc::new(Pod::default());
/// assert!(!running.accepts(&Change::Added { object: Arc::clone(&pod), initial: false }));
/// assert!(running.accepts(&Change::Deleted { object: pod }), "a deletion always passes");
/// ```
pub struct Predicate<K> {
    rule: Arc<Rule<K>>,
}

type ObjectRule<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;
type ChangeRule<K> = Box<dyn Fn(&K, &K) -> bool + Send + Sync>;

enum Rule<K> {
    Object(ObjectRule<K>),
    Change(ChangeRule<K>),
    And(Predicate<K>, Predicate<K>),
    Or(Predicate<K>, Predicate<K>),
    Not(Predicate<K>),
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self { rule: Arc::clone(&self.rule) }
    }
}

impl<K> std::fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.rule {
            Rule::Object(_) => f.write_str("object"),
            Rule::Change(_) => f.write_str("change"),
            Rule::And(left, right) => write!(f, "({left:?} and {right:?})"),
            Rule::Or(left, right) => write!(f, "({left:?} or {right:?})"),
            Rule::Not(inner) => write!(f, "not {inner:?}"),
        }
    }
}

impl<K> Predicate<K> {
    fn new(rule: Rule<K>) -> Self {
        Self { rule: Arc::new(rule) }
    }

    /// Both must accept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(Rule::And(self, other))
    }

    /// One must accept.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(Rule::Or(self, other))
    }

    /// The opposite. Still never swallows a deletion, nor an object that enters the opposite
    /// selection or leaves it: `object(f).not()` is `object(|o| !f(o))`.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "reads like `and` and `or`")]
    pub fn not(self) -> Self {
        Self::new(Rule::Not(self))
    }

    /// Whether it accepts a change, or `negated` its opposite does. That is not always the opposite
    /// answer: an object may leave a selection and enter its opposite, and both count; and where there
    /// is nothing to compare with, neither a change nor its opposite can be ruled out.
    fn decide(&self, old: Option<&K>, new: &K, negated: bool) -> bool {
        let part = |part: &Self| part.decide(old, new, negated);
        match &*self.rule {
            // An object that leaves the selection is as interesting as one that enters it.
            Rule::Object(accepts) => accepts(new) != negated || old.is_some_and(|old| accepts(old) != negated),
            Rule::Change(changed) => old.is_none_or(|old| changed(old, new) != negated),
            Rule::Not(inner) => inner.decide(old, new, !negated),
            // Not both is one of both not.
            Rule::And(left, right) if negated => part(left) || part(right),
            Rule::Or(left, right) if negated => part(left) && part(right),
            Rule::And(left, right) => part(left) && part(right),
            Rule::Or(left, right) => part(left) || part(right),
        }
    }
}

impl<K: Resource> Predicate<K> {
    /// Whether a change counts.
    pub fn accepts(&self, change: &Change<K>) -> bool {
        let (old, new) = match change {
            Change::Deleted { .. } => return true,
            Change::Added { object, .. } | Change::Resync { object } => (None, object),
            Change::Updated { old, new } => (Some(&**old), new),
        };
        if is_ending(old.map(Resource::meta), new.meta()) {
            return true;
        }
        self.decide(old, new, false)
    }
}

/// Whether an object is on its way out, or was replaced.
fn is_ending(old: Option<&ObjectMeta>, new: &ObjectMeta) -> bool {
    new.deletion_timestamp.is_some() || old.is_some_and(|old| old.uid != new.uid)
}

/// Objects that a function accepts; after an update, in their old or new state.
pub fn object<K>(accepts: impl Fn(&K) -> bool + Send + Sync + 'static) -> Predicate<K> {
    Predicate::new(Rule::Object(Box::new(accepts)))
}

/// Updates that a function accepts, given the old and the new state.
pub fn change<K>(accepts: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Predicate<K> {
    Predicate::new(Rule::Change(Box::new(accepts)))
}

/// Updates of the specification: ignores those of status and metadata. For kinds whose generation
/// the server counts (custom resources with a status subresource, and most others).
pub fn generation_changed<K: Resource>() -> Predicate<K> {
    change(|old: &K, new: &K| old.meta().generation != new.meta().generation)
}

/// Updates of labels.
pub fn labels_changed<K: Resource>() -> Predicate<K> {
    change(|old: &K, new: &K| old.meta().labels != new.meta().labels)
}

/// Updates of annotations.
pub fn annotations_changed<K: Resource>() -> Predicate<K> {
    change(|old: &K, new: &K| old.meta().annotations != new.meta().annotations)
}

/// Updates of anything at all.
pub fn resource_version_changed<K: Resource>() -> Predicate<K> {
    change(|old: &K, new: &K| old.meta().resource_version != new.meta().resource_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(generation: i64) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta { uid: Some("1".into()), generation: Some(generation), ..ObjectMeta::default() },
            ..ConfigMap::default()
        }
    }

    fn added(object: ConfigMap) -> Change<ConfigMap> {
        Change::Added { object: Arc::new(object), initial: false }
    }

    fn updated(old: ConfigMap, new: ConfigMap) -> Change<ConfigMap> {
        Change::Updated { old: Arc::new(old), new: Arc::new(new) }
    }

    fn never() -> Predicate<ConfigMap> {
        object(|_| false)
    }

    #[test]
    fn generation_filters_updates_only() {
        let predicate = generation_changed();
        assert!(predicate.accepts(&added(at(1))));
        assert!(predicate.accepts(&updated(at(1), at(2))));
        assert!(!predicate.accepts(&updated(at(2), at(2))));
    }

    #[test]
    fn a_deletion_is_never_swallowed() {
        let mut marked = at(1);
        marked.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut replaced = at(1);
        replaced.metadata.uid = Some("2".into());
        let gone = Change::Deleted { object: Arc::new(at(1)) };
        for predicate in [never(), never().not().not(), never().and(generation_changed())] {
            assert!(predicate.accepts(&gone));
            assert!(predicate.accepts(&updated(at(1), marked.clone())));
            assert!(predicate.accepts(&updated(marked.clone(), marked.clone())), "a finalizer may have gone");
            assert!(predicate.accepts(&added(marked.clone())), "marked while nobody looked");
            assert!(predicate.accepts(&Change::Resync { object: Arc::new(marked.clone()) }));
            assert!(predicate.accepts(&updated(at(1), replaced.clone())));
            assert!(!predicate.accepts(&updated(at(1), at(2))));
        }
    }

    #[test]
    fn additions_pass_where_there_is_nothing_to_compare_with() {
        let same = generation_changed().not();
        assert!(same.accepts(&added(at(1))));
        assert!(same.accepts(&updated(at(1), at(1))));
        assert!(!same.accepts(&updated(at(1), at(2))));
        for either in [never().or(generation_changed()), generation_changed().or(never())] {
            assert!(either.accepts(&added(at(1))), "it may have changed while nobody looked");
            assert!(either.accepts(&updated(at(1), at(2))));
            assert!(!either.accepts(&updated(at(1), at(1))));
        }
    }

    /// What two predicates say together about each kind of change: one that accepts changes of the
    /// generation, and one that accepts some objects.
    #[test]
    fn combinations_say_of_each_change_what_their_parts_do() {
        let check = |name: &str, make: &dyn Fn() -> Predicate<ConfigMap>, seen: bool, changed: bool, same: bool| {
            for (form, predicate) in [("plain", make()), ("twice not", make().not().not())] {
                assert_eq!(predicate.accepts(&added(at(1))), seen, "{name}, {form}, added");
                let resync = Change::Resync { object: Arc::new(at(1)) };
                assert_eq!(predicate.accepts(&resync), seen, "{name}, {form}, resync");
                assert_eq!(predicate.accepts(&updated(at(1), at(2))), changed, "{name}, {form}, changed");
                assert_eq!(predicate.accepts(&updated(at(1), at(1))), same, "{name}, {form}, same");
                assert!(predicate.accepts(&Change::Deleted { object: Arc::new(at(1)) }), "{name}, {form}, deleted");
            }
        };
        let always = || object(|_| true);
        let changes = generation_changed;
        check("change or never", &|| changes().or(never()), true, true, false);
        check("change or always", &|| changes().or(always()), true, true, true);
        check("change and never", &|| changes().and(never()), false, false, false);
        check("change and always", &|| changes().and(always()), true, true, false);
        check("not change", &|| changes().not(), true, false, true);
        check("not change or never", &|| changes().not().or(never()), true, false, true);
        check("not (change or never)", &|| changes().or(never()).not(), true, false, true);
        check("not (change or always)", &|| changes().or(always()).not(), false, false, false);
        check("not (change and never)", &|| changes().and(never()).not(), true, true, true);
        check("not (change and always)", &|| changes().and(always()).not(), true, false, true);
        check("two changes", &|| changes().and(changes().not()), true, false, false);
        check("change or never, and always", &|| changes().or(never()).and(always()), true, true, false);
        check("change or never, and never", &|| changes().or(never()).and(never()), false, false, false);
    }

    #[test]
    fn each_kind_of_change_is_told_from_the_others() {
        type Edit = fn(&mut ObjectMeta);
        let edits: [Edit; 4] = [
            |meta| meta.generation = Some(2),
            |meta| meta.labels = Some([("a".to_owned(), "b".to_owned())].into()),
            |meta| meta.annotations = Some([("a".to_owned(), "b".to_owned())].into()),
            |meta| meta.resource_version = Some("2".to_owned()),
        ];
        let predicates = [generation_changed(), labels_changed(), annotations_changed(), resource_version_changed()];
        for (index, predicate) in predicates.iter().enumerate() {
            assert!(predicate.accepts(&added(at(1))));
            assert!(!predicate.accepts(&updated(at(1), at(1))));
            for (edited, edit) in edits.iter().enumerate() {
                let mut new = at(1);
                edit(&mut new.metadata);
                assert_eq!(predicate.accepts(&updated(at(1), new)), edited == index, "{index} of {edited}");
            }
        }
    }

    #[test]
    fn leaving_the_selection_counts() {
        let second = object(|o: &ConfigMap| o.metadata.generation == Some(2));
        assert!(second.accepts(&updated(at(2), at(3))));
        assert!(second.accepts(&updated(at(1), at(2))));
        assert!(!second.accepts(&updated(at(3), at(4))));
    }

    #[test]
    fn a_negated_selection_is_entered_and_left_like_any_other() {
        let second = || object(|o: &ConfigMap| o.metadata.generation == Some(2));
        for not in [second().not(), second().not().not().not(), never().or(second()).not()] {
            assert!(not.accepts(&updated(at(2), at(3))), "entered");
            assert!(not.accepts(&updated(at(1), at(2))), "left");
            assert!(not.accepts(&updated(at(3), at(4))), "stayed in");
            assert!(!not.accepts(&updated(at(2), at(2))), "stayed out");
            assert!(!not.accepts(&added(at(2))) && not.accepts(&added(at(1))));
        }
        let neither = second().or(generation_changed()).not();
        assert!(neither.accepts(&updated(at(1), at(1))));
        assert!(!neither.accepts(&updated(at(1), at(3))));
        let not_both = second().and(generation_changed()).not();
        assert!(not_both.accepts(&updated(at(2), at(2))) && not_both.accepts(&updated(at(1), at(3))));
    }
}
