// SPDX-License-Identifier: Apache-2.0

//! The kind IPAllocation: an address that a claim has.
//!
//! Its name is the address, and a name exists once. So the API server itself sees to it that no address is given twice:
//! not by two replicas of the operator, not by one that works with stale data, and not from two pools that overlap.
//! Kubernetes keeps the addresses of Services in the same way.

use std::net::IpAddr;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has the address.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tsi.tiduyun.com",
    version = "v1alpha1",
    kind = "IPAllocation",
    doc = "An address that a claim has.",
    plural = "ipallocations",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.claim.namespace"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claim.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IPAllocationSpec {
    /// The address.
    pub address: String,
    /// The IPPool that it was taken from.
    pub pool: String,
    /// The IPClaim that has it.
    pub claim: ClaimReference,
}

/// Names an IPClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity: a claim of the same name that comes later is another one.
    pub uid: String,
}

impl IPAllocation {
    /// The name of the object for an address: `10.0.0.1` is `10.0.0.1`, and `fd00::1` is
    /// `fd00-0000-0000-0000-0000-0000-0000-0001`, because names have no colons and an address has one name only.
    pub fn name_of(address: IpAddr) -> String {
        match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:04x}")).join("-"),
        }
    }
}
