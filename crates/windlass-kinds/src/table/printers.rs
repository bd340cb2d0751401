//! Cells of built-in kinds, one function per kind. Mirrors `pkg/printers/internalversion/printers.go`,
//! always in its wide form: clients hide columns by priority.

mod cluster;
mod network;
mod pod;
mod storage;
mod workload;

use serde_json::{Map, Value};

use super::Row;
use super::access::{self, View};
use crate::resource::Resource;

/// The row of an object.
pub(super) fn row(resource: &Resource, view: &View<'_>) -> Row {
    if &*resource.kind == "Pod" && resource.group.is_empty() {
        return pod::pod(view);
    }
    cells(&resource.group, &resource.kind, view).unwrap_or_else(|| default(view)).into()
}

/// Whether the rows of a list have an order of their own.
pub(super) fn sorts(resource: &Resource) -> bool {
    &*resource.kind == "FlowSchema" && !resource.custom
}

/// The order of a list's rows, where it is not the list's own.
pub(super) fn sort(resource: &Resource, objects: &mut [&Value]) {
    if sorts(resource) {
        let key = |object: &&Value| {
            let name = access::text(object, "/metadata/name").to_owned();
            (access::int(object, "/spec/matchingPrecedence"), name)
        };
        objects.sort_by_cached_key(key);
    }
}

fn cells(group: &str, kind: &str, view: &View<'_>) -> Option<Vec<Value>> {
    let print: fn(&View<'_>) -> Vec<Value> = match (group, kind) {
        ("", "ConfigMap") => cluster::config_map,
        ("", "Secret") => cluster::secret,
        ("", "Namespace") => cluster::namespace,
        ("", "Node") => cluster::node,
        ("" | "events.k8s.io", "Event") => cluster::event,
        ("", "ComponentStatus") => cluster::component_status,
        ("", "ResourceQuota") => cluster::resource_quota,
        ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => name_and_age,
        ("", "PodTemplate") => workload::pod_template,
        ("", "ReplicationController") => workload::replication_controller,
        ("apps", "ReplicaSet") => workload::replica_set,
        ("apps", "Deployment") => workload::deployment,
        ("apps", "StatefulSet") => workload::stateful_set,
        ("apps", "DaemonSet") => workload::daemon_set,
        ("apps", "ControllerRevision") => workload::controller_revision,
        ("batch", "Job") => workload::job,
        ("batch", "CronJob") => workload::cron_job,
        ("autoscaling", "HorizontalPodAutoscaler") => workload::horizontal_pod_autoscaler,
        ("policy", "PodDisruptionBudget") => workload::pod_disruption_budget,
        ("", "Service") => network::service,
        ("", "Endpoints") => network::endpoints,
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice,
        ("networking.k8s.io", "Ingress") => network::ingress,
        ("networking.k8s.io", "IngressClass") => network::ingress_class,
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy,
        ("networking.k8s.io", "IPAddress") => network::ip_address,
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr,
        ("", "PersistentVolume") => storage::persistent_volume,
        ("", "PersistentVolumeClaim") => storage::persistent_volume_claim,
        ("storage.k8s.io", "StorageClass") => storage::storage_class,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::volume_attributes_class,
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment,
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver,
        ("storage.k8s.io", "CSINode") => storage::csi_node,
        ("resource.k8s.io", "ResourceClaim") => storage::resource_claim,
        ("resource.k8s.io", "ResourceSlice") => storage::resource_slice,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::role_binding,
        ("certificates.k8s.io", "CertificateSigningRequest") => cluster::certificate_signing_request,
        ("coordination.k8s.io", "Lease") => cluster::lease,
        ("scheduling.k8s.io", "PriorityClass") => cluster::priority_class,
        ("node.k8s.io", "RuntimeClass") => cluster::runtime_class,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => cluster::flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => cluster::priority_level,
        ("apiregistration.k8s.io", "APIService") => cluster::api_service,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            cluster::webhook_configuration
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => cluster::validating_admission_policy,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => cluster::mutating_admission_policy,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding") => {
            cluster::admission_policy_binding
        }
        _ => return None,
    };
    Some(print(view))
}

/// Name and creation time, for kinds without columns of their own.
fn default(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.text_or("/metadata/creationTimestamp", "0001-01-01T00:00:00Z").into()]
}

fn name_and_age(view: &View<'_>) -> Vec<Value> {
    vec![view.name(), view.age()]
}

/// `a=b,c=d`, or `<none>`.
fn labels(labels: Option<&Value>) -> String {
    let pairs = labels.and_then(Value::as_object).map(label_pairs).unwrap_or_default();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn label_pairs(map: &Map<String, Value>) -> Vec<String> {
    map.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
}

/// A label selector in the form selectors are written in queries; `None` for an unknown operator.
fn selector(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut requirements: Vec<(&str, String)> = Vec::new();
    if let Some(map) = selector.get("matchLabels").and_then(Value::as_object) {
        requirements.extend(map.keys().map(String::as_str).zip(label_pairs(map)));
    }
    for expression in access::list(selector, "/matchExpressions") {
        let key = access::text(expression, "/key");
        let mut values: Vec<&str> = access::list(expression, "/values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match access::text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        requirements.push((key, text));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

/// A label selector, or `<none>` if it has no requirements.
fn selector_or_none(value: Option<&Value>) -> String {
    match selector(value) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

/// The first three entries and how many there are beyond.
fn first_three(entries: &[String], fallback: &str) -> String {
    const SHOWN: usize = 3;
    match entries {
        [] => fallback.to_owned(),
        few if few.len() <= SHOWN => few.join(","),
        many => format!("{} + {} more...", many[..SHOWN].join(","), many.len() - SHOWN),
    }
}

/// A quantity; an absent one reads as zero.
fn quantity(value: Option<&Value>) -> String {
    value.map_or_else(|| "0".to_owned(), access::scalar)
}
