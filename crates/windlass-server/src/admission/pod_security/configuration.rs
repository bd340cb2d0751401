//! What the plugin applies where namespaces say nothing, and what it leaves alone: upstream's `PodSecurityConfiguration`.

use windlass_kinds::pod_security::PodSecurityPolicy;

/// How pods are judged where the labels of their namespace say nothing, and which are not judged at all. The default
/// allows everything and exempts nothing, as upstream's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodSecurity {
    /// What applies to namespaces without labels.
    pub defaults: PodSecurityPolicy,
    /// What these users write is not judged.
    pub exempt_users: Vec<String>,
    /// What is in these namespaces is not judged.
    pub exempt_namespaces: Vec<String>,
    /// Pods with these runtime classes are not judged.
    pub exempt_runtime_classes: Vec<String>,
}

impl PodSecurity {
    pub(super) fn exempts_user(&self, name: &str) -> bool {
        contains(&self.exempt_users, name)
    }

    pub(super) fn exempts_namespace(&self, name: &str) -> bool {
        contains(&self.exempt_namespaces, name)
    }

    pub(super) fn exempts_runtime_class(&self, name: &str) -> bool {
        contains(&self.exempt_runtime_classes, name)
    }
}

fn contains(list: &[String], name: &str) -> bool {
    !name.is_empty() && list.iter().any(|known| known == name)
}
