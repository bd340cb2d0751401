// SPDX-License-Identifier: Apache-2.0

//! What the operator reconciles: one module for each controller.

pub mod pet;

use windlass::Manager;
use windlass::manager::ManagerError;

use crate::service::client::StoreClient;

/// Adds all controllers to the manager.
pub fn add_to(manager: &mut Manager, store: StoreClient, timing: pet::Timing) -> Result<(), ManagerError> {
    manager.add(pet::controller(store, timing))?;
    Ok(())
}
