//! Levels, versions, and the policy that the labels of a namespace ask for.
//!
//! Labels that cannot be read still give a policy: what is enforced is then `restricted`, what is only warned of and audited
//! is `privileged` (upstream's `pod-security-admission/api/helpers.go`).

use std::fmt;

use crate::field::{FieldError, FieldErrors, Path};

/// What all labels of the plugin begin with.
pub const PREFIX: &str = "pod-security.kubernetes.io/";

/// How much pods may do: each level allows less than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurityLevel {
    /// Everything.
    Privileged,
    /// What most workloads need, without known ways to more privileges.
    Baseline,
    /// What current hardening practice allows.
    Restricted,
}

impl PodSecurityLevel {
    fn parse(text: &str) -> Option<Self> {
        [Self::Privileged, Self::Baseline, Self::Restricted].into_iter().find(|level| level.name() == text)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The version of Kubernetes whose checks apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodSecurityVersion {
    /// The checks of Kubernetes 1.x.
    Minor(u32),
    /// The newest checks.
    Latest,
}

impl PodSecurityVersion {
    /// `latest` or `v1.x`, without leading zeros.
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || (minor.len() > 1 && minor.starts_with('0')) {
            return None;
        }
        // Upstream reads an int; what is beyond u32 is as new as anything can be.
        let number: i64 = minor.parse().ok()?;
        Some(Self::Minor(u32::try_from(number).unwrap_or(u32::MAX)))
    }
}

impl fmt::Display for PodSecurityVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A level, as of a version. Prints as `baseline:latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSecurityStandard {
    /// The level.
    pub level: PodSecurityLevel,
    /// The version.
    pub version: PodSecurityVersion,
}

impl PodSecurityStandard {
    /// Whether pods that meet one meet the other, too, and the other way round.
    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == other.level && self.level == PodSecurityLevel::Privileged)
    }
}

impl Default for PodSecurityStandard {
    fn default() -> Self {
        Self { level: PodSecurityLevel::Privileged, version: PodSecurityVersion::Latest }
    }
}

impl fmt::Display for PodSecurityStandard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.name(), self.version)
    }
}

/// What pods of a namespace must meet, what is audited, and what users are warned of. The default allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodSecurityPolicy {
    /// Pods that do not meet this are refused.
    pub enforce: PodSecurityStandard,
    /// Pods and workloads that do not meet this are noted in the audit log.
    pub audit: PodSecurityStandard,
    /// Users who write pods or workloads that do not meet this are warned.
    pub warn: PodSecurityStandard,
}

impl PodSecurityPolicy {
    /// The policy that labels ask for, and what is wrong with them.
    pub fn of<'a>(labels: impl Fn(&str) -> Option<&'a str>, defaults: Self) -> (Self, FieldErrors) {
        let (mut policy, mut errors) = (defaults, FieldErrors::default());
        let enforced = level(&labels, "enforce", &mut policy.enforce, PodSecurityLevel::Restricted, &mut errors);
        version(&labels, "enforce-version", &mut policy.enforce, &mut errors);
        level(&labels, "audit", &mut policy.audit, PodSecurityLevel::Privileged, &mut errors);
        version(&labels, "audit-version", &mut policy.audit, &mut errors);
        let warned = level(&labels, "warn", &mut policy.warn, PodSecurityLevel::Privileged, &mut errors);
        let has_warn_version = version(&labels, "warn-version", &mut policy.warn, &mut errors);
        // Users are warned about workloads whose pods would be refused, unless the namespace says otherwise.
        if warned == Label::Absent && enforced == Label::Valid && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !has_warn_version {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether no pod is refused, audited or warned about.
    pub fn allows_everything(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|standard| standard.level == PodSecurityLevel::Privileged)
    }

    /// Whether both mean the same.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let pairs = [(self.enforce, other.enforce), (self.audit, other.audit), (self.warn, other.warn)];
        pairs.into_iter().all(|(one, other)| one.is_equivalent(other))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Absent,
    Valid,
    Invalid,
}

/// Reads the label of a level, if there is one; `fallback` stands for one that cannot be read.
fn level<'a>(
    labels: &impl Fn(&str) -> Option<&'a str>,
    name: &str,
    standard: &mut PodSecurityStandard,
    fallback: PodSecurityLevel,
    errors: &mut FieldErrors,
) -> Label {
    let key = format!("{PREFIX}{name}");
    let Some(text) = labels(&key) else { return Label::Absent };
    let parsed = PodSecurityLevel::parse(text);
    standard.level = parsed.unwrap_or(fallback);
    if parsed.is_some() {
        return Label::Valid;
    }
    errors.push(invalid(&key, text, "must be one of privileged, baseline, restricted"));
    Label::Invalid
}

/// Reads the label of a version; returns whether there is one.
fn version<'a>(
    labels: &impl Fn(&str) -> Option<&'a str>,
    name: &str,
    standard: &mut PodSecurityStandard,
    errors: &mut FieldErrors,
) -> bool {
    let key = format!("{PREFIX}{name}");
    let Some(text) = labels(&key) else { return false };
    let parsed = PodSecurityVersion::parse(text);
    standard.version = parsed.unwrap_or(PodSecurityVersion::Latest);
    if parsed.is_none() {
        errors.push(invalid(&key, text, r#"must be "latest" or "v1.x""#));
    }
    true
}

fn invalid(key: &str, value: &str, why: &str) -> FieldError {
    let (metadata, labels) = ("metadata", "labels");
    FieldError::invalid(&Path::new(metadata).child(labels).key(key), value, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(labels: &[(&str, &str)], expected: [&str; 3], problems: &[&str]) {
        let find =
            |key: &str| labels.iter().find(|(name, _)| key.strip_prefix(PREFIX) == Some(name)).map(|(_, value)| *value);
        let (policy, errors) = PodSecurityPolicy::of(find, PodSecurityPolicy::default());
        let shown = [policy.enforce, policy.audit, policy.warn].map(|standard| standard.to_string());
        assert_eq!(shown, expected, "{labels:?}");
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(errors, problems, "{labels:?}");
    }

    #[test]
    fn labels_make_a_policy() {
        let privileged = "privileged:latest";
        check(&[], [privileged; 3], &[]);
        check(&[("enforce", "privileged")], [privileged; 3], &[]);
        check(&[("enforce-version", "v1.0")], ["privileged:v1.0", privileged, privileged], &[]);
        check(&[("audit", "baseline"), ("audit-version", "v1.36")], [privileged, "baseline:v1.36", privileged], &[]);
        check(&[("warn", "restricted"), ("warn-version", "v1.9")], [privileged, privileged, "restricted:v1.9"], &[]);
    }

    #[test]
    fn users_are_warned_of_what_is_enforced() {
        let privileged = "privileged:latest";
        check(&[("enforce", "baseline")], ["baseline:latest", privileged, "baseline:latest"], &[]);
        check(
            &[("enforce", "baseline"), ("enforce-version", "v1.20")],
            ["baseline:v1.20", privileged, "baseline:v1.20"],
            &[],
        );
        check(
            &[("enforce", "baseline"), ("enforce-version", "v1.20"), ("warn-version", "v1.30")],
            ["baseline:v1.20", privileged, "baseline:v1.30"],
            &[],
        );
        check(&[("enforce", "restricted"), ("warn", "privileged")], ["restricted:latest", privileged, privileged], &[]);
    }

    #[test]
    fn unreadable_labels_enforce_most_and_warn_of_nothing() {
        let privileged = "privileged:latest";
        let level = "must be one of privileged, baseline, restricted";
        check(
            &[("enforce", "strict"), ("audit", ""), ("warn", "Baseline")],
            ["restricted:latest", privileged, privileged],
            &[
                &format!("metadata.labels[{PREFIX}enforce]: Invalid value: \"strict\": {level}"),
                &format!("metadata.labels[{PREFIX}audit]: Invalid value: \"\": {level}"),
                &format!("metadata.labels[{PREFIX}warn]: Invalid value: \"Baseline\": {level}"),
            ],
        );
        for version in ["v1", "1.36", "v1.01", "v2.0", "v1.-1", "v1.x", "", "Latest", "v1.99999999999999999999"] {
            let problem = format!(
                "metadata.labels[{PREFIX}enforce-version]: Invalid value: \"{version}\": must be \"latest\" or \"v1.x\""
            );
            check(&[("enforce-version", version)], [privileged; 3], &[&problem]);
        }
    }

    #[test]
    fn versions_are_ordered_and_latest_is_newest() {
        let [old, new, latest] =
            ["v1.9", "v1.10", "latest"].map(|text| PodSecurityVersion::parse(text).expect("valid"));
        assert!(old < new && new < latest);
    }
}
