//! Objects are stored in one version of their kind and may be served in several.
//!
//! Most kinds have one version, and then stored bytes are served as they are. Two built-in kinds have
//! two (HorizontalPodAutoscaler and Event); custom resources may have any number.

use std::borrow::Cow;

use serde_json::Value;

use crate::catalog::{Behaviour, Served};
use crate::registry::strategy;
use crate::status::Status;

/// Whether the served version is the stored one.
pub fn is_stored(served: &Served) -> bool {
    match &served.behaviour {
        Behaviour::Builtin(_) => !strategy::is_converted(&served.group, &served.version, &served.kind),
        Behaviour::Custom(kind) => kind.is_storage(&served.version),
    }
}

/// A stored object in the served version.
pub fn to_served(served: &Served, stored: &[u8]) -> Result<Value, Status> {
    let value = crate::codec::json::parse(stored)
        .map_err(|error| Status::internal(format!("a stored object cannot be read: {error}")))?
        .value;
    match &served.behaviour {
        _ if is_stored(served) => Ok(value),
        Behaviour::Builtin(_) => Ok(strategy::from_storage(&served.group, &served.version, &served.kind, value)),
        Behaviour::Custom(kind) => kind.from_storage(&served.version, value),
    }
}

/// An object of the served version in the version it is stored in.
pub fn to_stored<'a>(served: &Served, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
    match &served.behaviour {
        _ if is_stored(served) => Ok(Cow::Borrowed(object)),
        Behaviour::Builtin(_) => {
            Ok(Cow::Owned(strategy::to_storage(&served.group, &served.version, &served.kind, object.clone())))
        }
        Behaviour::Custom(kind) => kind.to_storage(&served.version, object.clone()).map(Cow::Owned),
    }
}
