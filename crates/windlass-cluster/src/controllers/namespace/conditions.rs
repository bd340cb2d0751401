//! The five conditions that tell how the deletion of a namespace is going.
//!
//! Types, reasons and messages are upstream's (`deletion/status_condition_utils.go`): people and
//! scripts read them.

use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::Counts;
use super::content::Swept;

/// Type, and reason and message when all is well.
const WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// What is not well: reason and message by type.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    failing: Vec<(&'static str, &'static str, String)>,
}

impl Conditions {
    pub(super) fn of(swept: &Swept) -> Self {
        let mut failing = Vec::new();
        if let Some(error) = &swept.discovery_error {
            failing.push(("NamespaceDeletionDiscoveryFailure", "DiscoveryFailed", error.clone()));
        }
        if !swept.content_errors.is_empty() {
            let mut errors = swept.content_errors.clone();
            errors.sort();
            let (count, errors) = (errors.len(), errors.join(", "));
            let message = format!("Failed to delete all resource types, {count} remaining: {errors}");
            failing.push(("NamespaceDeletionContentFailure", "ContentDeletionFailed", message));
        }
        // Upstream does not say what is left as long as there are pods.
        if !swept.only_pods && !swept.remaining.is_empty() {
            let left = join(&swept.remaining, |name, count| format!("{name} has {count} resource instances"));
            let message = format!("Some resources are remaining: {left}");
            failing.push(("NamespaceContentRemaining", "SomeResourcesRemain", message));
        }
        if !swept.only_pods && !swept.finalizers.is_empty() {
            let left = join(&swept.finalizers, |name, count| format!("{name} in {count} resource instances"));
            let message = format!("Some content in the namespace has finalizers remaining: {left}");
            failing.push(("NamespaceFinalizersRemaining", "SomeFinalizersRemain", message));
        }
        Self { failing }
    }

    /// Brings a namespace's conditions up to date; whether anything changed.
    pub(super) fn update(&self, conditions: &mut Vec<NamespaceCondition>, now: Timestamp) -> bool {
        let mut changed = false;
        for (type_, reason, message) in WELL {
            let failing = self.failing.iter().find(|(failing, ..)| *failing == type_);
            let (status, reason, message) = match failing {
                Some((_, reason, message)) => ("True", *reason, message.as_str()),
                None => ("False", reason, message),
            };
            let transition = Some(Time(now));
            let at = conditions.iter().position(|condition| condition.type_ == type_).unwrap_or(conditions.len());
            if at == conditions.len() {
                conditions.push(NamespaceCondition { type_: type_.to_owned(), ..NamespaceCondition::default() });
            }
            let condition = &mut conditions[at];
            if condition.status != status {
                status.clone_into(&mut condition.status);
                condition.last_transition_time = transition;
                changed = true;
            }
            if condition.reason.as_deref() != Some(reason) || condition.message.as_deref() != Some(message) {
                condition.reason = Some(reason.to_owned());
                condition.message = Some(message.to_owned());
                changed = true;
            }
        }
        changed
    }
}

/// As upstream sorts them: the finished phrases, not the names.
fn join(counts: &Counts, phrase: impl Fn(&str, usize) -> String) -> String {
    let mut phrases: Vec<String> = counts.iter().map(|(name, count)| phrase(name, *count)).collect();
    phrases.sort();
    phrases.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_follow_what_was_found() {
        let mut conditions = Vec::new();
        let now = Timestamp::UNIX_EPOCH;
        let mut swept = Swept::default();
        swept.remaining.insert("configmaps.".to_owned(), 2);
        swept.finalizers.insert("e.com/hold".to_owned(), 1);
        assert!(Conditions::of(&swept).update(&mut conditions, now));
        assert!(!Conditions::of(&swept).update(&mut conditions, now));
        let said: Vec<_> = conditions.iter().map(|c| (c.status.as_str(), c.message.as_deref().unwrap_or(""))).collect();
        assert_eq!(
            said,
            [
                ("False", "All resources successfully discovered"),
                ("False", "All legacy kube types successfully parsed"),
                ("False", "All content successfully deleted, may be waiting on finalization"),
                ("True", "Some resources are remaining: configmaps. has 2 resource instances"),
                ("True", "Some content in the namespace has finalizers remaining: e.com/hold in 1 resource instances"),
            ]
        );
        assert!(Conditions::of(&Swept::default()).update(&mut conditions, now));
        assert!(conditions.iter().all(|condition| condition.status == "False"));
    }

    #[test]
    fn while_pods_are_left_nothing_else_is_said() {
        let mut swept = Swept { only_pods: true, ..Swept::default() };
        swept.remaining.insert("pods.".to_owned(), 1);
        let mut conditions = Vec::new();
        Conditions::of(&swept).update(&mut conditions, Timestamp::UNIX_EPOCH);
        assert!(conditions.iter().all(|condition| condition.status == "False"));
    }
}
