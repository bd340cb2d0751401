//! Conditions: the list in a status that says how things stand.
//!
//! A reconciler sets one with [`Draft::condition`](crate::Draft::condition), which knows the generation and the time.
//! These functions are for a list of conditions in any other place.
//!
//! ```
//! use k8s_openapi::jiff::Timestamp;
//! use windlass::conditions::{self, Condition};
//!
//! let mut conditions: Vec<Condition> = Vec::new();
//! let ready = conditions::new("Ready", true, "Synced", "all is well").observed(3);
//! assert!(conditions::set(&mut conditions, ready, Timestamp::now()));
//! assert!(conditions::is_true(&conditions, "Ready"));
//! assert!(conditions::is_current(&conditions, "Ready", 3));
//! ```

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// A condition to be [set]. Made by [`new`] or [`unknown`].
///
/// ```
/// use windlass::conditions::{self, NewCondition};
///
/// fn ready(replicas: i32, generation: Option<i64>) -> NewCondition {
///     conditions::new("Ready", replicas > 0, "Counted", format!("{replicas} replicas")).observed(generation)
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct NewCondition {
    pub(crate) type_: String,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) observed_generation: Option<i64>,
}

/// Whether a condition holds. A `bool` is one, too.
///
/// ```
/// use windlass::conditions::ConditionStatus;
///
/// assert_eq!(ConditionStatus::from(true), ConditionStatus::True);
/// assert_eq!(ConditionStatus::Unknown.as_str(), "Unknown");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nothing can be said about it.
    Unknown,
}

impl ConditionStatus {
    /// The word the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl NewCondition {
    /// The generation of the object that the condition describes.
    pub fn observed(mut self, generation: impl Into<Option<i64>>) -> Self {
        self.observed_generation = generation.into();
        self
    }
}

/// A condition that holds or does not. `reason` is one `CamelCase` word for machines, `message`
/// is for people.
///
/// ```
/// let ready = windlass::conditions::new("Ready", false, "Waiting", "for the store").observed(1);
/// ```
pub fn new(
    type_: impl Into<String>,
    status: impl Into<ConditionStatus>,
    reason: impl Into<String>,
    message: impl Into<String>,
) -> NewCondition {
    NewCondition {
        type_: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
    }
}

/// A condition about which nothing can be said.
///
/// ```
/// let ready = windlass::conditions::unknown("Ready", "NoAnswer", "the store was not reached");
/// ```
pub fn unknown(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> NewCondition {
    new(type_, ConditionStatus::Unknown, reason, message)
}

/// Adds a condition or replaces the one of its type, and says whether anything changed. The
/// transition time moves only when the status does, so that setting the same again is no change.
/// What is set last counts, as in Kubernetes' own libraries, even if it observed an older generation than
/// what is there: an object that was restored from a backup starts over at generation 1, with the status
/// of the one before. A [`Draft`](crate::Draft) does not write over a condition that has changed since
/// its object was read: committing it is a conflict then.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use windlass::conditions;
///
/// let mut list = Vec::new();
/// assert!(conditions::set(&mut list, conditions::new("Ready", true, "Synced", ""), Timestamp::now()));
/// assert!(!conditions::set(&mut list, conditions::new("Ready", true, "Synced", ""), Timestamp::now()));
/// ```
pub fn set(conditions: &mut Vec<Condition>, condition: NewCondition, now: Timestamp) -> bool {
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        conditions.push(Condition {
            last_transition_time: Time(now),
            message: condition.message,
            observed_generation: condition.observed_generation,
            reason: condition.reason,
            status: condition.status.as_str().to_owned(),
            type_: condition.type_,
        });
        return true;
    };
    let before = known.clone();
    if known.status != condition.status.as_str() {
        condition.status.as_str().clone_into(&mut known.status);
        known.last_transition_time = Time(now);
    }
    known.reason = condition.reason;
    known.message = condition.message;
    known.observed_generation = condition.observed_generation.or(known.observed_generation);
    *known != before
}

/// Removes the condition of a type, and says whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a condition is there and holds.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Whether a condition is there and does not hold.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "False")
}

/// Whether a condition holds and describes this generation or a later one.
pub fn is_current(conditions: &[Condition], type_: &str, generation: i64) -> bool {
    find(conditions, type_)
        .is_some_and(|condition| condition.status == "True" && condition.observed_generation >= Some(generation))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut list = Vec::new();
        assert!(set(&mut list, new("Ready", false, "Waiting", "a"), at(1)));
        assert!(!set(&mut list, new("Ready", false, "Waiting", "a"), at(2)));
        assert!(set(&mut list, new("Ready", false, "Waiting", "b"), at(3)));
        assert_eq!(list[0].last_transition_time, Time(at(1)));
        assert!(set(&mut list, new("Ready", true, "Done", "b"), at(4)));
        assert_eq!(list[0].last_transition_time, Time(at(4)));
        assert!(is_true(&list, "Ready") && !is_false(&list, "Ready"));
        assert!(remove(&mut list, "Ready") && !remove(&mut list, "Ready"));
    }

    #[test]
    fn a_restored_status_does_not_keep_conditions_from_being_set() {
        let mut list = Vec::new();
        set(&mut list, new("Ready", false, "Done", "").observed(7), at(1));
        assert!(set(&mut list, new("Ready", true, "Restored", "").observed(1), at(2)));
        assert_eq!((list[0].observed_generation, &list[0].last_transition_time), (Some(1), &Time(at(2))));
        assert!(set(&mut list, new("Ready", true, "Done", "").observed(5), at(3)));
        assert!(is_current(&list, "Ready", 5) && !is_current(&list, "Ready", 6));
        assert!(set(&mut list, unknown("Ready", "Lost", "").observed(6), at(3)));
        assert_eq!(find(&list, "Ready").unwrap().status, "Unknown");
    }
}
