// SPDX-License-Identifier: Apache-2.0

//! What the operator reconciles: one module for each controller.

pub mod ip_claim;
pub mod ip_pool;

use windlass::Manager;
use windlass::manager::ManagerError;

/// The label of an IPAllocation with the name of its pool: what a selector can ask for.
const POOL_LABEL: &str = "tsi.tiduyun.com/pool";

/// The label of an IPAllocation with the uid of its claim.
const CLAIM_LABEL: &str = "tsi.tiduyun.com/claim-uid";

/// Adds all controllers to the manager.
pub fn add_to(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(ip_claim::controller())?;
    manager.add(ip_pool::controller())?;
    Ok(())
}
