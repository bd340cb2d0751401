//! Objects are stored in one version of their kind and may be served in several.
//!
//! Most kinds have one version, and then stored bytes are served as they are. Built-in kinds with two
//! (HorizontalPodAutoscaler, Event) are handled in their stored form throughout; a custom resource is
//! defaulted and validated in the version of the request and converted when it is stored or read.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use windlass_store::Revision;

use crate::api::Api;
use crate::catalog::{Behaviour, Served};
use crate::codec::typed::normalize;
use crate::codec::{json, write};
use crate::crd::Conversion;
use crate::registry::strategy::conversion;
use crate::status::Status;

/// Whether the served version is the stored one.
pub(crate) fn is_stored(served: &Served) -> bool {
    match &served.behaviour {
        Behaviour::Builtin(_) => conversion::stored_as(&served.group, &served.version, &served.kind).is_none(),
        Behaviour::Custom(kind) => kind.storage_version().name == served.version,
    }
}

/// Whether an object that was last written at `revision` can be served as it is stored: in the served
/// version, and not older than the schema that now applies to it.
pub(crate) fn as_is(served: &Served, revision: Revision) -> bool {
    revision > served.current_since && is_stored(served)
}

/// A stored object as bytes in the served version.
pub(crate) fn bytes(served: &Served, stored: &Bytes, revision: Revision) -> Result<Bytes, Status> {
    if as_is(served, revision) {
        return Ok(stored.clone());
    }
    Ok(write::to_vec(&to_served(served, stored)?).into())
}

/// A stored object in the served version.
pub(crate) fn to_served(served: &Served, stored: &[u8]) -> Result<Value, Status> {
    let mut value = json::parse(stored)
        .map_err(|error| Status::internal(format!("a stored object cannot be read: {error}")))?
        .value;
    match &served.behaviour {
        Behaviour::Builtin(_) if is_stored(served) => {}
        Behaviour::Builtin(_) => {
            conversion::from_storage(&served.group, &served.version, &served.kind, &mut value);
            value = normalize(value, served.schema()).map_err(Status::internal)?;
        }
        Behaviour::Custom(kind) => {
            kind.from_storage(&mut value);
            convert(served, &mut value, &served.version)?;
        }
    }
    Ok(value)
}

/// An object of the served version in the form that strategies handle.
pub(crate) fn to_handled<'a>(served: &Served, object: &'a Value) -> Cow<'a, Value> {
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
pub(crate) fn handled_to_served<'a>(served: &Served, object: &'a Value) -> Cow<'a, Value> {
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
pub(crate) fn to_stored<'a>(served: &Served, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
    match &served.behaviour {
        Behaviour::Custom(kind) if !is_stored(served) => {
            let mut object = object.clone();
            convert(served, &mut object, &kind.storage_version().name)?;
            Ok(Cow::Owned(object))
        }
        _ => Ok(Cow::Borrowed(object)),
    }
}

/// An object of one served version in another served version of its kind.
pub(crate) async fn between(_: &Api, from: &Served, to: &Served, mut object: Value) -> Result<Value, Status> {
    match &from.behaviour {
        Behaviour::Builtin(_) => {
            conversion::to_storage(&from.group, &from.version, &from.kind, &mut object);
            conversion::from_storage(&to.group, &to.version, &to.kind, &mut object);
        }
        Behaviour::Custom(_) => convert(from, &mut object, &to.version)?,
    }
    Ok(object)
}

/// Converts a custom resource to another version of its kind.
fn convert(served: &Served, object: &mut Value, version: &str) -> Result<(), Status> {
    let Some(kind) = served.custom() else { return Ok(()) };
    let Some(version) = kind.version(version) else { return Ok(()) };
    let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if let (Conversion::Webhook(_), true) = (&kind.conversion, from != &*version.api_version) {
        return Err(Status::internal(format!(
            "conversion webhook for {from}, Kind={} failed: this server does not call conversion webhooks",
            kind.kind
        )));
    }
    kind.convert(object, version);
    Ok(())
}
