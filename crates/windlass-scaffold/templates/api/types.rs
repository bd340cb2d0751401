«header»//! The kind «kind».

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// The desired state of «article» «kind».
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "«group»",
    version = "«version»",
    kind = "«kind»",
    plural = "«plural»",
%% for short in short_names
    shortname = "«short»",
%% endfor
%% if namespaced
    namespaced,
%% endif
    status = "«kind»Status",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
%% if protected
    annotation("api-approved.kubernetes.io", "unapproved, experimental-only"),
%% endif
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct «kind»Spec {
    /// An example of a field: replace it with your own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foo: Option<String>,
}

/// The observed state of «article» «kind».
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct «kind»Status {
    /// `Ready` says whether the «kind» is as its spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
