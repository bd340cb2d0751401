//! Bodies become objects: decoded, typed against the kind's schema, complaints gathered.

use serde_json::Value;

use super::Context;
use crate::catalog::Served;
use crate::codec::body::{StrictError, strict_message, undecodable};
use crate::codec::negotiate::{self, Format};
use crate::codec::typed::decode_typed;
use crate::codec::unstructured;
use crate::codec::{self, Decoded, Expected};
use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::options::FieldValidation;
use crate::resource::internal_package;
use crate::schema::validate::embedded::metadata_problem;
use crate::schema::{Schema, builtin, prune};
use crate::status::{Qualified, Status};

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

/// An object after a patch was applied to it, and the unknown fields the patch brought in.
pub(super) fn patched(
    context: &Context,
    patch: &Patch<'_, impl Fn() -> Result<Value, Status>>,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let expected = Expected::from(&context.served.resource);
    if !expected.custom {
        return patched_view(patch, expected, &context.served.schema(), validation);
    }
    let decoded = Decoded { value: (patch.apply)()?, duplicates: Vec::new(), source: None };
    let typed = typed(context, decoded, expected, &context.served.schema())?;
    patch.outcome(Ok(typed), validation)
}

/// The same for an object of a built-in kind, which need not be that of the path: a Scale.
pub(super) fn patched_view(
    patch: &Patch<'_, impl Fn() -> Result<Value, Status>>,
    expected: Expected<'_>,
    schema: &Schema,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let decoded = Decoded { value: (patch.apply)()?, duplicates: Vec::new(), source: None };
    let decode = if patch.strategic.is_some() { converted } else { of_kind };
    patch.outcome(decode(decoded, expected, schema), validation)
}

/// A patch, as far as decoding its result is concerned.
pub(super) struct Patch<'a, F> {
    /// Applies it; asked again for the text of an error.
    pub apply: F,
    /// Duplicate keys of the patch itself.
    pub duplicates: &'a [StrictError],
    /// A strategic merge patch, which errors show instead of the patched object.
    pub strategic: Option<&'a Value>,
}

impl<F: Fn() -> Result<Value, Status>> Patch<'_, F> {
    /// The decoded object and what is tolerated of it, or why the patch is refused.
    fn outcome(
        &self,
        decoded: Result<(Value, Vec<StrictError>), String>,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), Status> {
        let (value, unknown) = match decoded {
            Ok(decoded) => decoded,
            Err(why) => return Err(self.refusal(why)?),
        };
        let mut strict = self.duplicates.to_vec();
        strict.extend(unknown);
        if validation == FieldValidation::Strict && !strict.is_empty() {
            return Err(self.refusal(strict_message(&strict))?);
        }
        Ok((value, strict.into_iter().map(|error| error.message).collect()))
    }

    fn refusal(&self, why: String) -> Result<Status, Status> {
        let shown = match self.strategic {
            Some(document) => shown(document),
            None => (self.apply)()?.to_string(),
        };
        let error = FieldError::invalid(&Path::new("patch"), shown, why);
        Ok(Status::invalid(Qualified { group: "", name: "" }, "", &FieldErrors(vec![error])))
    }
}

/// A strategic merge patch as errors show it, after merging has used up the directives at its root.
fn shown(document: &Value) -> String {
    let mut document = document.clone();
    if let Value::Object(map) = &mut document {
        map.retain(|key, _| key != "$patch" && key != "$retainKeys");
    }
    let mut shown = String::new();
    crate::patch::go_print(&document, &mut shown);
    shown
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
fn of_kind(
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

/// The body of a JSON, merge or strategic merge patch, and its duplicate keys.
pub(super) fn patch_document(context: &Context) -> Result<(Value, Vec<StrictError>), Status> {
    codec::body::read(&context.body, Format::Json)
        .map_err(|why| Status::bad_request(format!("error decoding patch: {why}")))
}

/// The configuration in the body of an apply: YAML or JSON, and not typed, since absence means something.
/// With it comes what a strict decoder does not like about it.
pub(super) fn applied(context: &Context) -> Result<(Value, Vec<String>), Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let (value, duplicates) = codec::body::read(&context.body, Format::Yaml)
        .map_err(|why| refuse(format!("error converting YAML to JSON: {why}")))?;
    match &value {
        Value::Object(_) | Value::Null => Ok((value, duplicates.into_iter().map(|error| error.message).collect())),
        other => {
            let found = codec::json::go_type_of(other);
            let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            Err(refuse(format!("error unmarshaling JSON: while decoding JSON: {why}")))
        }
    }
}

/// Refuses an apply for what a strict decoder does not like about it: after everything else.
pub(super) fn strictly_applied(complaints: &[String], validation: FieldValidation) -> Result<(), Status> {
    match complaints {
        [first, ..] if validation == FieldValidation::Strict => {
            Err(Status::bad_request(format!("error strict decoding patch: error converting YAML to JSON: {first}")))
        }
        _ => Ok(()),
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
