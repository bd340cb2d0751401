//! What documentation says about built-in definitions and their fields.
//!
//! The server has no such texts itself: a program that links them gives a function to the server. The
//! function is called while a document is written, and its answer is dropped with the last definition.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Dialect;
use super::render::{API_VERSION, KIND, LIST_METADATA};

/// The JSON schemas of built-in definitions by name, with descriptions: at least those of the given names that there are.
pub type DescribeDefinitions = Arc<dyn Fn(&BTreeSet<&'static str>) -> Map<String, Value> + Send + Sync>;

/// The descriptions for one document.
#[derive(Default)]
pub(super) struct Descriptions(Option<Map<String, Value>>);

impl Descriptions {
    /// Those of the definitions `names`, if the server was given any.
    pub(super) fn of(describe: Option<&DescribeDefinitions>, names: &BTreeSet<&'static str>) -> Self {
        Self(describe.map(|describe| describe(names)))
    }

    /// Adds what is said about the definition `name` and its fields to its schema.
    pub(super) fn add(&self, name: &str, dialect: Dialect, schema: &mut Map<String, Value>) {
        let Some(known) = &self.0 else { return };
        let made;
        let described = if let Some(described) = known.get(name) {
            described
        } else {
            made = describe_list(name, schema);
            &made
        };
        if let Some(text @ Value::String(_)) = described.get("description") {
            schema.insert("description".into(), text.clone());
        }
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
        for (field, property) in properties {
            if let Some(text @ Value::String(_)) = described["properties"][field].get("description")
                && let Value::Object(property) = property
            {
                // Before OpenAPI 3.1 a reference has no siblings.
                if dialect == Dialect::V3
                    && let Some(target) = property.remove("$ref")
                {
                    property.insert("allOf".into(), json!([{"$ref": target}]));
                }
                property.insert("description".into(), text.clone());
            }
        }
    }
}

/// Lists are all alike, and there are no texts for each kind. Null if the definition is no list of objects.
fn describe_list(name: &str, schema: &Map<String, Value>) -> Value {
    let name = name.rsplit('.').next().unwrap_or(name);
    let has_items = schema.get("properties").is_some_and(|fields| fields.get("items").is_some());
    let Some(kind) = name.strip_suffix("List").filter(|_| has_items) else { return Value::Null };
    json!({
        "description": format!("{name} is a list of {kind} objects."),
        "properties": {
            "apiVersion": {"description": API_VERSION},
            "kind": {"description": KIND},
            "metadata": {"description": LIST_METADATA},
            "items": {"description": format!("The {kind} objects of the list.")},
        },
    })
}
