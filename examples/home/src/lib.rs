// SPDX-License-Identifier: Apache-2.0

//! The home operator.

pub mod controller;
pub mod webhook;

use windlass::Manager;
use windlass::manager::{ManagerBuilder, ManagerError};

/// A manager with everything that the operator does.
pub fn operator(builder: ManagerBuilder) -> Result<Manager, ManagerError> {
    let mut manager = builder.build()?;
    controller::add_to(&mut manager)?;
    Ok(manager)
}
