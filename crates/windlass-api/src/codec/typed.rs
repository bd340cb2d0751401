//! What decoding a document into a Go struct and encoding it again does to it.
//!
//! Upstream's built-in kinds live in Go structs, and clients see the traces: wrong types are refused by name
//! of the struct, unknown fields vanish (and are reported to strict clients), zero values that Go omits
//! disappear while others appear, and timestamps, quantities and base64 come back in canonical form. The
//! schema and the facts about the Go types say all of it, so one walk does it for every kind.
//!
//! Built-in objects are stored as protobuf upstream, which does not know empty lists and maps: those become
//! absent, or null where Go always writes the field.
//!
//! The walk is idempotent.

use serde_json::{Map, Value};

use super::body::{Decoded, StrictError};
use super::go::{self, GoField, Special};
use super::json::{MAX_STRICT_ERRORS, go_type_of};
use super::peek::Raw;
use super::{base64, quantity, time};
use crate::field::quote;
use crate::schema::{Schema, Type};

/// So many bytes of a document are searched for the places of its mistakes. Beyond that, mistakes are told in the order of the walk.
const MOST_SEARCHED: usize = 128 << 20;

/// An object as Go would write it.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The object.
    pub value: Value,
    /// Unknown and duplicate fields, in document order.
    pub strict: Vec<StrictError>,
}

/// Decodes a request body against its kind's schema. The error is what Go would say, without the prefix
/// that names the kind: see [`undecodable`](super::body::undecodable).
pub fn decode_typed(decoded: Decoded<'_>, schema: &Schema) -> Result<Typed, String> {
    let mut walk = Walk { source: decoded.source, from_client: true, ..Walk::default() };
    walk.note_opaque = !decoded.duplicates.is_empty();
    let value = walk.root(decoded.value, schema)?;
    let ignored = walk.ignored;
    // Go skips the values of unknown fields and those that decode themselves, duplicates and all.
    let noticed = |duplicate: &StrictError| {
        let path = duplicate.message.trim_start_matches("duplicate field ").trim_matches('"');
        !ignored.iter().any(|skipped| {
            path.strip_prefix(skipped.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    };
    let mut strict: Vec<_> = decoded.duplicates.into_iter().filter(noticed).collect();
    strict.append(&mut walk.strict);
    // YAML and protobuf have no offsets; there the order is that of the walk, with duplicates first.
    strict.sort_by_key(|error| error.offset);
    strict.truncate(MAX_STRICT_ERRORS);
    Ok(Typed { value, strict })
}

/// Brings an object into the form Go would write it in. Unknown fields are dropped.
pub fn normalize(value: Value, schema: &Schema) -> Result<Value, String> {
    Walk::default().root(value, schema)
}

#[derive(Default)]
struct Walk<'a> {
    /// Whether a client sent this, rather than upstream's store would have it.
    from_client: bool,
    source: Option<&'a [u8]>,
    /// How many bytes of it have been searched for places.
    searched: usize,
    strict: Vec<StrictError>,
    /// Whether to note the paths of opaque values in `ignored`.
    note_opaque: bool,
    ignored: Vec<String>,
    /// Go collects the first of these and goes on.
    saved: Option<Complaint>,
    /// Go stops at these: errors of types that decode themselves.
    fatal: Option<Complaint>,
}

struct Complaint {
    offset: usize,
    message: String,
}

/// Where the walk is.
#[derive(Clone, Copy)]
struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    step: Step<'a>,
    /// The struct whose field is being decoded, as errors name it.
    owner: Option<&'static str>,
    /// Whether unknown fields are reported. Types that decode themselves do not look for them.
    strict: bool,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    /// A struct's field, with the embedded struct it comes from.
    Field(&'a str, Option<&'static str>),
    Key(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    const ROOT: Place<'static> = Place { parent: None, step: Step::Root, owner: None, strict: true };

    fn below(&'a self, step: Step<'a>) -> Place<'a> {
        Place { parent: Some(self), step, owner: self.owner, strict: self.strict }
    }

    fn path(&self) -> String {
        let mut out = self.parent.map_or_else(String::new, Place::path);
        match self.step {
            Step::Root => {}
            Step::Field(name, _) | Step::Key(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Step::Index(i) => {
                out.push('[');
                out.push_str(itoa::Buffer::new().format(i));
                out.push(']');
            }
        }
        out
    }

    /// The names of struct fields on the way, as Go's type errors show them.
    fn fields(&self) -> String {
        let mut out = self.parent.map_or_else(String::new, Place::fields);
        if let Step::Field(name, via) = self.step {
            for part in via.into_iter().chain([name]) {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(part);
            }
        }
        out
    }

    fn find<'s>(&self, source: &'s [u8]) -> Option<Raw<'s>> {
        match (self.parent, self.step) {
            (None, _) => Some(Raw::new(source)),
            (Some(parent), Step::Root) => parent.find(source),
            (Some(parent), Step::Field(name, _) | Step::Key(name)) => parent.find(source)?.field(name),
            (Some(parent), Step::Index(i)) => parent.find(source)?.items().nth(i),
        }
    }
}

impl<'a> Walk<'a> {
    fn root(&mut self, value: Value, schema: &Schema) -> Result<Value, String> {
        let value = self.value(value, schema, None, &Place::ROOT);
        match self.fatal.take().or(self.saved.take()) {
            Some(complaint) => Err(complaint.message),
            None => Ok(value.unwrap_or(Value::Null)),
        }
    }

    /// Decodes one value. `None` stands for Go's zero value of the type.
    fn value(
        &mut self,
        value: Value,
        schema: &Schema,
        known: Option<&'static str>,
        place: &Place<'_>,
    ) -> Option<Value> {
        if let Some(special) = go::special(schema) {
            return self.special(special, value, place);
        }
        if value.is_null() && !go::is_struct(schema) {
            return None;
        }
        match (schema.ty, value) {
            (Type::Object, Value::Null) => Some(self.fields(Map::new(), schema, place)),
            (Type::Object, Value::Object(map)) if go::is_struct(schema) => Some(self.fields(map, schema, place)),
            (Type::Object, Value::Object(map)) => match schema.additional.as_deref() {
                Some(values) => Some(self.map(map, values, known, place)),
                None => Some(Value::Object(map)),
            },
            (Type::Array, Value::Array(items)) => match schema.items.as_deref() {
                Some(schema) => Some(self.list(items, schema, known, place)),
                None => Some(Value::Array(items)),
            },
            (Type::String, Value::String(text)) if schema.format.as_deref() == Some("byte") => self.bytes(&text, place),
            (Type::String, value @ Value::String(_)) | (Type::Boolean, value @ Value::Bool(_)) | (Type::Any, value) => {
                Some(value)
            }
            (Type::Integer, Value::Number(number)) => {
                let type_name = go::type_name(schema, known);
                let fits = number.as_i64().filter(|n| type_name != "int32" || i32::try_from(*n).is_ok());
                if fits.is_none() {
                    let shown = self.number_text(&number, place);
                    self.mistyped(&shown, &type_name, place);
                }
                fits.map(Value::from)
            }
            (Type::Number, Value::Number(number)) => Some(shortest(number)),
            (_, value) => {
                self.mistyped(go_type_of(&value), &go::type_name(schema, known), place);
                None
            }
        }
    }

    /// Decodes the fields of a struct.
    fn fields(&mut self, map: Map<String, Value>, schema: &Schema, place: &Place<'_>) -> Value {
        let definition = schema.name.unwrap_or_default();
        let go = go::struct_of(definition);
        let place = Place { owner: definition.rsplit('.').next(), ..*place };
        let mut out = Map::new();
        for (name, value) in map {
            let Some(field) = schema.properties.get(name.as_str()) else {
                self.unknown(&place.below(Step::Key(&name)));
                continue;
            };
            let facts = go.field(&name);
            if value.is_null() && facts.pointer {
                continue;
            }
            let value = self.value(value, field, facts.type_name, &place.below(Step::Field(&name, facts.via)));
            let from_client = self.from_client;
            let written =
                |value: &Value| is_written(value, facts) || (from_client && is_kept_empty(definition, &name, value));
            if let Some(value) = value.filter(written) {
                out.insert(name, value);
            }
        }
        let keeps_empty = !is_stored_as_protobuf(definition);
        for name in &go.always {
            let Some(field) = schema.properties.get(*name) else { continue };
            match out.get(*name) {
                Some(Value::Array(items)) if !keeps_empty && items.is_empty() => {}
                Some(Value::Object(map)) if !keeps_empty && map.is_empty() && field.is_map() => {}
                Some(_) => continue,
                None => {}
            }
            let zero = if go.field(name).pointer { Value::Null } else { zero(field) };
            out.insert((*name).to_owned(), zero);
        }
        Value::Object(out)
    }

    fn map(
        &mut self,
        map: Map<String, Value>,
        schema: &Schema,
        known: Option<&'static str>,
        place: &Place<'_>,
    ) -> Value {
        let known = go::element_type(known);
        let decode = |(key, value): (String, Value)| {
            let value = self.value(value, schema, known, &place.below(Step::Key(&key)));
            (key, value.unwrap_or_else(|| element_zero(schema)))
        };
        Value::Object(map.into_iter().map(decode).collect())
    }

    fn list(&mut self, items: Vec<Value>, schema: &Schema, known: Option<&'static str>, place: &Place<'_>) -> Value {
        let known = go::element_type(known);
        let decode = |(i, item): (usize, Value)| {
            let item = self.value(item, schema, known, &place.below(Step::Index(i)));
            item.unwrap_or_else(|| element_zero(schema))
        };
        Value::Array(items.into_iter().enumerate().map(decode).collect())
    }

    fn bytes(&mut self, text: &str, place: &Place<'_>) -> Option<Value> {
        match base64::decode(text) {
            Ok(bytes) => Some(base64::encode(&bytes).into()),
            Err(message) => {
                self.save(message, place);
                None
            }
        }
    }

    /// Decodes a value whose type has its own decoder.
    fn special(&mut self, special: Special, value: Value, place: &Place<'_>) -> Option<Value> {
        match (special, value) {
            (Special::Opaque, Value::Null) => None,
            (Special::Opaque, value) => {
                if self.note_opaque {
                    self.ignored.push(place.path());
                }
                Some(value)
            }
            (Special::SchemaOrBool, value) => self.schema_or_bool(value, place),
            (Special::SchemaOrArray, value) => self.schema_or_list(value, place, json_schema_props()),
            (Special::SchemaOrStrings, value) => self.schema_or_list(value, place, &STRING),
            (_, Value::Null) => None,
            (Special::Time, value) => self.time(value, time::Precision::Seconds, place),
            (Special::MicroTime, value) => self.time(value, time::Precision::Micros, place),
            (Special::Quantity, value) => {
                let text = match &value {
                    Value::String(text) => text.clone(),
                    other => self.source_text(place).unwrap_or_else(|| other.to_string()),
                };
                match quantity::canonical(&text) {
                    Ok(text) => Some(text.into()),
                    Err(message) => {
                        self.abort(message.to_owned(), place);
                        None
                    }
                }
            }
            (Special::IntOrString, value @ Value::String(_)) => Some(value),
            (Special::IntOrString, Value::Number(number)) => {
                let fits = number.as_i64().filter(|n| i32::try_from(*n).is_ok());
                if fits.is_none() {
                    let message = type_error(&self.number_text(&number, place), "int32", place);
                    self.abort(message, place);
                }
                fits.map(Value::from)
            }
            (Special::IntOrString, other) => {
                self.abort(type_error(go_type_of(&other), "int32", place), place);
                None
            }
        }
    }

    fn time(&mut self, value: Value, precision: time::Precision, place: &Place<'_>) -> Option<Value> {
        let Value::String(text) = value else {
            self.abort(type_error(go_type_of(&value), "string", place), place);
            return None;
        };
        match time::parse(&text, precision) {
            Ok(moment) if moment.is_zero() => None,
            Ok(moment) => Some(moment.format(precision).into()),
            Err(message) => {
                self.abort(message, place);
                None
            }
        }
    }

    fn schema_or_bool(&mut self, value: Value, place: &Place<'_>) -> Option<Value> {
        match value {
            Value::Bool(_) => Some(value),
            Value::Object(_) => self.value(value, json_schema_props(), None, &Place { strict: false, ..*place }),
            _ => {
                self.abort("boolean or JSON schema expected".to_owned(), place);
                None
            }
        }
    }

    fn schema_or_list(&mut self, value: Value, place: &Place<'_>, item: &Schema) -> Option<Value> {
        let lax = Place { strict: false, ..*place };
        match value {
            Value::Object(_) => self.value(value, json_schema_props(), None, &lax),
            Value::Array(items) if !items.is_empty() => Some(self.list(items, item, None, &lax)),
            // Anything else reads as nothing, and nothing is written as null.
            _ => Some(Value::Null),
        }
    }

    fn unknown(&mut self, place: &Place<'_>) {
        if self.note_opaque {
            self.ignored.push(place.path());
        }
        if place.strict && self.strict.len() < MAX_STRICT_ERRORS * 8 {
            let message = format!("unknown field {}", quote(&place.path()));
            let offset = self.offset(place);
            self.strict.push(StrictError { message, offset });
        }
    }

    fn mistyped(&mut self, value: &str, type_name: &str, place: &Place<'_>) {
        self.save(type_error(value, type_name, place), place);
    }

    fn save(&mut self, message: String, place: &Place<'_>) {
        let complaint = Complaint { offset: self.offset(place), message };
        keep_first(&mut self.saved, complaint);
    }

    fn abort(&mut self, message: String, place: &Place<'_>) {
        let complaint = Complaint { offset: self.offset(place), message };
        keep_first(&mut self.fatal, complaint);
    }

    /// Where the value is in the document. Without one, in the order of the walk, which is that of keys:
    /// just what upstream sees of YAML.
    fn offset(&mut self, place: &Place<'_>) -> usize {
        self.find(place).map_or(usize::MAX, |raw| raw.range().start)
    }

    fn source_text(&mut self, place: &Place<'_>) -> Option<String> {
        String::from_utf8(self.find(place)?.bytes().to_vec()).ok()
    }

    /// The value in the document, which is searched from its start: a large one with many mistakes is not searched for each.
    fn find(&mut self, place: &Place<'_>) -> Option<Raw<'a>> {
        let source = self.source.filter(|_| self.searched < MOST_SEARCHED)?;
        self.searched += source.len();
        place.find(source)
    }

    fn number_text(&mut self, number: &serde_json::Number, place: &Place<'_>) -> String {
        let text = self.source_text(place).unwrap_or_else(|| {
            let mut out = Vec::new();
            super::write::write_value(&Value::Number(number.clone()), &mut out);
            String::from_utf8_lossy(&out).into_owned()
        });
        format!("number {text}")
    }
}

fn keep_first(slot: &mut Option<Complaint>, complaint: Complaint) {
    if slot.as_ref().is_none_or(|kept| complaint.offset < kept.offset) {
        *slot = Some(complaint);
    }
}

fn type_error(value: &str, type_name: &str, place: &Place<'_>) -> String {
    match place.owner {
        Some(owner) => {
            format!(
                "json: cannot unmarshal {value} into Go struct field {owner}.{} of type {type_name}",
                place.fields()
            )
        }
        None => format!("json: cannot unmarshal {value} into Go value of type {type_name}"),
    }
}

/// Whether Go writes a decoded field: everything behind a pointer, otherwise what is not zero. Structs
/// and always-written fields are added back by the caller.
fn is_written(value: &Value, field: GoField) -> bool {
    if field.always {
        return true;
    }
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => field.pointer || !map.is_empty(),
        _ if field.pointer => true,
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
    }
}

/// What Go writes for a field that was not there.
fn zero(schema: &Schema) -> Value {
    match go::special(schema) {
        Some(Special::Quantity) => return "0".into(),
        Some(Special::IntOrString) => return 0.into(),
        Some(Special::SchemaOrBool) => return false.into(),
        Some(_) => return Value::Null,
        None => {}
    }
    match schema.ty {
        Type::Object if go::is_struct(schema) => {
            let go = go::struct_of(schema.name.unwrap_or_default());
            let fields = go.always.iter().filter_map(|name| {
                let field = schema.properties.get(*name)?;
                let value = if go.field(name).pointer { Value::Null } else { zero(field) };
                Some(((*name).to_owned(), value))
            });
            Value::Object(fields.collect())
        }
        Type::String if schema.format.as_deref() != Some("byte") => "".into(),
        Type::Integer | Type::Number => 0.into(),
        Type::Boolean => false.into(),
        _ => Value::Null,
    }
}

/// The same inside a list or map, where protobuf turns absent bytes into empty ones.
fn element_zero(schema: &Schema) -> Value {
    match zero(schema) {
        Value::Null if schema.format.as_deref() == Some("byte") => "".into(),
        value => value,
    }
}

/// A number in the form it is written in, so that 1.0 and 1 are the same.
fn shortest(number: serde_json::Number) -> Value {
    let whole = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 9e15);
    whole.map_or(Value::Number(number), |f| Value::from(f as i64))
}

/// Lists that mean something when they are there but empty. Policies get no defaults then, and are refused for it; neither
/// is ever written.
fn is_kept_empty(definition: &str, field: &str, value: &Value) -> bool {
    // An empty list of managers clears the owners of an object.
    if field == "managedFields" && definition.ends_with(".ObjectMeta") {
        return value.as_array().is_some_and(Vec::is_empty);
    }
    field == "policies" && value.is_array() && definition == "io.k8s.api.autoscaling.v2.HPAScalingRules"
}

/// The extension and aggregation servers store JSON, where an empty list stays one.
fn is_stored_as_protobuf(definition: &str) -> bool {
    !definition.starts_with("io.k8s.apiextensions-apiserver.") && !definition.starts_with("io.k8s.kube-aggregator.")
}

static STRING: std::sync::LazyLock<Schema> =
    std::sync::LazyLock::new(|| Schema { ty: Type::String, ..Schema::default() });

fn json_schema_props() -> &'static Schema {
    static PROPS: std::sync::LazyLock<&'static Schema> = std::sync::LazyLock::new(|| {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let id = crate::schema::builtin::by_name(name).expect("invariant: the facts know JSONSchemaProps");
        crate::schema::builtin::definition(id)
    });
    &PROPS
}

#[cfg(test)]
mod tests;
