//! A patch as data: how it is read from a body, what it makes of an object, and how the result is decoded.

use serde_json::{Map, Value};

use crate::codec::body::{StrictError, strict_message};
use crate::codec::negotiate::{self, Format, PatchType};
use crate::codec::{self, Decoded, Expected};
use crate::field::{FieldError, FieldErrors, Path};
use crate::options::{FieldValidation, WriteOptions};
use crate::patch::{json::JsonPatch, merge, strategic};
use crate::registry::update::check_identity;
use crate::registry::{Context, decode, ownership};
use crate::schema::Schema;
use crate::status::{Qualified, Status};

/// What a refusal shows instead of a Secret, as upstream's validation does.
const REDACTED: &str = "<secret contents redacted>";

/// The fields of an object that a patch of its status may change.
const STATUS_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The kind of patch that the `Content-Type` names.
pub(in crate::registry) fn patch_type(context: &Context) -> Result<PatchType, Status> {
    let content_type = context.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    negotiate::patch_type(content_type, context.served.custom)
}

/// The body of a patch.
pub(in crate::registry) struct Document {
    value: Value,
    duplicates: Vec<StrictError>,
}

impl Document {
    /// Reads the body: JSON, or for an apply YAML, which is not typed, since a field that is absent means something.
    pub(in crate::registry) fn read(context: &Context, kind: PatchType) -> Result<Self, Status> {
        let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
        if kind != PatchType::Apply {
            let (value, duplicates) = codec::body::read(&context.body, Format::Json).map_err(refuse)?;
            return Ok(Self { value, duplicates });
        }
        let (value, duplicates) = codec::body::read(&context.body, Format::Yaml)
            .map_err(|why| refuse(format!("error converting YAML to JSON: {why}")))?;
        match &value {
            Value::Object(_) | Value::Null => Ok(Self { value, duplicates }),
            other => {
                let found = codec::json::go_type_of(other);
                let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
                Err(refuse(format!("error unmarshaling JSON: while decoding JSON: {why}")))
            }
        }
    }
}

/// A patch, decoded.
pub(in crate::registry) enum Patch<'d> {
    /// A list of operations.
    Json(JsonPatch<'d>),
    /// An object whose fields replace those of the stored one.
    Merge(&'d Value),
    /// The same, with lists that are merged as the schema says.
    Strategic(&'d Value),
    /// A configuration for server-side apply.
    Apply {
        /// The configuration.
        configuration: &'d Value,
        /// Whether fields are taken from other managers.
        force: bool,
    },
}

/// A request to patch.
pub(in crate::registry) struct PatchRequest<'d> {
    /// The patch.
    pub patch: Patch<'d>,
    /// The manager that changed fields belong to.
    pub manager: String,
    duplicates: &'d [StrictError],
    validation: FieldValidation,
}

/// What a patch is applied to.
#[derive(Clone, Copy)]
struct Subject<'a> {
    expected: Expected<'a>,
    schema: &'a Schema,
}

impl<'d> PatchRequest<'d> {
    /// Decodes the patch of a request.
    pub(in crate::registry) fn new(
        context: &mut Context,
        kind: PatchType,
        document: &'d Document,
        options: &WriteOptions,
    ) -> Result<Self, Status> {
        let validation = options.field_validation;
        let patch = match kind {
            PatchType::Json => {
                let patch = JsonPatch::decode(&document.value, validation == FieldValidation::Ignore)?;
                report(context, validation, patch.strict_errors.clone())?;
                Patch::Json(patch)
            }
            PatchType::Merge => Patch::Merge(&document.value),
            PatchType::Strategic => Patch::Strategic(&document.value),
            PatchType::Apply => Patch::Apply { configuration: &document.value, force: options.force.unwrap_or(false) },
        };
        let manager = context.manager(options.field_manager.as_deref());
        Ok(Self { patch, manager, duplicates: &document.duplicates, validation })
    }

    /// Applies the patch to the stored object, if there is one. Returns the new object, in the served version, and what is
    /// tolerated of the patch.
    pub(in crate::registry) fn object(
        &self,
        context: &Context,
        live: Option<&Value>,
    ) -> Result<(Value, Vec<String>), Status> {
        let schema = context.served.schema();
        let subject = Subject { expected: Expected::from(&context.served.resource), schema: &schema };
        let (mut object, tolerated) = self.patched(context, subject, live)?;
        if let Some(live) = live.filter(|_| self.changes_only_status(context)) {
            restore_rest(live, &mut object);
        }
        if let Patch::Apply { .. } = self.patch {
            self.check_strictly_applied()?;
        }
        check_identity(context, &mut object)?;
        Ok((object, tolerated))
    }

    /// The same for an object of another built-in kind than that of the path: a Scale. It is not applied here.
    pub(in crate::registry) fn view(
        &self,
        context: &Context,
        expected: Expected<'_>,
        schema: &Schema,
        live: &Value,
    ) -> Result<(Value, Vec<String>), Status> {
        let (mut view, tolerated) = self.patched(context, Subject { expected, schema }, Some(live))?;
        check_identity(context, &mut view)?;
        Ok((view, tolerated))
    }

    /// Warns of the duplicate keys of a configuration that is applied.
    pub(in crate::registry) fn warn_of_duplicates(&self, context: &mut Context) {
        let duplicates = self.duplicates.iter().map(|error| error.message.clone());
        decode::warn(context, self.validation, duplicates);
    }

    /// Warns of what was tolerated.
    pub(in crate::registry) fn warn(&self, context: &mut Context, tolerated: Vec<String>) {
        decode::warn(context, self.validation, tolerated);
    }

    /// Refuses an apply for the duplicate keys of its configuration: after everything else.
    pub(in crate::registry) fn check_strictly_applied(&self) -> Result<(), Status> {
        match self.duplicates {
            [first, ..] if self.validation == FieldValidation::Strict => {
                let why = format!("error converting YAML to JSON: {}", first.message);
                Err(Status::bad_request(format!("error strict decoding patch: {why}")))
            }
            _ => Ok(()),
        }
    }

    fn patched(
        &self,
        context: &Context,
        subject: Subject<'_>,
        live: Option<&Value>,
    ) -> Result<(Value, Vec<String>), Status> {
        let result = self.result(context, subject, live)?;
        let decoded = Decoded { value: result, duplicates: Vec::new(), source: None };
        let Subject { expected, schema } = subject;
        let decoded = match &self.patch {
            _ if expected.custom => Ok(decode::typed(context, decoded, expected, schema)?),
            Patch::Strategic(_) => decode::converted(decoded, expected, schema),
            _ => decode::of_kind(decoded, expected, schema),
        };
        let (value, unknown) = match decoded {
            Ok(decoded) => decoded,
            Err(why) => return Err(self.refusal(context, subject, live, why)?),
        };
        if let Patch::Apply { .. } = self.patch {
            return Ok((value, Vec::new()));
        }
        let mut strict = self.duplicates.to_vec();
        strict.extend(unknown);
        if self.validation == FieldValidation::Strict && !strict.is_empty() {
            return Err(self.refusal(context, subject, live, strict_message(&strict))?);
        }
        Ok((value, strict.into_iter().map(|error| error.message).collect()))
    }

    /// What the patch makes of an object, before that is decoded.
    fn result(&self, context: &Context, subject: Subject<'_>, live: Option<&Value>) -> Result<Value, Status> {
        let copy = || live.cloned().unwrap_or_default();
        match &self.patch {
            Patch::Json(patch) => {
                let mut object = copy();
                patch.apply(&mut object)?;
                Ok(object)
            }
            Patch::Merge(document) => {
                let mut object = copy();
                merge::apply(&mut object, (*document).clone())?;
                Ok(object)
            }
            Patch::Strategic(document) => {
                let part = live.filter(|_| self.changes_only_status(context)).map(status_part);
                let mut object = part.unwrap_or_else(copy);
                strategic::apply(subject.schema, &mut object, (*document).clone())?;
                Ok(object)
            }
            Patch::Apply { configuration, force } => {
                let apply =
                    |configuration: &Value| ownership::apply(context, live, configuration, &self.manager, *force);
                // A refusal quotes what is of the wrong type.
                apply(configuration).map_err(|why| {
                    if is_secret(context) { apply(&redacted(configuration)).err().unwrap_or(why) } else { why }
                })
            }
        }
    }

    /// Whether all that the patch can change are [`STATUS_FIELDS`]. The rest, which is most of a pod, is neither patched nor
    /// decoded again. Of other patches than strategic ones, errors show the whole object.
    fn changes_only_status(&self, context: &Context) -> bool {
        let Patch::Strategic(Value::Object(fields)) = self.patch else { return false };
        context.subresource() == "status" && fields.keys().all(|field| STATUS_FIELDS.contains(&field.as_str()))
    }

    /// Why the patch is refused: with the patch if it is strategic, otherwise with the patched object. Unlike upstream's, the
    /// refusal does not show a Secret: users who may not read it may patch it, and refusals are logged.
    fn refusal(
        &self,
        context: &Context,
        subject: Subject<'_>,
        live: Option<&Value>,
        why: String,
    ) -> Result<Status, Status> {
        let shown = match self.patch {
            _ if is_secret(context) => REDACTED.to_owned(),
            Patch::Strategic(document) => shown(document),
            _ => self.result(context, subject, live)?.to_string(),
        };
        let error = FieldError::invalid(&Path::new("patch"), shown, why);
        Ok(Status::invalid(Qualified { group: "", name: "" }, "", &FieldErrors(vec![error])))
    }
}

fn is_secret(context: &Context) -> bool {
    (&*context.served.group, &*context.served.kind) == ("", "Secret")
}

/// A configuration of the same form without the contents of a Secret: of its text, only what identifies it is kept.
fn redacted(configuration: &Value) -> Value {
    let mut redacted = hidden(configuration);
    let (Value::Object(from), Value::Object(to)) = (configuration, &mut redacted) else { return redacted };
    for field in ["apiVersion", "kind"] {
        if let Some(value) = from.get(field) {
            to.insert(field.to_owned(), value.clone());
        }
    }
    if let (Some(Value::Object(from)), Some(Value::Object(to))) = (from.get("metadata"), to.get_mut("metadata")) {
        for field in ["name", "namespace", "uid", "resourceVersion"] {
            if let Some(value) = from.get(field) {
                to.insert(field.to_owned(), value.clone());
            }
        }
    }
    redacted
}

fn hidden(value: &Value) -> Value {
    match value {
        Value::String(_) => REDACTED.into(),
        Value::Number(_) => 0.into(),
        Value::Array(items) => items.iter().map(hidden).collect(),
        Value::Object(map) => map.iter().map(|(field, value)| (field.clone(), hidden(value))).collect(),
        Value::Null | Value::Bool(_) => value.clone(),
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

/// The [`STATUS_FIELDS`] of an object.
fn status_part(live: &Value) -> Value {
    let copy = |field: &str| match (field, live.get(field)?) {
        ("metadata", Value::Object(metadata)) => Some(Value::Object(without_owners(metadata))),
        (_, value) => Some(value.clone()),
    };
    let fields = STATUS_FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), copy(field)?)));
    Value::Object(fields.collect())
}

/// Adds what [`status_part`] left out.
fn restore_rest(live: &Value, object: &mut Value) {
    if let (Value::Object(live), Value::Object(object)) = (live, object) {
        for (field, value) in live.iter().filter(|(field, _)| !STATUS_FIELDS.contains(&field.as_str())) {
            object.insert(field.clone(), value.clone());
        }
    }
}

/// Metadata without the owners of fields, which no subresource can change: they are those of the stored object, whatever the
/// patch says, and are often the larger part of an object.
fn without_owners(metadata: &Map<String, Value>) -> Map<String, Value> {
    let others = metadata.iter().filter(|(field, _)| *field != "managedFields");
    others.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// Refuses or warns of complaints about a patch itself.
fn report(context: &mut Context, validation: FieldValidation, complaints: Vec<String>) -> Result<(), Status> {
    if validation == FieldValidation::Strict && !complaints.is_empty() {
        let all = complaints.join(", ");
        return Err(Status::bad_request(format!("strict decoding error: {all}")));
    }
    decode::warn(context, validation, complaints);
    Ok(())
}
