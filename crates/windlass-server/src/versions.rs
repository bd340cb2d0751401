//! Objects are stored in one version of their kind and may be served in several.
//!
//! Most kinds have one version, and then stored bytes are served as they are. Built-in kinds with two
//! (HorizontalPodAutoscaler, Event) are handled in their stored form throughout; a custom resource is
//! defaulted and validated in the version of the request and converted when it is stored or read.

use std::borrow::Cow;

use serde_json::Value;

use crate::catalog::{Behaviour, Served};
use crate::registry::strategy::conversion;
use crate::status::Status;

/// Whether the served version is the stored one.
pub fn is_stored(served: &Served) -> bool {
    match &served.behaviour {
        Behaviour::Builtin(_) => conversion::stored_as(&served.group, &served.version, &served.kind).is_none(),
        Behaviour::Custom(kind) => kind.is_storage(&served.version),
    }
}

/// A stored object in the served version.
pub fn to_served(served: &Served, stored: &[u8]) -> Result<Value, Status> {
    let mut value = crate::codec::json::parse(stored)
        .map_err(|error| Status::internal(format!("a stored object cannot be read: {error}")))?
        .value;
    match &served.behaviour {
        _ if is_stored(served) => {}
        Behaviour::Builtin(_) => conversion::from_storage(&served.group, &served.version, &served.kind, &mut value),
        Behaviour::Custom(kind) => value = kind.from_storage(&served.version, value)?,
    }
    Ok(value)
}

/// An object of the served version in the form that strategies handle.
pub fn to_handled<'a>(served: &Served, object: &'a Value) -> Cow<'a, Value> {
    match &served.behaviour {
        Behaviour::Builtin(_) if !is_stored(served) => {
            let mut object = object.clone();
            conversion::to_storage(&served.group, &served.version, &served.kind, &mut object);
            Cow::Owned(object)
        }
        _ => Cow::Borrowed(object),
    }
}

/// An object in the form that strategies handle in the served version.
pub fn handled_to_served<'a>(served: &Served, object: &'a Value) -> Cow<'a, Value> {
    match &served.behaviour {
        Behaviour::Builtin(_) if !is_stored(served) => {
            let mut object = object.clone();
            conversion::from_storage(&served.group, &served.version, &served.kind, &mut object);
            Cow::Owned(object)
        }
        _ => Cow::Borrowed(object),
    }
}

/// An object in the form that strategies handle in the version it is stored in.
pub fn to_stored<'a>(served: &Served, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
    match &served.behaviour {
        Behaviour::Custom(kind) if !is_stored(served) => {
            kind.to_storage(&served.version, object.clone()).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(object)),
    }
}
