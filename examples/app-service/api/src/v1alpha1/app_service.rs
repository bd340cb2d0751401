// SPDX-License-Identifier: Apache-2.0

//! The kind AppService: a Deployment with so many Pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// The Deployment that an AppService stands for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "appcontroller.k8s.io",
    version = "v1alpha1",
    kind = "AppService",
    doc = "A Deployment with so many Pods.",
    plural = "appservices",
    namespaced,
    status = "AppServiceStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    // API servers ask for this in groups of k8s.io, which belong to Kubernetes itself.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
    // `kubectl scale appservice/NAME --replicas=3`, and HorizontalPodAutoscalers.
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.availableReplicas"),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".spec.deploymentName"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceSpec {
    /// The name of the Deployment, in the namespace of the AppService.
    #[schemars(length(min = 1, max = 63))]
    pub deployment_name: String,

    /// How many Pods the Deployment has.
    #[schemars(range(min = 0))]
    pub replicas: i32,
}

/// What became of the Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceStatus {
    /// How many Pods of the Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,

    /// `Ready` says whether all replicas are available; its reason says why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
