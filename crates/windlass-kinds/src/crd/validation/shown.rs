//! Schemas and versions as upstream shows them in errors: its internal form, whose fields have Go's names and are all there.

use serde_json::{Map, Value};

use super::Shared;
use crate::field::go_json;

/// The fields of upstream's `JSONSchemaProps`, in its order: Go's name, the keyword, and how Go writes it.
const FIELDS: [(&str, &str, Form); 44] = [
    ("ID", "id", Form::Text),
    ("Schema", "$schema", Form::Text),
    ("Ref", "$ref", Form::Plain),
    ("Description", "description", Form::Text),
    ("Type", "type", Form::Text),
    ("Nullable", "nullable", Form::Flag),
    ("Format", "format", Form::Text),
    ("Title", "title", Form::Text),
    ("Default", "default", Form::Plain),
    ("Maximum", "maximum", Form::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", Form::Flag),
    ("Minimum", "minimum", Form::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", Form::Flag),
    ("MaxLength", "maxLength", Form::Plain),
    ("MinLength", "minLength", Form::Plain),
    ("Pattern", "pattern", Form::Text),
    ("MaxItems", "maxItems", Form::Plain),
    ("MinItems", "minItems", Form::Plain),
    ("UniqueItems", "uniqueItems", Form::Flag),
    ("MultipleOf", "multipleOf", Form::Plain),
    ("Enum", "enum", Form::Plain),
    ("MaxProperties", "maxProperties", Form::Plain),
    ("MinProperties", "minProperties", Form::Plain),
    ("Required", "required", Form::Plain),
    ("Items", "items", Form::Items),
    ("AllOf", "allOf", Form::List),
    ("OneOf", "oneOf", Form::List),
    ("AnyOf", "anyOf", Form::List),
    ("Not", "not", Form::Schema),
    ("Properties", "properties", Form::Map),
    ("AdditionalProperties", "additionalProperties", Form::SchemaOrFlag),
    ("PatternProperties", "patternProperties", Form::Map),
    ("Dependencies", "dependencies", Form::Plain),
    ("AdditionalItems", "additionalItems", Form::SchemaOrFlag),
    ("Definitions", "definitions", Form::Map),
    ("ExternalDocs", "externalDocs", Form::Docs),
    ("Example", "example", Form::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Form::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Form::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Form::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Form::Plain),
    ("XListType", "x-kubernetes-list-type", Form::Plain),
    ("XMapType", "x-kubernetes-map-type", Form::Plain),
    ("XValidations", "x-kubernetes-validations", Form::Rules),
];

/// How Go writes a field.
#[derive(Clone, Copy)]
enum Form {
    /// A string, empty if it is not there.
    Text,
    /// A boolean, false if it is not there.
    Flag,
    /// As it is, or null.
    Plain,
    Schema,
    SchemaOrFlag,
    Items,
    List,
    Map,
    Docs,
    Rules,
}

/// A schema.
pub(super) fn schema(schema: &Map<String, Value>) -> String {
    let fields = FIELDS.iter().map(|(name, key, form)| format!("\"{name}\":{}", field(schema.get(*key), *form)));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// A CEL rule.
pub(super) fn rule(rule: &Value) -> String {
    let text = |key: &str| field(rule.get(key).or(Some(&Value::Null)), Form::Text);
    let plain = |key: &str| field(rule.get(key), Form::Plain);
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        plain("reason"),
        text("fieldPath"),
        plain("optionalOldSelf")
    )
}

/// The versions of a definition. What all of them have in common is not part of each.
pub(super) fn versions(versions: &[Value], shared: &Shared) -> String {
    let version = |version: &Value| {
        let own = |key: &str, shared: bool| version.get(key).filter(|value| !(shared || value.is_null()));
        let show = |value: Option<&Value>, shown: fn(&Value) -> String| value.map_or_else(|| "null".to_owned(), shown);
        format!(
            "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\
             \"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
            field(version.get("name"), Form::Text),
            field(version.get("served"), Form::Flag),
            field(version.get("storage"), Form::Flag),
            field(version.get("deprecated"), Form::Flag),
            field(version.get("deprecationWarning"), Form::Plain),
            show(own("schema", shared.schema), |schema| {
                format!("{{\"OpenAPIV3Schema\":{}}}", field(schema.get("openAPIV3Schema"), Form::Schema))
            }),
            show(own("subresources", shared.subresources), subresources),
            show(own("additionalPrinterColumns", shared.columns), |columns| each(columns, column)),
            show(own("selectableFields", shared.selectable_fields), |fields| {
                each(fields, |one| format!("{{\"JSONPath\":{}}}", field(one.get("jsonPath"), Form::Text)))
            }),
        )
    };
    list(versions, version)
}

fn subresources(value: &Value) -> String {
    let scale = |scale: &Value| {
        format!(
            "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
            field(scale.get("specReplicasPath"), Form::Text),
            field(scale.get("statusReplicasPath"), Form::Text),
            field(scale.get("labelSelectorPath"), Form::Plain),
        )
    };
    let scale = value.get("scale").filter(|scale| !scale.is_null()).map_or_else(|| "null".to_owned(), scale);
    format!("{{\"Status\":{},\"Scale\":{scale}}}", field(value.get("status"), Form::Plain))
}

fn column(column: &Value) -> String {
    let text = |key: &str| field(column.get(key), Form::Text);
    let priority = column.get("priority").and_then(Value::as_i64).unwrap_or_default();
    format!(
        "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{priority},\"JSONPath\":{}}}",
        text("name"),
        text("type"),
        text("format"),
        text("description"),
        text("jsonPath"),
    )
}

fn each(values: &Value, shown: impl Fn(&Value) -> String) -> String {
    list(values.as_array().map(Vec::as_slice).unwrap_or_default(), shown)
}

fn field(value: Option<&Value>, form: Form) -> String {
    let value = value.filter(|value| !value.is_null());
    let Some(value) = value else {
        return match form {
            Form::Text => "\"\"",
            Form::Flag => "false",
            _ => "null",
        }
        .to_owned();
    };
    let below = |value: &Value| value.as_object().map_or_else(|| "null".to_owned(), schema);
    match form {
        Form::Text | Form::Flag | Form::Plain => go_json(value),
        Form::Schema => below(value),
        Form::SchemaOrFlag => {
            format!("{{\"Allows\":{},\"Schema\":{}}}", *value != Value::Bool(false), below(value))
        }
        Form::Items => {
            let several = value.as_array().map_or_else(|| "null".to_owned(), |items| list(items, below));
            format!("{{\"Schema\":{},\"JSONSchemas\":{several}}}", below(value))
        }
        Form::List => each(value, below),
        Form::Map => {
            let entries = value.as_object().into_iter().flatten();
            let entries = entries.map(|(name, value)| format!("{}:{}", go_json(&name.as_str().into()), below(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Form::Docs => {
            let text = |key: &str| field(value.get(key), Form::Text);
            format!("{{\"Description\":{},\"URL\":{}}}", text("description"), text("url"))
        }
        Form::Rules => each(value, rule),
    }
}

fn list(items: &[Value], shown: impl Fn(&Value) -> String) -> String {
    format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
}
