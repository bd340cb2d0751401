//! The built-in admission plugins, by upstream's names, and which of them a server runs.

use std::fmt;
use std::str::FromStr;

macro_rules! plugins {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A built-in admission plugin, named as kube-apiserver names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum AdmissionPlugin {
            $($(#[$doc])* $name,)*
        }

        impl AdmissionPlugin {
            /// Every built-in plugin, in the order in which upstream runs them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name of the plugin, as the flags of kube-apiserver spell it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

plugins! {
    /// Does nothing. Off by default.
    AlwaysAdmit,
    /// Creates the namespaces that new objects name. Off by default.
    NamespaceAutoProvision,
    /// Refuses objects in namespaces that do not exist or are being deleted, and keeps system namespaces.
    NamespaceLifecycle,
    /// Refuses every write in namespaces that do not exist. Off by default.
    NamespaceExists,
    /// Refuses pods that must be apart in anything but their node. Off by default.
    LimitPodHardAntiAffinityTopology,
    /// Applies LimitRanges.
    LimitRanger,
    /// Gives pods a service account and its token.
    ServiceAccount,
    /// Limits a node to its own Node, lease and pods.
    NodeRestriction,
    /// Taints new nodes as not ready.
    TaintNodesByCondition,
    /// Has every image pulled anew, so that pods need the right to pull it. Off by default.
    AlwaysPullImages,
    /// Refuses pods that violate what the labels of their namespace allow, and warns of workloads that do.
    PodSecurity,
    /// Gives pods the node selector that an annotation of their namespace names. Off by default.
    PodNodeSelector,
    /// Computes the priority of pods from their PriorityClass.
    Priority,
    /// Lets pods tolerate failing nodes for five minutes.
    DefaultTolerationSeconds,
    /// Lets pods tolerate taints that are called as the extended resources that they ask for. Off by default.
    ExtendedResourceToleration,
    /// Gives claims the default StorageClass.
    DefaultStorageClass,
    /// Gives claims and volumes the finalizers that keep them while they are in use.
    StorageObjectInUseProtection,
    /// Keeps PodGroups while pods are in them. PodGroups are not served, as upstream does not by default.
    PodGroupProtection,
    /// Refuses owner references by users who may not delete the object or keep its owner. Off by default.
    OwnerReferencesPermissionEnforcement,
    /// Refuses to grow claims whose StorageClass does not allow it.
    PersistentVolumeClaimResize,
    /// Applies the overhead and placement of RuntimeClasses to pods.
    RuntimeClass,
    /// Checks who approves certificate signing requests.
    CertificateApproval,
    /// Checks who signs certificate signing requests.
    CertificateSigning,
    /// Checks who attests for ClusterTrustBundles of a signer. These are not served, as upstream does not by default.
    ClusterTrustBundleAttest,
    /// Refuses requests for client certificates of `system:masters`.
    CertificateSubjectRestriction,
    /// Gives ingresses the default IngressClass.
    DefaultIngressClass,
    /// Refuses Services that take further external addresses. Off by default.
    DenyServiceExternalIPs,
    /// Gives pods the zone and the region of their node as labels.
    PodTopologyLabels,
    /// Checks that the Workload of a PodGroup exists. Neither is served, as upstream does not by default.
    PodGroupWorkloadExists,
    /// Refuses changes of pods that their node does not declare to support.
    NodeDeclaredFeatureValidator,
    /// Checks Jobs that belong to a Workload. Workloads are not served, as upstream does not by default.
    JobValidation,
    /// Refuses to resize pods beyond what their node has.
    PodResizeValidator,
    /// Applies MutatingAdmissionPolicies.
    MutatingAdmissionPolicy,
    /// Calls mutating webhooks.
    MutatingAdmissionWebhook,
    /// Applies ValidatingAdmissionPolicies.
    ValidatingAdmissionPolicy,
    /// Calls validating webhooks.
    ValidatingAdmissionWebhook,
    /// Applies ResourceQuotas.
    ResourceQuota,
    /// Refuses everything. Off by default.
    AlwaysDeny,
}

/// The plugins that are off by default.
const OPTIONAL: AdmissionPlugins = AdmissionPlugins(0)
    .with(AdmissionPlugin::AlwaysAdmit)
    .with(AdmissionPlugin::NamespaceAutoProvision)
    .with(AdmissionPlugin::NamespaceExists)
    .with(AdmissionPlugin::LimitPodHardAntiAffinityTopology)
    .with(AdmissionPlugin::AlwaysPullImages)
    .with(AdmissionPlugin::PodNodeSelector)
    .with(AdmissionPlugin::ExtendedResourceToleration)
    .with(AdmissionPlugin::OwnerReferencesPermissionEnforcement)
    .with(AdmissionPlugin::DenyServiceExternalIPs)
    .with(AdmissionPlugin::AlwaysDeny);

/// Plugins of upstream that are off by default and need a configuration file of their own.
const UNAVAILABLE: [&str; 3] = ["EventRateLimit", "ImagePolicyWebhook", "PodTolerationRestriction"];

impl AdmissionPlugin {
    const fn bit(self) -> u64 {
        1 << self as u64
    }
}

impl fmt::Display for AdmissionPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no built-in admission plugin has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", explain(.name))]
pub struct UnknownPlugin {
    name: String,
}

fn explain(name: &str) -> String {
    if UNAVAILABLE.contains(&name) {
        return format!(
            "admission plugin {name:?} is not available: kube-apiserver reads its configuration from a file, and there is \
             no such file here; a webhook or a ValidatingAdmissionPolicy may do the same"
        );
    }
    format!("unknown admission plugin {name:?}; the plugins are {}", names())
}

fn names() -> String {
    let names: Vec<&str> = AdmissionPlugin::ALL.iter().map(|plugin| plugin.name()).collect();
    names.join(", ")
}

impl FromStr for AdmissionPlugin {
    type Err = UnknownPlugin;

    fn from_str(name: &str) -> Result<Self, UnknownPlugin> {
        let found = Self::ALL.iter().copied().find(|plugin| plugin.name() == name);
        found.ok_or_else(|| UnknownPlugin { name: name.to_owned() })
    }
}

/// Which admission plugins a server runs: the default is kube-apiserver's default with the plugin NodeRestriction, as
/// kubeadm sets it up.
///
/// ```
/// use windlass_server::{AdmissionPlugin, AdmissionPlugins};
///
/// let plugins = AdmissionPlugins::default().without(AdmissionPlugin::ServiceAccount);
/// assert!(!plugins.contains(AdmissionPlugin::ServiceAccount));
/// assert!(plugins.contains("NodeRestriction".parse()?));
/// # Ok::<(), windlass_server::UnknownPlugin>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct AdmissionPlugins(u64);

impl AdmissionPlugins {
    /// These and another one.
    pub const fn with(self, plugin: AdmissionPlugin) -> Self {
        Self(self.0 | plugin.bit())
    }

    /// These without one.
    pub const fn without(self, plugin: AdmissionPlugin) -> Self {
        Self(self.0 & !plugin.bit())
    }

    /// Whether a plugin is among these.
    pub const fn contains(self, plugin: AdmissionPlugin) -> bool {
        self.0 & plugin.bit() != 0
    }

    /// Whether any of these is off by default.
    pub(crate) const fn has_optional(self) -> bool {
        self.0 & OPTIONAL.0 != 0
    }
}

impl Default for AdmissionPlugins {
    fn default() -> Self {
        let all = AdmissionPlugin::ALL.iter().fold(Self(0), |all, plugin| all.with(*plugin));
        Self(all.0 & !OPTIONAL.0)
    }
}

impl fmt::Debug for AdmissionPlugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(AdmissionPlugin::ALL.iter().filter(|plugin| self.contains(**plugin))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams_and_unknown_ones_are_explained() {
        for plugin in AdmissionPlugin::ALL {
            assert_eq!(plugin.name().parse(), Ok(*plugin));
        }
        let error = "Serviceaccount".parse::<AdmissionPlugin>().expect_err("unknown").to_string();
        assert!(
            error.starts_with("unknown admission plugin \"Serviceaccount\"; the plugins are AlwaysAdmit, "),
            "{error}"
        );
        assert!(error.ends_with(", ResourceQuota, AlwaysDeny"), "{error}");
        for name in ["EventRateLimit", "ImagePolicyWebhook", "PodTolerationRestriction"] {
            let error = name.parse::<AdmissionPlugin>().expect_err("not available").to_string();
            assert!(error.starts_with(&format!("admission plugin \"{name}\" is not available: ")), "{error}");
        }
    }

    /// `DefaultOffAdmissionPlugins` of `pkg/kubeapiserver/options/plugins.go`, but NodeRestriction.
    #[test]
    fn plugins_that_upstream_leaves_off_are_off() {
        let default = AdmissionPlugins::default();
        let off = AdmissionPlugin::ALL.iter().filter(|plugin| !default.contains(**plugin)).map(|plugin| plugin.name());
        let expected = [
            "AlwaysAdmit",
            "NamespaceAutoProvision",
            "NamespaceExists",
            "LimitPodHardAntiAffinityTopology",
            "AlwaysPullImages",
            "PodNodeSelector",
            "ExtendedResourceToleration",
            "OwnerReferencesPermissionEnforcement",
            "DenyServiceExternalIPs",
            "AlwaysDeny",
        ];
        assert_eq!(off.collect::<Vec<_>>(), expected);
        assert!(!default.has_optional() && default.with(AdmissionPlugin::AlwaysDeny).has_optional());
    }

    #[test]
    fn plugins_are_switched_one_by_one() {
        let most = AdmissionPlugins::default().without(AdmissionPlugin::Priority);
        assert!(!most.contains(AdmissionPlugin::Priority) && most.contains(AdmissionPlugin::RuntimeClass));
        assert_eq!(most.with(AdmissionPlugin::Priority), AdmissionPlugins::default());
    }
}
