«header»//! The «name» operator.

pub mod controller;
%% if webhooks
pub mod webhook;
%% endif

use windlass::Manager;
use windlass::manager::{ManagerBuilder, ManagerError};

/// A manager with everything that the operator does.
pub fn operator(builder: ManagerBuilder) -> Result<Manager, ManagerError> {
    let mut manager = builder.build()?;
    controller::add_to(&mut manager)?;
    Ok(manager)
}
