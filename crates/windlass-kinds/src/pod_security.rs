//! The Pod Security Standards: what pods of a namespace may ask for is said by labels of the namespace.
//!
//! [`PodSecurityPolicy`] reads the labels, `evaluate.rs` compares a pod with a level as of a version, and
//! [`Verdict`] says what that means for a request. The checks are in `baseline` and `restricted`. Mirrors
//! `k8s.io/pod-security-admission`.

mod baseline;
mod configuration;
mod evaluate;
mod existing;
mod policy;
mod restricted;
#[cfg(test)]
mod tests;

pub use configuration::PodSecurity;
pub use evaluate::{Pod, Violation, details};
pub use existing::warnings as existing_warnings;
pub use policy::{PREFIX, PodSecurityLevel, PodSecurityPolicy, PodSecurityStandard, PodSecurityVersion};

use serde_json::Value;

use crate::field::quote;
use crate::validation::access::Access as _;
use evaluate::evaluate;

/// What a policy has against a pod, by mode.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why the pod is refused.
    pub enforced: Option<Vec<Violation>>,
    /// What is logged.
    pub audited: Option<Vec<Violation>>,
    /// What the author is warned of.
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

/// The warning about labels of an exempt namespace, which have no effect.
pub fn ignored(configuration: &PodSecurity, name: &str, policy: &PodSecurityPolicy, labels: &Value) -> Option<String> {
    if policy.allows_everything() || policy.is_equivalent(&configuration.defaults) {
        return None;
    }
    let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
    let is_labelled = |mode: &str| {
        let key = format!("{PREFIX}{mode}");
        labels.has(&key) || labels.has(&format!("{key}-version"))
    };
    let shown = modes
        .into_iter()
        .filter(|(mode, standard)| standard.level != PodSecurityLevel::Privileged && is_labelled(mode));
    let shown: Vec<String> = shown.map(|(mode, standard)| format!("{mode}={standard}")).collect();
    Some(format!(
        "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
        quote(name),
        shown.join(", ")
    ))
}

/// The warning about violations of a standard.
pub fn would_violate(standard: PodSecurityStandard, violations: &[Violation]) -> String {
    format!("would violate PodSecurity {}: {}", quote(&standard.to_string()), details(violations))
}
