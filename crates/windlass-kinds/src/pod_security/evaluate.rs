//! Which checks apply to a level and a version, and what they find together.

use std::borrow::Cow;

use serde_json::Value;

use super::policy::{PodSecurityLevel, PodSecurityStandard, PodSecurityVersion};
use super::{baseline, restricted};
use crate::validation::access::Access as _;

/// A pod, or the template of pods, as checks see it.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    /// Its metadata.
    pub metadata: &'a Value,
    /// Its spec.
    pub spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// A pod or a template.
    pub fn new(pod: &'a Value) -> Self {
        Self { metadata: pod.at("metadata"), spec: pod.at("spec") }
    }

    /// All containers: first those that initialise, then the ordinary ones, then those for debugging.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Value> {
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| self.spec.list(list))
    }

    /// Whether it says that it runs on Windows.
    pub(super) fn is_windows(self) -> bool {
        self.spec.at("os").text("name") == "windows"
    }

    /// Whether its users are not the users of the host.
    pub(super) fn has_own_users(self) -> bool {
        self.spec.flag_opt("hostUsers") == Some(false)
    }
}

/// What one check has against a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In a few words.
    pub reason: &'static str,
    /// What exactly.
    pub detail: String,
}

/// What a check says.
pub(super) type Check = fn(Pod<'_>) -> Option<Violation>;

/// One check with its revisions: each applies from a minor version on.
pub(super) struct Revisions {
    /// Its name upstream.
    pub id: &'static str,
    /// The checks, oldest first.
    pub checks: &'static [(u32, Check)],
    /// The check of the level below that it takes the place of.
    pub overrides: Option<&'static str>,
}

impl Revisions {
    fn at(&self, version: PodSecurityVersion) -> Option<Check> {
        let known = |since: u32| PodSecurityVersion::Minor(since) <= version;
        self.checks.iter().rev().find(|(since, _)| known(*since)).map(|(_, check)| *check)
    }
}

/// What all checks have against a pod; nothing if it may run.
pub fn evaluate(standard: PodSecurityStandard, pod: Pod<'_>) -> Vec<Violation> {
    let PodSecurityStandard { level, version } = standard;
    if level == PodSecurityLevel::Privileged {
        return Vec::new();
    }
    let more: &[Revisions] = if level == PodSecurityLevel::Restricted { restricted::CHECKS } else { &[] };
    let is_overridden =
        |check: &Revisions| more.iter().any(|other| other.overrides == Some(check.id) && other.at(version).is_some());
    let checks = baseline::CHECKS.iter().filter(|check| !is_overridden(check)).chain(more);
    checks.filter_map(|check| check.at(version)?(pod)).collect()
}

/// What violations are called where many pods are judged.
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// What violations are called where one pod is judged.
pub fn details(violations: &[Violation]) -> String {
    let shown = violations.iter().map(|Violation { reason, detail }| match &**detail {
        "" => Cow::Borrowed(*reason),
        detail => Cow::Owned(format!("{reason} ({detail})")),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The word for one or for any other number.
pub const fn plural(singular: &'static str, plural: &'static str, count: usize) -> &'static str {
    if count == 1 { singular } else { plural }
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// Those who set something they must not: the pod, and containers.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers(names)),
        (true, names) => Some(format!("pod and {}", containers(names))),
    }
}
