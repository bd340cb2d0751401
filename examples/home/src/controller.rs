// SPDX-License-Identifier: Apache-2.0

//! What the operator reconciles: one module for each controller.

pub mod home;

use windlass::Manager;
use windlass::manager::ManagerError;

/// Adds all controllers to the manager.
pub fn add_to(manager: &mut Manager) -> Result<(), ManagerError> {
    manager.add(home::controller())?;
    Ok(())
}
