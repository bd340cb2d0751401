// SPDX-License-Identifier: Apache-2.0

//! The kind OpenTelemetryCollector: a collector, and its configuration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// How the collector is configured and run.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "opentelemetry.io",
    version = "v1alpha1",
    kind = "OpenTelemetryCollector",
    doc = "A collector of traces, metrics and logs.",
    plural = "opentelemetrycollectors",
    shortname = "otelcol",
    namespaced,
    status = "OpenTelemetryCollectorStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.availableReplicas"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryCollectorSpec {
    /// The collector's own configuration, as YAML. Its receivers say which ports the Service has.
    pub config: String,

    /// How many Pods there are.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,

    /// The image of the collector.
    #[serde(default = "collector")]
    pub image: String,
}

fn one() -> i32 {
    1
}

fn collector() -> String {
    "otel/opentelemetry-collector:0.115.1".into()
}

/// What of the collector works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryCollectorStatus {
    /// How many Pods are available.
    #[serde(default)]
    pub available_replicas: i32,

    /// `Ready` says whether all Pods run with the configuration of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
