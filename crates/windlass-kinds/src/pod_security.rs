//! What pods may ask for: upstream's Pod Security Standards, as pure functions.
//!
//! The labels of a namespace make a [`PodSecurityPolicy`]; [`Verdict`] is what it has against a pod. The checks are in
//! `baseline` and `restricted`, with the versions of Kubernetes from which each applies.

mod baseline;
mod evaluate;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::validation::access::Access as _;

pub use evaluate::{Pod, Violation, details, evaluate, plural, reasons};
pub use policy::{PREFIX, PodSecurityLevel, PodSecurityPolicy, PodSecurityStandard, PodSecurityVersion};

/// What a policy has against a pod, by mode.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is refused.
    pub enforced: Option<Vec<Violation>>,
    /// What is noted in the audit log.
    pub audited: Option<Vec<Violation>>,
    /// What the user is warned of.
    pub warned: Option<Vec<Violation>>,
}

impl Verdict {
    /// Judges a pod, or the template of a workload, of which nothing is enforced. A pod that is refused needs no warning.
    pub fn of(policy: &PodSecurityPolicy, pod: Pod<'_>, enforce: bool) -> Self {
        let found = |standard| Some(evaluate(standard, pod)).filter(|violations| !violations.is_empty());
        let enforced = if enforce { found(policy.enforce) } else { None };
        let audited = match &enforced {
            Some(violations) if policy.audit == policy.enforce => Some(violations.clone()),
            _ => found(policy.audit),
        };
        let warned = if enforced.is_none() { found(policy.warn) } else { None };
        Self { enforced, audited, warned }
    }
}

/// Whether a change of a pod is one that pods are judged for again: another image, or more containers.
pub fn is_significant(pod: &Value, old: &Value) -> bool {
    let (pod, old) = (pod.at("spec"), old.at("spec"));
    let differs = |list: &str| {
        let (new, old) = (pod.list(list), old.list(list));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new.text("image") != old.text("image"))
    };
    let known = old.list("ephemeralContainers");
    differs("containers")
        || differs("initContainers")
        || pod.list("ephemeralContainers").iter().any(|container| {
            let before = known.iter().find(|known| known.text("name") == container.text("name"));
            before.is_none_or(|before| before.text("image") != container.text("image"))
        })
}

/// Whether pods that met the old standard may violate the new one.
pub fn is_stricter(new: PodSecurityStandard, old: PodSecurityStandard) -> bool {
    new != old && new.level != PodSecurityLevel::Privileged && !(new.version == old.version && new.level <= old.level)
}
