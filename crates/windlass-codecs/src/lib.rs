//! How Kubernetes' kinds are read from JSON and written as JSON, compiled once.
//!
//! The types of `k8s-openapi` read and write themselves by generic functions, which the compiler makes anew in every crate
//! that uses them: for a Pod alone a megabyte of machine code. In unoptimised builds it does not make again what a
//! dependency already has. So the crates that work with many kinds have `use windlass_codecs as _;`, and get the functions
//! that this crate mentions instead of compiling them, once for the crate and once more for each of its tests.
//!
//! There is nothing to call. What is not used is not linked.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Mentions every way in which the kinds are read and written.
#[doc(hidden)]
pub fn compiled(text: &str) -> serde_json::Result<Vec<u8>> {
    macro_rules! each {
        ($($kind:ty),* $(,)?) => {{
            let mut all = Vec::new();
            $(all.extend(there_and_back::<$kind>(text)?);)*
            Ok(all)
        }};
    }
    each![
        ClusterRole,
        ClusterRoleBinding,
        ConfigMap,
        ControllerRevision,
        CronJob,
        CustomResourceDefinition,
        DaemonSet,
        Deployment,
        EndpointSlice,
        Endpoints,
        Event,
        HorizontalPodAutoscaler,
        Ingress,
        Job,
        Lease,
        MutatingWebhookConfiguration,
        Namespace,
        NetworkPolicy,
        Node,
        PersistentVolume,
        PersistentVolumeClaim,
        Pod,
        PodDisruptionBudget,
        ReplicaSet,
        ReplicationController,
        Role,
        RoleBinding,
        Scale,
        Secret,
        Service,
        ServiceAccount,
        StatefulSet,
        StorageClass,
        ValidatingWebhookConfiguration,
    ]
}

fn there_and_back<K: Serialize + DeserializeOwned>(text: &str) -> serde_json::Result<Vec<u8>> {
    let read: K = serde_json::from_str(text)?;
    let value: Value = serde_json::to_value(&read)?;
    let object: K = serde_json::from_value(value)?;
    let bytes = serde_json::to_vec(&object)?;
    let again: K = serde_json::from_slice(&bytes)?;
    serde_json::to_vec(&again)
}
