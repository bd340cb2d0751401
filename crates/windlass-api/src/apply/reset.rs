//! Which fields an endpoint ignores, so that writing through it never makes anybody own them.
//!
//! The table restates the `GetResetFields` methods of upstream's strategies (`pkg/registry/*/*`).

use super::fields::{self, Trie};

/// Field names from the root.
pub type FieldPath = &'static [&'static str];

/// The fields one endpoint ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// None.
    #[default]
    Nothing,
    /// These, and everything below them.
    Fields(&'static [FieldPath]),
    /// All but these, where `*` stands for any list item.
    AllBut(&'static [FieldPath]),
}

const STATUS: Reset = Reset::Fields(&[&["status"]]);
const SPEC: Reset = Reset::Fields(&[&["spec"]]);
const SPEC_AND_METADATA: Reset = Reset::Fields(&[&["spec"], &["metadata"]]);

impl Reset {
    /// What a built-in kind's endpoint ignores. `subresource` is empty for the main endpoint.
    pub fn of_builtin(group: &str, kind: &str, subresource: &str) -> Self {
        match (group, kind, subresource) {
            ("certificates.k8s.io", "CertificateSigningRequest", "") => Self::Fields(&[&["spec"], &["status"]]),
            ("certificates.k8s.io", "CertificateSigningRequest", "status") => {
                Self::Fields(&[&["spec"], &["status", "conditions"]])
            }
            ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
                Self::Fields(&[&["spec"], &["status", "certificate"]])
            }
            ("", "Pod", "status") => {
                Self::Fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("", "Pod", "ephemeralcontainers") => Self::AllBut(&[&["spec", "ephemeralContainers"]]),
            ("", "Pod", "resize") => Self::AllBut(&[
                &["spec", "containers", "*", "resources"],
                &["spec", "containers", "*", "resizePolicy"],
                &["spec", "initContainers", "*", "resources"],
                &["spec", "initContainers", "*", "resizePolicy"],
            ]),
            ("apps", "Deployment", "status") => Self::Fields(&[&["spec"], &["metadata", "labels"]]),
            (group, kind, "status") if ignores_metadata(group, kind) => SPEC_AND_METADATA,
            (_, _, "status") => SPEC,
            // A kind without a status never has the field.
            (_, _, "") | ("", "Namespace", "finalize") => STATUS,
            _ => Self::Nothing,
        }
    }

    /// Takes the ignored fields out of a set.
    pub(super) fn apply(self, set: &mut Trie) {
        match self {
            Self::Nothing => {}
            Self::Fields(paths) => paths.iter().for_each(|path| fields::remove_below(set, path)),
            Self::AllBut(patterns) => fields::keep_matching(set, patterns),
        }
    }

    /// What a custom resource's endpoint ignores; `has_status` says whether the version has the status
    /// subresource.
    pub fn of_custom(has_status: bool, subresource: &str) -> Self {
        match subresource {
            "" if has_status => STATUS,
            "status" => SPEC_AND_METADATA,
            _ => Self::Nothing,
        }
    }
}

fn ignores_metadata(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("certificates.k8s.io", "PodCertificateRequest")
            | ("networking.k8s.io", "ServiceCIDR")
            | ("storagemigration.k8s.io" | "scheduling.k8s.io" | "flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _)
            | ("internal.apiserver.k8s.io", "StorageVersion")
            | ("storage.k8s.io", "VolumeAttachment" | "CSINode")
            | ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")
            | ("apiregistration.k8s.io", "APIService")
    )
}
