// SPDX-License-Identifier: Apache-2.0

//! The kind IPPool: ranges of addresses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// The ranges that addresses are taken from.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tsi.tiduyun.com",
    version = "v1alpha1",
    kind = "IPPool",
    doc = "Ranges of addresses that claims get theirs from.",
    plural = "ippools",
    status = "IPPoolStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "CIDRs", type_ = "string", json_path = ".spec.cidrs"),
    printcolumn(name = "Capacity", type_ = "string", json_path = ".status.capacity"),
    printcolumn(name = "Allocated", type_ = "integer", json_path = ".status.allocated"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolSpec {
    /// Ranges of IPv4 and IPv6 addresses, as `10.0.0.0/24` and `fd00::/64`. A range that is removed gives no more
    /// addresses; claims keep those that they have.
    #[schemars(length(min = 1, max = 32), inner(length(max = 43)), transform = crd::items(crd::rule("isCIDR(self)").message("must be a CIDR such as 10.0.0.0/24 or fd00::/64")))]
    pub cidrs: Vec<String>,
}

/// How much of the pool is in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolStatus {
    /// How many addresses the ranges have. A text, because a range of IPv6 has more than any integer of JSON.
    #[serde(default)]
    pub capacity: String,

    /// How many addresses claims have.
    #[serde(default)]
    pub allocated: i64,

    /// How many of these are in no range any more.
    #[serde(default)]
    pub outside: i64,

    /// `Ready` says whether claims get addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
