//! What objects use of the things that ResourceQuotas limit.
//!
//! An [`Evaluator`] measures the objects of one resource. Admission asks it what a write would add, the
//! controller of quotas what there is; neither knows how anything is measured. Mirrors upstream's
//! `pkg/quota/v1/evaluator` and `apiserver/pkg/quota/v1/generic`.

mod claims;
pub(crate) mod pods;
mod scope;
mod services;

pub use pods::together;
pub use scope::Scope;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::validation::access::Access as _;
use crate::validation::quantity::Quantity;

/// Amounts by the name that a quota gives them: `pods`, `requests.cpu`, `count/deployments.apps`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Measures the objects of one resource.
///
/// ```
/// use jiff::Timestamp;
/// use windlass_kinds::quota::Evaluator;
///
/// let services = Evaluator::of("", "services").expect("services are limited");
/// let used = services.usage(&serde_json::json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}), Timestamp::now());
/// assert_eq!(used["services.loadbalancers"].to_string(), "1");
/// assert!(services.measures("services.nodeports") && !services.measures("pods"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// Counts pods and what they ask for.
    Pods,
    /// Counts services, their node ports and load balancers.
    Services,
    /// Counts persistent volume claims and the storage they ask for, altogether and by class.
    VolumeClaims,
    /// Counts resource claims and the devices they ask for by class.
    DeviceClaims,
    /// Counts objects, whatever is in them.
    Objects {
        /// The name of the count: `count/secrets`, `count/deployments.apps`.
        count: String,
        /// The older name of the same, for a few kinds.
        alias: Option<String>,
    },
}

/// What is done to an object, as far as quotas are concerned.
#[derive(Clone, Copy, Debug)]
pub enum Deed<'a> {
    /// It is made.
    Create,
    /// It is changed.
    Update {
        /// What it was.
        old: &'a Value,
        /// The subresource that is written, empty for the object itself.
        subresource: &'a str,
    },
}

impl Evaluator {
    /// What measures the objects of a resource; `None` for resources that quotas do not limit.
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        match (group, plural) {
            ("", "pods") => Some(Self::Pods),
            ("", "services") => Some(Self::Services),
            ("", "persistentvolumeclaims") => Some(Self::VolumeClaims),
            ("resource.k8s.io", "resourceclaims") => Some(Self::DeviceClaims),
            ("", "events" | "bindings" | "componentstatuses")
            | ("events.k8s.io", "events")
            | ("authentication.k8s.io" | "authorization.k8s.io", _) => None,
            ("", _) => {
                let alias = is_alias(plural).then(|| plural.to_owned());
                Some(Self::Objects { count: format!("count/{plural}"), alias })
            }
            _ => Some(Self::Objects { count: format!("count/{plural}.{group}"), alias: None }),
        }
    }

    /// The resource, as plural and group, whose objects use what a quota calls `name`.
    pub fn measured(name: &str) -> Option<(&str, &str)> {
        if Self::Pods.measures(name) {
            Some(("pods", ""))
        } else if Self::Services.measures(name) {
            Some(("services", ""))
        } else if Self::VolumeClaims.measures(name) {
            Some(("persistentvolumeclaims", ""))
        } else if Self::DeviceClaims.measures(name) {
            Some(("resourceclaims", "resource.k8s.io"))
        } else if let Some(counted) = name.strip_prefix("count/") {
            Some(counted.split_once('.').unwrap_or((counted, "")))
        } else {
            is_alias(name).then_some((name, ""))
        }
    }

    /// Whether objects of this resource use what a quota calls `name`.
    pub fn measures(&self, name: &str) -> bool {
        match self {
            Self::Pods => pods::measures(name),
            Self::Services => services::measures(name),
            Self::VolumeClaims => claims::measures_volumes(name),
            Self::DeviceClaims => claims::measures_devices(name),
            Self::Objects { count, alias } => count == name || alias.as_deref() == Some(name),
        }
    }

    /// Whether only the number of objects matters.
    pub fn counts_only(&self) -> bool {
        matches!(self, Self::Objects { .. })
    }

    /// What one object uses.
    pub fn usage(&self, object: &Value, now: Timestamp) -> Amounts {
        match self {
            Self::Pods => pods::usage(object, now),
            Self::Services => services::usage(object),
            Self::VolumeClaims => claims::volume_usage(object),
            Self::DeviceClaims => claims::device_usage(object),
            Self::Objects { count, alias } => {
                let names = std::iter::once(count).chain(alias);
                names.map(|name| (name.clone(), Quantity::from_int(1))).collect()
            }
        }
    }

    /// Whether an object is among those that a quota with these scopes is about.
    pub fn is_in_scope(&self, scopes: &[Scope], object: &Value) -> bool {
        scopes.iter().all(|scope| match self {
            Self::Pods => pods::is_in_scope(scope, object),
            Self::VolumeClaims => claims::is_in_scope(scope, object),
            _ => false,
        })
    }

    /// Whether a write can change what is used.
    pub fn concerns(&self, deed: Deed<'_>, object: &Value) -> bool {
        let Deed::Update { old, subresource } = deed else { return true };
        match (self, subresource) {
            (Self::Pods, "") => pods::is_terminating(object) != pods::is_terminating(old),
            (Self::Pods, "resize") | (Self::Services | Self::VolumeClaims | Self::DeviceClaims, "") => true,
            (Self::VolumeClaims, other) => other == "status",
            _ => false,
        }
    }

    /// Why an object may not be in a namespace whose quota limits `required`, whatever it uses.
    pub fn refusal(&self, required: &[&str], object: &Value) -> Option<String> {
        match self {
            Self::Pods => pods::unspecified(required, object),
            _ => None,
        }
    }
}

fn is_alias(name: &str) -> bool {
    matches!(name, "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas")
}

/// The amounts in a field of an object; what cannot be read is left out.
pub fn amounts(owner: &Value, field: &str) -> Amounts {
    let read = |(name, value): (&str, &Value)| Some((name.to_owned(), Quantity::from_value(value)?));
    owner.entries(field).into_iter().filter_map(read).collect()
}

/// Adds amounts to others.
pub fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let sum = total.entry(name).or_insert(Quantity::ZERO);
        *sum = sum.plus(&amount);
    }
}

/// Keeps the larger of each.
fn largest(most: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let known = most.entry(name).or_insert(amount);
        *known = (*known).max(amount);
    }
}

fn one() -> Quantity {
    Quantity::from_int(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(group: &str, plural: &str, object: &Value, expected: &Value) {
        let used = Evaluator::of(group, plural).expect("limited").usage(object, Timestamp::UNIX_EPOCH);
        let used: BTreeMap<String, String> =
            used.into_iter().map(|(name, amount)| (name, amount.to_string())).collect();
        assert_eq!(json!(used), *expected, "{object}");
    }

    #[test]
    fn names_say_what_is_measured() {
        let check =
            |name: &str, expected: Option<(&str, &str)>| assert_eq!(Evaluator::measured(name), expected, "{name}");
        check("count/deployments.apps", Some(("deployments", "apps")));
        check("count/widgets.example.com", Some(("widgets", "example.com")));
        check("count/secrets", Some(("secrets", "")));
        check("configmaps", Some(("configmaps", "")));
        check("count/pods", Some(("pods", "")));
        check("requests.cpu", Some(("pods", "")));
        check("requests.storage", Some(("persistentvolumeclaims", "")));
        check("gold.storageclass.storage.k8s.io/requests.storage", Some(("persistentvolumeclaims", "")));
        check("requests.nvidia.com/gpu", Some(("pods", "")));
        check("hugepages-2Mi", Some(("pods", "")));
        check("gpu.deviceclass.resource.k8s.io/devices", Some(("resourceclaims", "resource.k8s.io")));
        check("services.nodeports", Some(("services", "")));
        check("count/services", Some(("services", "")));
        check("storage", None);
    }

    #[test]
    fn events_and_reviews_are_free() {
        assert_eq!(Evaluator::of("", "events"), None);
        assert_eq!(Evaluator::of("events.k8s.io", "events"), None);
        assert_eq!(Evaluator::of("authorization.k8s.io", "localsubjectaccessreviews"), None);
    }

    #[test]
    fn objects_count_one() {
        check("", "secrets", &json!({}), &json!({"count/secrets": "1", "secrets": "1"}));
        check("example.com", "widgets", &json!({}), &json!({"count/widgets.example.com": "1"}));
    }

    #[test]
    fn services_use_ports() {
        let service =
            |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 1}, {"port": 2, "nodePort": 30001}]}});
        let used = |ports: &str, balancers: &str| json!({"count/services": "1", "services": "1", "services.nodeports": ports, "services.loadbalancers": balancers});
        check("", "services", &service("ClusterIP"), &used("0", "0"));
        check("", "services", &service("NodePort"), &used("2", "0"));
        check("", "services", &service("LoadBalancer"), &used("2", "1"));
        let mut frugal = service("LoadBalancer");
        frugal["spec"]["allocateLoadBalancerNodePorts"] = false.into();
        check("", "services", &frugal, &used("1", "1"));
    }

    #[test]
    fn claims_use_storage_of_their_class() {
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1.5Gi"}}},
                           "status": {"allocatedResources": {"storage": "2Gi"}}});
        check(
            "",
            "persistentvolumeclaims",
            &claim,
            &json!({
                "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2Gi",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
            }),
        );
    }

    #[test]
    fn claims_use_devices_of_their_class() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"name": "b", "firstAvailable": [
                {"name": "x", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
                {"name": "y", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"name": "z", "deviceClassName": "nic", "allocationMode": "All"},
            ]},
        ]}}});
        check(
            "resource.k8s.io",
            "resourceclaims",
            &claim,
            &json!({
                "count/resourceclaims.resource.k8s.io": "1",
                "gpu.deviceclass.resource.k8s.io/devices": "5",
                "nic.deviceclass.resource.k8s.io/devices": "32",
            }),
        );
    }
}
