// SPDX-License-Identifier: Apache-2.0

//! Version v1alpha1 of the group tsi.tiduyun.com.

pub mod ip_allocation;
pub mod ip_claim;
pub mod ip_pool;

pub use ip_allocation::{ClaimReference, IPAllocation, IPAllocationSpec};
pub use ip_claim::{IPClaim, IPClaimSpec, IPClaimStatus};
pub use ip_pool::{IPPool, IPPoolSpec, IPPoolStatus};
