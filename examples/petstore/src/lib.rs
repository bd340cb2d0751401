// SPDX-License-Identifier: Apache-2.0

//! The petstore operator: keeps one entry of the pet store for every Pet.

pub mod controller;
pub mod service;
pub mod webhook;

use windlass::Manager;
use windlass::manager::{ManagerBuilder, ManagerError};

use controller::pet::Timing;
use service::client::StoreClient;

/// A manager with everything that the operator does.
pub fn operator(builder: ManagerBuilder, store: StoreClient, timing: Timing) -> Result<Manager, ManagerError> {
    let mut manager = builder.build()?;
    controller::add_to(&mut manager, store, timing)?;
    Ok(manager)
}
