//! Objects are stored in one version of their kind and may be served in several.
//!
//! Most kinds have one version, and then stored bytes are served as they are. Built-in kinds with two
//! (HorizontalPodAutoscaler, Event) are handled in their stored form throughout; a custom resource is
//! defaulted and validated in the version of the request and converted when it is stored or read.

mod webhook;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use windlass_store::Revision;

use crate::api::Api;
use crate::catalog::{Behaviour, Served};
use crate::codec::typed::normalize;
use crate::codec::{json, write};
use crate::effort;
use crate::schema::default;
use crate::status::Status;
use windlass_kinds::crd::{Conversion, ConversionWebhook, CustomKind, CustomVersion};
use windlass_kinds::strategy::conversion;

/// Whether the served version is the stored one.
pub(crate) fn is_stored(served: &Served) -> bool {
    match &served.behaviour {
        Behaviour::Builtin(_) => conversion::stored_as(&served.group, &served.version, &served.kind).is_none(),
        Behaviour::Custom(kind) => kind.storage_version().name == served.version,
        Behaviour::Computed(_) => true,
    }
}

/// Whether an object that was last written at `revision` can be served as it is stored: in the served
/// version, not older than the schema that now applies to it, and with nothing to be filled in. What a dry run
/// shows is read back as if it had been stored (`copyInto` of upstream's `generic/registry/dryrun.go`).
pub(crate) fn as_is(served: &Served, revision: Revision) -> bool {
    revision > served.current_since && is_stored(served) && !shows_status(served)
}

/// Whether objects are stored without a status that reading them fills in.
pub(crate) fn shows_status(served: &Served) -> bool {
    served.custom().is_some_and(|kind| kind.storage_version().shows_status)
}

/// A stored object as bytes in the served version.
pub(crate) async fn bytes(api: &Api, served: &Served, stored: &Bytes, revision: Revision) -> Result<Bytes, Status> {
    if as_is(served, revision) {
        return Ok(stored.clone());
    }
    Ok(write::to_vec(&to_served(api, served, stored).await?).into())
}

/// A stored object in the served version.
pub(crate) async fn to_served(api: &Api, served: &Served, stored: &[u8]) -> Result<Value, Status> {
    api.offload.rest_of_request(served.qualified(), effort::is_large_read(stored.len())).await;
    let mut value = decode(stored)?;
    match &served.behaviour {
        Behaviour::Builtin(_) => builtin_to_served(served, value),
        Behaviour::Computed(_) => Ok(value),
        Behaviour::Custom(kind) => {
            kind.from_storage(&mut value);
            convert(api, kind, std::slice::from_mut(&mut value), &served.version).await?;
            Ok(value)
        }
    }
}

/// Stored objects in the served version. A webhook that converts is asked once for all.
pub(crate) async fn all_to_served<'a>(
    api: &Api,
    served: &Served,
    stored: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Vec<Value>, Status> {
    api.offload.rest_of_request(served.qualified(), effort::is_large_read(stored.clone().map(<[u8]>::len).sum())).await;
    let values = stored.map(decode);
    match &served.behaviour {
        Behaviour::Builtin(_) => values.map(|value| builtin_to_served(served, value?)).collect(),
        Behaviour::Computed(_) => values.collect(),
        Behaviour::Custom(kind) => {
            let mut values = values.collect::<Result<Vec<Value>, Status>>()?;
            for value in &mut values {
                kind.from_storage(value);
            }
            convert(api, kind, &mut values, &served.version).await?;
            Ok(values)
        }
    }
}

fn builtin_to_served(served: &Served, mut value: Value) -> Result<Value, Status> {
    if is_stored(served) {
        return Ok(value);
    }
    conversion::from_storage(&served.group, &served.version, &served.kind, &mut value);
    normalize(value, &served.schema()).map_err(Status::internal)
}

fn decode(stored: &[u8]) -> Result<Value, Status> {
    match json::parse(stored) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => Err(Status::internal(format!("a stored object cannot be read: {error}"))),
    }
}

/// An object of the served version in the form that strategies handle.
pub(crate) fn into_handled(served: &Served, mut object: Value) -> Value {
    if matches!(served.behaviour, Behaviour::Builtin(_)) && !is_stored(served) {
        conversion::to_storage(&served.group, &served.version, &served.kind, &mut object);
    }
    object
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
pub(crate) async fn to_stored<'a>(api: &Api, served: &Served, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
    match &served.behaviour {
        Behaviour::Custom(kind) if !is_stored(served) => {
            let mut object = object.clone();
            let storage = kind.storage_version();
            convert(api, kind, std::slice::from_mut(&mut object), &storage.name).await?;
            // What is stored is served as it is, so it has the defaults of its own version.
            default::apply(&mut object, &storage.schema());
            Ok(Cow::Owned(object))
        }
        _ => Ok(Cow::Borrowed(object)),
    }
}

/// An object of one served version in another served version of its kind.
pub(crate) async fn between(api: &Api, from: &Served, to: &Served, mut object: Value) -> Result<Value, Status> {
    match &from.behaviour {
        Behaviour::Builtin(_) => {
            conversion::to_storage(&from.group, &from.version, &from.kind, &mut object);
            builtin_to_served(to, object)
        }
        Behaviour::Custom(kind) => {
            convert(api, kind, std::slice::from_mut(&mut object), &to.version).await?;
            Ok(object)
        }
        Behaviour::Computed(_) => Ok(object),
    }
}

/// A custom resource in another version of its kind, as the kind's webhook makes it: with what that version
/// does not know.
pub(crate) async fn as_converted(api: &Api, kind: &CustomKind, object: Value, version: &str) -> Result<Value, Status> {
    let (Some(version), Conversion::Webhook(webhook)) = (kind.version(version), &kind.conversion) else {
        return Ok(object);
    };
    let converted = Box::pin(webhook::convert(api, webhook, vec![object], version)).await?;
    Ok(converted.into_iter().next().unwrap_or_default())
}

/// Converts custom resources to another version of their kind.
async fn convert(api: &Api, kind: &CustomKind, objects: &mut [Value], version: &str) -> Result<(), Status> {
    let Some(version) = kind.version(version) else { return Ok(()) };
    match &kind.conversion {
        Conversion::None => objects.iter_mut().for_each(|object| kind.convert(object, version)),
        // Boxed: few requests wait for a webhook, and all would be as large as one that does.
        Conversion::Webhook(webhook) => Box::pin(ask(api, kind, webhook, objects, version)).await?,
    }
    Ok(())
}

async fn ask(
    api: &Api,
    kind: &CustomKind,
    webhook: &ConversionWebhook,
    objects: &mut [Value],
    version: &CustomVersion,
) -> Result<(), Status> {
    let others = |object: &&mut Value| {
        object.get("apiVersion").and_then(Value::as_str).unwrap_or_default() != &*version.api_version
    };
    let mut others: Vec<&mut Value> = objects.iter_mut().filter(others).collect();
    if others.is_empty() {
        return Ok(());
    }
    let sent = others.iter_mut().map(|object| std::mem::take(*object)).collect();
    let converted = webhook::convert(api, webhook, sent, version).await?;
    for (object, mut converted) in others.into_iter().zip(converted) {
        kind.decode(&mut converted, version);
        *object = converted;
    }
    Ok(())
}
