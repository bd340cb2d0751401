//! Which strategy a built-in kind has, and its flags: what of upstream's strategies takes no code.

use crate::crd;
use crate::strategy::Flag::{
    self, AnyFinalizer, CreateOnUpdate, Generation, LabelName, OrphansDependents, PathSegmentName, VersionedUpdate,
};
use crate::strategy::{
    self, Flags, Strategy, admission_policy, api_service, autoscaler, certificate, config_map, daemon_set, deployment,
    devices, disruption, endpoints, event, flow_control, job, lease, namespace, networking, node, persistent_volume,
    persistent_volume_claim, pod, quota, rbac, replication_controller, secret, service, service_account, service_cidr,
    stateful_set, storage, webhook,
};

/// What is known about a built-in kind besides its schema.
pub struct BuiltinKind {
    group: &'static str,
    kind: &'static str,
    /// How its objects behave.
    pub strategy: &'static dyn Strategy,
    /// What takes no code.
    pub flags: Flags,
}

const fn row(
    group: &'static str,
    kind: &'static str,
    strategy: &'static dyn Strategy,
    flags: &'static [Flag],
) -> BuiltinKind {
    BuiltinKind { group, kind, strategy, flags: Flags::new(flags) }
}

impl BuiltinKind {
    /// A kind that is not in the table, and has no flags.
    pub const fn new(strategy: &'static dyn Strategy) -> Self {
        row("", "", strategy, &[])
    }
}

static STANDARD: BuiltinKind = BuiltinKind::new(&strategy::Standard);

#[rustfmt::skip]
static KINDS: &[BuiltinKind] = &[
    row("apiextensions.k8s.io", "CustomResourceDefinition", &crd::definition::Definition, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("", "ConfigMap", &config_map::ConfigMap, &[]),
    row("", "Secret", &secret::Secret, &[]),
    row("", "Namespace", &namespace::Namespace, &[LabelName]),
    row("", "Service", &service::Service, &[LabelName, CreateOnUpdate]),
    row("", "ServiceAccount", &service_account::ServiceAccount, &[]),
    row("", "Pod", &pod::Pod, &[Generation]),
    row("", "PersistentVolumeClaim", &persistent_volume_claim::PersistentVolumeClaim, &[]),
    row("", "PodTemplate", &replication_controller::PodTemplate, &[Generation]),
    row("", "ReplicationController", &replication_controller::ReplicationController, &[Generation, OrphansDependents]),
    row("", "LimitRange", &quota::LimitRange, &[CreateOnUpdate]),
    row("", "ResourceQuota", &quota::ResourceQuota, &[]),
    row("apps", "Deployment", &deployment::Deployment, &[Generation]),
    row("apps", "ReplicaSet", &deployment::ReplicaSet, &[Generation]),
    row("apps", "StatefulSet", &stateful_set::StatefulSet, &[LabelName, Generation]),
    row("apps", "ControllerRevision", &stateful_set::ControllerRevision, &[]),
    row("apps", "DaemonSet", &daemon_set::DaemonSet, &[Generation]),
    row("batch", "Job", &job::Job, &[Generation, OrphansDependents]),
    row("batch", "CronJob", &job::CronJob, &[Generation]),
    row("networking.k8s.io", "Ingress", &networking::Ingress, &[Generation]),
    row("networking.k8s.io", "IngressClass", &networking::IngressClass, &[Generation]),
    row("networking.k8s.io", "NetworkPolicy", &networking::NetworkPolicy, &[Generation]),
    row("networking.k8s.io", "ServiceCIDR", &service_cidr::ServiceCidr, &[]),
    row("networking.k8s.io", "IPAddress", &service_cidr::IpAddress, &[PathSegmentName]),
    row("resource.k8s.io", "ResourceClaim", &devices::ResourceClaim, &[]),
    row("resource.k8s.io", "ResourceClaimTemplate", &devices::ResourceClaimTemplate, &[]),
    row("resource.k8s.io", "DeviceClass", &devices::DeviceClass, &[Generation]),
    row("resource.k8s.io", "ResourceSlice", &devices::ResourceSlice, &[Generation]),
    row("rbac.authorization.k8s.io", "Role", &rbac::Role { namespaced: true }, &[PathSegmentName, CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "ClusterRole", &rbac::Role { namespaced: false }, &[PathSegmentName, CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "RoleBinding", &rbac::RoleBinding { namespaced: true }, &[PathSegmentName, CreateOnUpdate]),
    row("rbac.authorization.k8s.io", "ClusterRoleBinding", &rbac::RoleBinding { namespaced: false }, &[PathSegmentName, CreateOnUpdate]),
    row("policy", "PodDisruptionBudget", &disruption::PodDisruptionBudget, &[VersionedUpdate, Generation]),
    row("scheduling.k8s.io", "PriorityClass", &disruption::PriorityClass, &[Generation]),
    row("node.k8s.io", "RuntimeClass", &disruption::RuntimeClass, &[CreateOnUpdate, VersionedUpdate]),
    row("autoscaling", "HorizontalPodAutoscaler", &autoscaler::HorizontalPodAutoscaler, &[]),
    row("", "Node", &node::Node, &[]),
    row("", "PersistentVolume", &persistent_volume::PersistentVolume, &[]),
    row("", "Endpoints", &endpoints::Endpoints, &[CreateOnUpdate]),
    row("discovery.k8s.io", "EndpointSlice", &endpoints::EndpointSlice, &[Generation]),
    row("storage.k8s.io", "StorageClass", &storage::StorageClass, &[]),
    row("storage.k8s.io", "CSIDriver", &storage::CsiDriver, &[VersionedUpdate]),
    row("storage.k8s.io", "CSINode", &storage::CsiNode, &[VersionedUpdate]),
    row("storage.k8s.io", "VolumeAttachment", &storage::VolumeAttachment, &[VersionedUpdate]),
    row("storage.k8s.io", "VolumeAttributesClass", &storage::VolumeAttributesClass, &[]),
    row("storage.k8s.io", "CSIStorageCapacity", &storage::CsiStorageCapacity, &[VersionedUpdate]),
    row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", &webhook::WebhookConfiguration { mutating: false }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("admissionregistration.k8s.io", "MutatingWebhookConfiguration", &webhook::WebhookConfiguration { mutating: true }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", &admission_policy::AdmissionPolicy { mutating: false }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("admissionregistration.k8s.io", "MutatingAdmissionPolicy", &admission_policy::AdmissionPolicy { mutating: true }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", &admission_policy::AdmissionPolicyBinding { mutating: false }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", &admission_policy::AdmissionPolicyBinding { mutating: true }, &[AnyFinalizer, VersionedUpdate, Generation]),
    row("apiregistration.k8s.io", "APIService", &api_service::ApiService, &[PathSegmentName, AnyFinalizer, VersionedUpdate]),
    row("certificates.k8s.io", "CertificateSigningRequest", &certificate::CertificateSigningRequest, &[PathSegmentName]),
    row("flowcontrol.apiserver.k8s.io", "FlowSchema", &flow_control::FlowSchema, &[Generation]),
    row("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", &flow_control::PriorityLevel, &[Generation]),
    row("", "Event", &event::Event, &[CreateOnUpdate]),
    row("events.k8s.io", "Event", &event::StrictEvent, &[CreateOnUpdate]),
    row("coordination.k8s.io", "Lease", &lease::Lease, &[AnyFinalizer, CreateOnUpdate, VersionedUpdate]),
];

/// What is known about a built-in kind.
pub fn builtin_kind(group: &str, kind: &str) -> &'static BuiltinKind {
    KINDS.iter().find(|row| (row.group, row.kind) == (group, kind)).unwrap_or(&STANDARD)
}

/// The strategy of a built-in kind.
pub fn strategy_of(group: &str, kind: &str) -> &'static dyn Strategy {
    builtin_kind(group, kind).strategy
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::resource::builtins;

    #[test]
    fn each_row_is_of_another_kind_that_is_served() {
        let served: BTreeSet<(&str, &str)> = builtins().iter().map(|one| (&*one.group, &*one.kind)).collect();
        let mut seen = BTreeSet::new();
        for BuiltinKind { group, kind, .. } in KINDS {
            assert!(served.contains(&(group, kind)), "{group} {kind}");
            assert!(seen.insert((group, kind)), "{group} {kind}");
        }
    }
}
