// SPDX-License-Identifier: Apache-2.0

//! The kind Foo, as Kubernetes' sample-controller declares it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Deployment that a Foo stands for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    doc = "A Deployment of nginx, as the sample-controller of Kubernetes has it.",
    plural = "foos",
    namespaced,
    status = "FooStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    // API servers ask for this in groups of k8s.io, which belong to Kubernetes itself.
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
    printcolumn(name = "Deployment", type_ = "string", json_path = ".spec.deploymentName"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment, in the namespace of the Foo.
    #[serde(default)]
    pub deployment_name: String,

    /// How many Pods the Deployment has. Without it, anybody may scale the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// What became of the Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// How many Pods of the Deployment are available.
    #[serde(default)]
    pub available_replicas: i32,
}
