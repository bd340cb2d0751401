//! What a schema says about values, in the terms of expressions: upstream's `DeclType`.
//!
//! A [`Declared`] has the type that rules are checked against, and what is needed to estimate how much
//! they can cost: how many elements a value can have, and how many bytes it takes at least.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use windlass_cel::escape::escape;
use windlass_cel::types::{Declared, MAX_REQUEST, Object, Type};

use crate::schema::{Schema, SchemaRef, Type as JsonType};

/// The longest `metadata.name`.
const MAX_NAME: u64 = 253;

/// Declares what a schema describes; `name` is what its type is called. `None` if rules cannot see it.
pub fn declare(schema: &Schema, name: &str) -> Option<Declared> {
    let rules = schema.rules.as_deref();
    let max_length = rules.and_then(|rules| rules.max_length);
    match schema.ty {
        JsonType::IntOrString => {
            let max = max_length.map_or(MAX_REQUEST - 2, |max| max.saturating_mul(4));
            Some(Declared::simple(Type::Dyn, 1, max))
        }
        JsonType::Array => {
            let item = declare(schema.items.as_deref()?, &format!("{name}.@idx"))?;
            let max = rules.and_then(|rules| rules.max_items).unwrap_or((MAX_REQUEST - 2) / (item.min_size + 1));
            Some(Declared {
                ty: Type::list(item.ty.clone()),
                element: Some(Arc::new(item)),
                max_elements: max,
                min_size: 2,
            })
        }
        JsonType::Object => match schema.additional.as_deref().filter(|additional| additional.declares_values()) {
            Some(additional) => {
                let value = declare(additional, &format!("{name}.@elem"))?;
                let fitting = (MAX_REQUEST - 2) / (value.min_size + 6);
                let max = rules.and_then(|rules| rules.max_properties).unwrap_or(fitting);
                Some(Declared {
                    ty: Type::map(Type::String, value.ty.clone()),
                    element: Some(Arc::new(value)),
                    max_elements: max,
                    min_size: 2,
                })
            }
            None => Some(object(schema, name)),
        },
        JsonType::String => Some(string(schema, max_length)),
        JsonType::Boolean => Some(Declared::simple(Type::Bool, 4, 0)),
        JsonType::Number => Some(Declared::simple(Type::Double, 1, 0)),
        JsonType::Integer => Some(Declared::simple(Type::Int, 1, 0)),
        JsonType::Any | JsonType::Quantity => None,
    }
}

fn object(schema: &Schema, name: &str) -> Declared {
    let mut fields = BTreeMap::new();
    let mut min_size = 2;
    let resource = matches!(schema.properties.get("metadata"), Some(SchemaRef::Definition { .. }));
    let own_metadata = schema.declared_metadata();
    for (field, below) in &schema.properties {
        let escaped = escape(field);
        let declared = match (below, own_metadata) {
            (SchemaRef::Definition { .. }, Some(own)) => declare(own, &format!("{name}.metadata")),
            (SchemaRef::Definition { .. }, None) => Some(metadata(schema, &format!("{name}.metadata"))),
            (_, None) if resource && matches!(&**field, "apiVersion" | "kind") => {
                Some(Declared::simple(Type::String, 2, MAX_REQUEST - 2))
            }
            _ => declare(below, &format!("{name}.{}", escaped.as_deref().unwrap_or(field))),
        };
        let Some(declared) = declared else { continue };
        if schema.required.contains(field) && below.default.is_none() {
            min_size += field.len() as u64 + declared.min_size + 4;
        }
        if let Some(escaped) = escaped {
            fields.insert(escaped.into(), declared);
        }
    }
    let ty = Type::Object(Arc::new(Object { name: name.into(), fields, open: false }));
    Declared { ty, element: None, max_elements: 0, min_size }
}

/// Of an object's metadata, rules see the name and the prefix of generated names.
fn metadata(schema: &Schema, name: &str) -> Declared {
    let demands = schema.rules.as_deref().and_then(|rules| rules.metadata.as_deref());
    let text = |field: &str, most: u64| {
        let own = demands.and_then(|demands| demands.field(field)).and_then(|field| field.rules.as_deref());
        let max = own.and_then(|rules| rules.max_length).map_or(most, |max| max.min(most));
        (Box::from(field), Declared::simple(Type::String, 2, max * 4))
    };
    let fields = BTreeMap::from([text("name", MAX_NAME), text("generateName", MAX_NAME - 1)]);
    Declared {
        ty: Type::Object(Arc::new(Object { name: name.into(), fields, open: false })),
        element: None,
        max_elements: 0,
        min_size: 2,
    }
}

fn string(schema: &Schema, max_length: Option<u64>) -> Declared {
    match schema.format.as_deref() {
        Some("byte") => Declared::simple(Type::Bytes, 2, max_length.unwrap_or(MAX_REQUEST - 2)),
        Some("duration") => Declared::simple(Type::Duration, 3, 32),
        Some("date") => Declared::simple(Type::Timestamp, 12, 12),
        Some("date-time") => Declared::simple(Type::Timestamp, 21, 32),
        _ => {
            let longest = || schema.enumeration.iter().filter_map(Value::as_str).map(|text| text.len() as u64).max();
            let max = match max_length {
                Some(max) => max.saturating_mul(4),
                None if schema.enumeration.is_empty() => MAX_REQUEST - 2,
                None => longest().unwrap_or(0),
            };
            Declared::simple(Type::String, 2, max)
        }
    }
}
