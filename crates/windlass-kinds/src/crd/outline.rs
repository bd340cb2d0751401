//! A first look at one level of a written schema.
//!
//! Big definitions have ten thousand schemas, and nearly all of them say little: a description, a type, a bound. One
//! pass over the keywords finds what every check needs and whether there is anything unusual, so that most schemas
//! are not asked for dozens of keywords they do not have.

use serde_json::{Map, Value};

/// What a schema says at its own level.
#[derive(Clone, Copy, Default)]
pub(super) struct Outline<'a> {
    /// `type`, or nothing.
    pub(super) ty: &'a str,
    /// `properties`.
    pub(super) properties: Option<&'a Map<String, Value>>,
    /// `items`, if that is a schema.
    pub(super) items: Option<&'a Map<String, Value>>,
    /// `pattern`, or nothing.
    pub(super) pattern: &'a str,
    /// `default`; a null is none.
    pub(super) default: Option<&'a Value>,
    /// Whether there is a keyword that is neither one of these nor a mere bound or description of the value.
    pub(super) unusual: bool,
}

impl<'a> Outline<'a> {
    /// Looks at a schema.
    pub(super) fn of(schema: &'a Map<String, Value>) -> Self {
        let mut outline = Self::default();
        for (key, value) in schema {
            match (key.as_str(), value) {
                ("type", Value::String(ty)) => outline.ty = ty,
                ("properties", Value::Object(properties)) => outline.properties = Some(properties),
                ("items", Value::Object(items)) => outline.items = Some(items),
                ("pattern", Value::String(pattern)) => outline.pattern = pattern,
                ("default", value) => outline.default = Some(value).filter(|value| !value.is_null()),
                (
                    "description" | "enum" | "example" | "exclusiveMaximum" | "exclusiveMinimum" | "externalDocs"
                    | "format" | "maxItems" | "maxLength" | "maxProperties" | "maximum" | "minItems" | "minLength"
                    | "minProperties" | "minimum" | "multipleOf" | "required" | "title",
                    _,
                ) => {}
                _ => outline.unusual = true,
            }
        }
        outline
    }
}
