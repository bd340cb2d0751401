//! The message tables, compiled once from the facts.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::Deserialize;

use crate::codec::go;

/// A message type.
#[derive(Debug)]
pub(super) struct Message {
    /// The name without its package, as errors show it.
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// The fields by number.
    pub(super) fields: Vec<Field>,
}

/// How a message relates to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An object with a member for each field.
    Object,
    /// Seconds and nanoseconds; a text in JSON.
    Time(crate::codec::time::Precision),
    /// A text.
    Quantity,
    /// A type, an integer and a text, of which JSON shows one.
    IntOrString,
    /// Bytes of JSON.
    Json,
    /// A list of texts.
    Items,
    /// A schema, or else a boolean.
    SchemaOrBool,
    /// A schema, or else a list.
    SchemaOrList,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The member's name in JSON.
    pub(super) json: &'static str,
    pub(super) kind: Kind,
    pub(super) shape: Shape,
}

/// Whether a field holds one value, many, or none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Repeated,
    Map,
    /// An embedded struct: its members belong to the object around it.
    Inline,
}

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Message(usize),
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.binary_search_by_key(&number, |field| field.number).ok().map(|i| &self.fields[i])
    }

    pub(super) fn field_named(&self, json: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.json == json)
    }
}

/// The message with a full name.
pub(super) fn by_name(name: &str) -> Option<&'static Message> {
    TABLE.by_name.get(name).map(|i| &TABLE.messages[*i])
}

/// The message a field refers to.
pub(super) fn by_index(index: usize) -> &'static Message {
    &TABLE.messages[index]
}

/// The message behind a definition.
pub(super) fn message_name(definition: &str) -> String {
    format!("k8s.io.{}", definition.trim_start_matches("io.k8s.").replace('-', "_"))
}

struct Table {
    messages: Vec<Message>,
    by_name: HashMap<&'static str, usize>,
}

#[derive(Deserialize)]
struct Facts<'a> {
    #[serde(borrow)]
    messages: BTreeMap<&'a str, BTreeMap<&'a str, (u32, &'a str)>>,
}

static FACTS: &str = include_str!("../../../facts/protobuf-1.36.json");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let facts: Facts<'static> =
        serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    let by_name: HashMap<&'static str, usize> = facts.messages.keys().enumerate().map(|(i, name)| (*name, i)).collect();
    let messages = facts.messages.iter().map(|(name, fields)| message(name, fields, &by_name)).collect();
    Table { messages, by_name }
});

fn message(
    full_name: &'static str,
    raw: &BTreeMap<&'static str, (u32, &'static str)>,
    by_name: &HashMap<&'static str, usize>,
) -> Message {
    let (package, name) = full_name.rsplit_once('.').unwrap_or_default();
    let definition = format!("io.k8s.{}", full_name.trim_start_matches("k8s.io.").replace('_', "-"));
    let go = go::struct_of(&definition);
    let mut fields: Vec<Field> = raw
        .iter()
        .map(|(proto, (number, ty))| {
            let (kind, mut shape) = field_type(package, ty, by_name);
            if go.embeds(proto) {
                shape = Shape::Inline;
            }
            Field { number: *number, json: go.json_name(proto).unwrap_or(proto), kind, shape }
        })
        .collect();
    fields.sort_by_key(|field| field.number);
    Message { name, form: form(package, name), fields }
}

fn form(package: &str, name: &str) -> Form {
    use crate::codec::time::Precision;
    let meta = package == "k8s.io.apimachinery.pkg.apis.meta.v1";
    match name {
        "Time" if meta => Form::Time(Precision::Seconds),
        "MicroTime" if meta => Form::Time(Precision::Micros),
        "FieldsV1" if meta => Form::Json,
        "Verbs" if meta => Form::Items,
        "Quantity" => Form::Quantity,
        "IntOrString" => Form::IntOrString,
        "RawExtension" | "JSON" => Form::Json,
        "ExtraValue" => Form::Items,
        "JSONSchemaPropsOrBool" => Form::SchemaOrBool,
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => Form::SchemaOrList,
        _ => Form::Object,
    }
}

/// Reads a type such as `repeated EnvVar` or `map<string, .k8s.io.Quantity>`. Names without a package
/// are in the message's own.
fn field_type(package: &str, text: &str, by_name: &HashMap<&'static str, usize>) -> (Kind, Shape) {
    let (text, shape) = match (text.strip_prefix("repeated "), text.strip_prefix("map<string, ")) {
        (Some(item), _) => (item, Shape::Repeated),
        (None, Some(value)) => (value.trim_end_matches('>'), Shape::Map),
        (None, None) => (text, Shape::Single),
    };
    let kind = match text {
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "bool" => Kind::Bool,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "double" => Kind::Double,
        name => {
            let name = name.trim_start_matches('.');
            let index = by_name.get(name).or_else(|| by_name.get(format!("{package}.{name}").as_str()));
            Kind::Message(*index.expect("invariant: the facts name only messages they hold"))
        }
    };
    (kind, shape)
}
