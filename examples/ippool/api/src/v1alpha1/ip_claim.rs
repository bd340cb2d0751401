// SPDX-License-Identifier: Apache-2.0

//! The kind IPClaim: somebody who needs an address.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// Which address is needed. A claim keeps the address that it has been given, so neither field can be changed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tsi.tiduyun.com",
    version = "v1alpha1",
    kind = "IPClaim",
    doc = "Somebody who needs an address.",
    plural = "ipclaims",
    namespaced,
    status = "IPClaimStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IPClaimSpec {
    /// The IPPool that the address is taken from.
    #[schemars(transform = crd::immutable)]
    pub pool: String,

    /// A certain address. Without it, the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39), transform = crd::rule("isIP(self)").message("must be an IP address"), transform = crd::immutable)]
    pub address: Option<String>,
}

/// The address of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPClaimStatus {
    /// The address, once the claim has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,

    /// `Ready` says whether the claim has an address; its reason says why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
