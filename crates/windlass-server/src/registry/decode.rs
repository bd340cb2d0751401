//! Bodies, and the results of patches, become objects: decoded, typed against the kind's schema, complaints gathered.

use serde_json::Value;

use super::Context;
use crate::catalog::Served;
use crate::codec::body::{StrictError, strict_message, undecodable};
use crate::codec::negotiate::{self, Format};
use crate::codec::typed::decode_typed;
use crate::codec::unstructured;
use crate::codec::{self, Decoded, Expected};
use crate::field::quote;
use crate::options::FieldValidation;
use crate::resource::internal_package;
use crate::schema::validate::embedded::metadata_problem;
use crate::schema::{Schema, builtin, prune};
use crate::status::Status;

/// The object in the body, of the kind that the path names.
pub(crate) fn object(context: &mut Context, validation: FieldValidation) -> Result<Value, Status> {
    let served = std::sync::Arc::clone(&context.served);
    let expected = Expected::from(&served.resource);
    let format = negotiate::body_format(content_type(context), expected.custom)?;
    let decoded = codec::decode_body(&context.body, format, expected).map_err(|mut status| {
        if expected.custom && validation == FieldValidation::Warn {
            status.warnings = unknown_version(&context.body, format, &served);
        }
        status
    })?;
    let (value, strict) = typed(context, decoded, expected, &served.schema())?;
    complain(context, validation, expected, strict)?;
    Ok(value)
}

/// A custom resource of a version that does not exist has no known fields; clients are warned of them
/// even though the version is why the body is refused. One of another version has that version's fields.
fn unknown_version(body: &[u8], format: Format, served: &Served) -> Vec<String> {
    let Ok((Value::Object(map), _)) = codec::body::read(body, format) else { return Vec::new() };
    let api_version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let versions = served.custom().map_or(&[][..], |kind| &kind.versions);
    if let Some(version) = versions.iter().find(|version| &*version.api_version == api_version) {
        if version.api_version.as_ref() == served.api_version() {
            return Vec::new();
        }
        let unknown = prune::unknown_fields(&Value::Object(map), &version.schema());
        return unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    }
    let known = ["apiVersion", "kind", "metadata"];
    map.keys().filter(|key| !known.contains(&key.as_str())).map(|key| format!("unknown field {}", quote(key))).collect()
}

/// The body as an object of another built-in kind: a Scale, a Binding, an Eviction.
pub(crate) fn view(
    context: &mut Context,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let format = negotiate::body_format(content_type(context), false)?;
    let decoded = codec::decode_body(&context.body, format, expected)?;
    // An older version that is still taken, as that of an Eviction, looks like v1.
    let id = [expected.version, "v1"].iter().find_map(|v| builtin::by_kind(expected.group, v, expected.kind));
    let schema = id.map(builtin::definition).ok_or_else(|| Status::internal("the kind has no schema"))?;
    let typed = decode_typed(decoded, schema).map_err(|why| undecodable(expected, &why))?;
    complain(context, validation, expected, typed.strict)?;
    Ok(typed.value)
}

/// The result of a strategic merge patch. It is copied into the Go type of its kind whatever kind it claims
/// to be of.
pub(super) fn converted(
    mut decoded: Decoded<'_>,
    expected: Expected<'_>,
    schema: &Schema,
) -> Result<(Value, Vec<StrictError>), String> {
    unstructured::convert(&mut decoded.value, schema)?;
    name_kind(&mut decoded.value, expected);
    let mut typed = decode_typed(decoded, schema)?;
    typed.strict.sort_by(|a, b| a.message.cmp(&b.message));
    Ok((typed.value, typed.strict))
}

/// The result of any other patch, which is decoded as the kind it claims to be of.
pub(super) fn of_kind(
    mut decoded: Decoded<'_>,
    expected: Expected<'_>,
    schema: &Schema,
) -> Result<(Value, Vec<StrictError>), String> {
    let Value::Object(map) = &decoded.value else {
        return decode_typed(decoded, schema).map(|typed| (typed.value, typed.strict));
    };
    let kind = codec::body::type_field(map, "kind")?;
    let api_version = codec::body::type_field(map, "apiVersion")?;
    let (group, version) = codec::body::parse_group_version(&api_version)?;
    let kind = if kind.is_empty() { expected.kind } else { kind.as_str() };
    if kind == expected.kind && api_version.is_empty() {
        // Upstream decodes into its internal type, whose fields no JSON names.
        let unknown = map.keys().filter(|key| !matches!(key.as_str(), "kind" | "apiVersion"));
        let unknown = unknown.map(|key| format!("unknown field {}", quote(key)));
        let unknown = unknown.map(|message| StrictError { message, offset: usize::MAX }).collect();
        return Ok((Value::Object(serde_json::Map::new()), unknown));
    }
    let Some(id) = builtin::by_kind(group, version, kind) else {
        return Err(codec::body::not_registered(kind, &api_version, codec::body::scheme_of(expected.group)));
    };
    if (kind, group) != (expected.kind, expected.group) {
        decode_typed(decoded, builtin::definition(id))?;
        let (from, to) = (internal_package(group), internal_package(expected.group));
        let from = if version.is_empty() { from } else { version };
        let (wanted, conversion) = (expected.kind, "unknown conversion");
        return Err(format!("converting ({from}.{kind}) to ({to}.{wanted}): {conversion}"));
    }
    name_kind(&mut decoded.value, expected);
    decode_typed(decoded, schema).map(|typed| (typed.value, typed.strict))
}

fn name_kind(value: &mut Value, expected: Expected<'_>) {
    if let Value::Object(map) = value {
        let group = if expected.group.is_empty() { String::new() } else { format!("{}/", expected.group) };
        map.insert("kind".into(), expected.kind.into());
        map.insert("apiVersion".into(), format!("{group}{}", expected.version).into());
    }
}

pub(super) fn typed(
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
    if let Some(why) = value.get("metadata").and_then(metadata_problem) {
        return Err(undecodable(expected, &why));
    }
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
        for complaint in complaints {
            // The YAML decoder says everything in one complaint.
            let lines = complaint.strip_prefix("yaml: unmarshal errors:\n").unwrap_or(&complaint).lines();
            context.warnings.extend(lines.map(|line| line.trim().to_owned()));
        }
    }
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
