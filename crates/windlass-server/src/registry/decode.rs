//! Bodies become objects: decoded, typed against the kind's schema, complaints gathered.

use serde_json::Value;

use super::Context;
use crate::codec::body::{StrictError, strict_message, undecodable};
use crate::codec::negotiate::{self, Format};
use crate::codec::typed::decode_typed;
use crate::codec::{self, Decoded, Expected};
use crate::field::quote;
use crate::options::FieldValidation;
use crate::schema::{Schema, builtin};
use crate::status::Status;

/// The object in the body, of the kind that the path names.
pub(super) fn object(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let served = std::sync::Arc::clone(&context.served);
    let expected = Expected::from(&served.resource);
    let format = negotiate::body_format(content_type(context), expected.custom)?;
    let decoded = codec::decode_body(&context.body, format, expected)?;
    let (value, strict) = typed(context, decoded, expected, served.schema())?;
    complain(context, validation, expected, strict)?;
    Ok(value)
}

/// The body as an object of another built-in kind: a Scale, a Binding, an Eviction.
pub(super) fn view(
    context: &mut Context,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let format = negotiate::body_format(content_type(context), false)?;
    let decoded = codec::decode_body(&context.body, format, expected)?;
    let id = builtin::by_kind(expected.group, expected.version, expected.kind);
    let schema = id.map(builtin::definition).ok_or_else(|| Status::internal("the kind has no schema"))?;
    let typed = decode_typed(decoded, schema).map_err(|why| undecodable(expected, &why))?;
    complain(context, validation, expected, typed.strict)?;
    Ok(typed.value)
}

/// An object after a patch was applied to it, and the unknown fields the patch brought in.
pub(super) fn patched(
    context: &Context,
    value: Value,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let expected = Expected::from(&context.served.resource);
    let decoded = Decoded { value, duplicates: Vec::new(), source: None };
    let (value, strict) = typed(context, decoded, expected, context.served.schema())?;
    if validation == FieldValidation::Strict && !strict.is_empty() {
        return Err(refused(expected, &strict));
    }
    Ok((value, strict.into_iter().map(|error| error.message).collect()))
}

fn typed(
    context: &Context,
    decoded: Decoded<'_>,
    expected: Expected<'_>,
    schema: &Schema,
) -> Result<(Value, Vec<StrictError>), Status> {
    let Some(kind) = context.served.custom() else {
        let typed = decode_typed(decoded, schema).map_err(|why| undecodable(expected, &why))?;
        return Ok((typed.value, typed.strict));
    };
    let Decoded { mut value, duplicates: mut strict, .. } = decoded;
    let version = kind.version(&context.served.version).unwrap_or_else(|| kind.storage_version());
    let unknown = kind.decode(&mut value, version);
    let unknown = unknown
        .into_iter()
        .map(|path| StrictError { message: format!("unknown field {}", quote(&path)), offset: usize::MAX });
    strict.extend(unknown);
    Ok((value, strict))
}

/// Refuses, warns of or ignores what a strict decoder does not like.
fn complain(
    context: &mut Context,
    validation: FieldValidation,
    expected: Expected<'_>,
    strict: Vec<StrictError>,
) -> Result<(), Status> {
    if validation == FieldValidation::Strict && !strict.is_empty() {
        return Err(refused(expected, &strict));
    }
    warn(context, validation, strict.into_iter().map(|error| error.message));
    Ok(())
}

fn refused(expected: Expected<'_>, strict: &[StrictError]) -> Status {
    undecodable(expected, &strict_message(strict))
}

/// Warns of what was dropped, if the client wants to know.
pub(super) fn warn(context: &mut Context, validation: FieldValidation, complaints: impl IntoIterator<Item = String>) {
    if validation == FieldValidation::Warn {
        context.warnings.extend(complaints);
    }
}

/// Refuses or warns of complaints about a patch itself.
pub(super) fn report(
    context: &mut Context,
    validation: FieldValidation,
    complaints: Vec<String>,
) -> Result<(), Status> {
    if validation == FieldValidation::Strict && !complaints.is_empty() {
        let all = complaints.join(", ");
        return Err(Status::bad_request(format!("strict decoding error: {all}")));
    }
    warn(context, validation, complaints);
    Ok(())
}

/// The body of a JSON, merge or strategic merge patch.
pub(super) fn patch_document(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let (value, duplicates) = codec::body::read(&context.body, Format::Json)
        .map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))?;
    report(context, validation, duplicates.into_iter().map(|error| error.message).collect())?;
    Ok(value)
}

/// The configuration in the body of an apply: YAML or JSON, and not typed, since absence means something.
pub(super) fn applied(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let (value, duplicates) = codec::body::read(&context.body, Format::Yaml)
        .map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))?;
    report(context, validation, duplicates.into_iter().map(|error| error.message).collect())?;
    Ok(value)
}

/// The `DeleteOptions` in the body; `None` if there is no body.
pub(super) fn delete_options(context: &Context) -> Result<Option<Value>, Status> {
    if context.body.is_empty() {
        return Ok(None);
    }
    let format = negotiate::body_format(content_type(context), false)?;
    codec::body::decode_delete_options(&context.body, format).map(Some)
}

fn content_type(context: &Context) -> Option<&str> {
    context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok())
}
