//! Kubernetes' own descriptions of its kinds, for `kubectl explain`.
//!
//! `k8s-openapi` has them in the JSON schemas of its types. They are made when a document is, and not kept. A definition
//! that none of these types refers to has no description; lists have what the server says of every list.

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1 as admissionregistration;
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::authentication::v1 as authentication;
use k8s_openapi::api::authorization::v1 as authorization;
use k8s_openapi::api::autoscaling::v1 as autoscaling_v1;
use k8s_openapi::api::autoscaling::v2 as autoscaling_v2;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::certificates::v1 as certificates;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::events::v1 as events;
use k8s_openapi::api::flowcontrol::v1 as flowcontrol;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::policy::v1 as policy;
use k8s_openapi::api::rbac::v1 as rbac;
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

/// A definition, and what makes its schema.
type Root = (fn() -> Cow<'static, str>, fn(&mut SchemaGenerator) -> Schema);

macro_rules! roots {
    ($($kind:ty),* $(,)?) => {
        &[$((<$kind as JsonSchema>::schema_name, <$kind as JsonSchema>::json_schema)),*]
    };
}

/// The types that all others are reached from: kinds, and what requests and answers of all kinds have in common.
const ROOTS: &[Root] = roots![
    admissionregistration::MutatingAdmissionPolicy,
    admissionregistration::MutatingAdmissionPolicyBinding,
    admissionregistration::MutatingWebhookConfiguration,
    admissionregistration::ValidatingAdmissionPolicy,
    admissionregistration::ValidatingAdmissionPolicyBinding,
    admissionregistration::ValidatingWebhookConfiguration,
    apps::ControllerRevision,
    apps::DaemonSet,
    apps::Deployment,
    apps::ReplicaSet,
    apps::StatefulSet,
    authentication::SelfSubjectReview,
    authentication::TokenRequest,
    authentication::TokenReview,
    authorization::LocalSubjectAccessReview,
    authorization::SelfSubjectAccessReview,
    authorization::SelfSubjectRulesReview,
    authorization::SubjectAccessReview,
    autoscaling_v1::HorizontalPodAutoscaler,
    autoscaling_v1::Scale,
    autoscaling_v2::HorizontalPodAutoscaler,
    batch::CronJob,
    batch::Job,
    certificates::CertificateSigningRequest,
    coordination::Lease,
    core_v1::Binding,
    core_v1::ComponentStatus,
    core_v1::ConfigMap,
    core_v1::Endpoints,
    core_v1::Event,
    core_v1::LimitRange,
    core_v1::Namespace,
    core_v1::Node,
    core_v1::PersistentVolume,
    core_v1::PersistentVolumeClaim,
    core_v1::Pod,
    core_v1::PodTemplate,
    core_v1::ReplicationController,
    core_v1::ResourceQuota,
    core_v1::Secret,
    core_v1::Service,
    core_v1::ServiceAccount,
    discovery::EndpointSlice,
    events::Event,
    flowcontrol::FlowSchema,
    flowcontrol::PriorityLevelConfiguration,
    networking::IPAddress,
    networking::Ingress,
    networking::IngressClass,
    networking::NetworkPolicy,
    networking::ServiceCIDR,
    node::RuntimeClass,
    policy::Eviction,
    policy::PodDisruptionBudget,
    rbac::ClusterRole,
    rbac::ClusterRoleBinding,
    rbac::Role,
    rbac::RoleBinding,
    resource::DeviceClass,
    resource::ResourceClaim,
    resource::ResourceClaimTemplate,
    resource::ResourceSlice,
    scheduling::PriorityClass,
    storage::CSIDriver,
    storage::CSINode,
    storage::CSIStorageCapacity,
    storage::StorageClass,
    storage::VolumeAttachment,
    storage::VolumeAttributesClass,
    apiextensions::CustomResourceDefinition,
    meta::APIGroup,
    meta::APIGroupList,
    meta::APIResource,
    meta::APIResourceList,
    meta::APIVersions,
    meta::DeleteOptions,
    meta::ListMeta,
    meta::ObjectMeta,
    meta::Patch,
    meta::Status,
    apiregistration::APIService,
    meta::WatchEvent<RawExtension>,
];

/// The schemas of these definitions and of those that they refer to.
pub(crate) fn describe(names: &BTreeSet<&'static str>) -> Map<String, Value> {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let mut described = Map::new();
    for (name, schema) in ROOTS {
        let name = name();
        if names.contains(&*name) && !generator.definitions().contains_key(&*name) {
            described.insert(name.into_owned(), schema(&mut generator).to_value());
        }
    }
    described.append(&mut generator.take_definitions(false));
    described
}
