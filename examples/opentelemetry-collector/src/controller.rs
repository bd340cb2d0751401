// SPDX-License-Identifier: Apache-2.0

//! What the operator reconciles: one module for each controller.

pub mod open_telemetry_collector;

use windlass::Manager;
use windlass::manager::ManagerError;

/// Adds all controllers to the manager.
pub fn add_to(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(open_telemetry_collector::controller())?;
    Ok(())
}
