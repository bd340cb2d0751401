//! What generated files have at their top and at their end.

use std::fmt::Write as _;

use super::Printer;
use crate::types::literal;

const WITHOUT_NULLS: &str = r#"
/// Takes out of a schema what `Option` adds to it: a field that may be left out is not a field that
/// may be null, unless the definition says so.
fn without_nulls(schema: &mut Schema) {
    transform_subschemas(&mut without_nulls, schema);
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [name] = &types[..] {
            let name = name.clone();
            schema.insert("type".into(), name);
        }
        if let Some(Value::Array(values)) = schema.get_mut("enum")
            && values.last().is_some_and(Value::is_null)
        {
            values.pop();
        }
    }
    if let Some(Value::Array(either)) = schema.get("anyOf")
        && let [Value::Object(given), null] = &either[..]
        && null.get("type").is_some_and(|name| name == "null")
    {
        let given = given.clone();
        schema.remove("anyOf");
        for (key, value) in given {
            schema.entry(key).or_insert(value);
        }
    }
}
"#;

const INSIDE: &str = r"
/// Adds keywords to the schema at a JSON pointer.
fn inside(pointer: &'static str, keywords: Value) -> impl FnMut(&mut Schema) {
    move |schema| {
        if let (Some(Value::Object(schema)), Value::Object(keywords)) =
            (schema.pointer_mut(pointer), &keywords)
        {
            schema.extend(keywords.clone());
        }
    }
}
";

const ONE_PROPERTY: &str = r#"
/// Makes of the alternatives of an enum an object with their properties, whose number is limited.
fn one_property(schema: &mut Schema) {
    let Some(Value::Array(variants)) = schema.remove("oneOf") else { return };
    let properties = variants.into_iter().filter_map(|mut variant| match variant["properties"].take() {
        Value::Object(properties) => Some(properties),
        _ => None,
    });
    let properties: Value = properties.flatten().collect();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties);
}
"#;

const UNKNOWN: &str = r#"
/// The fields that nothing else reads, without those that every object has.
fn unknown<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Value>, D::Error> {
    let mut fields = BTreeMap::<String, Value>::deserialize(deserializer)?;
    fields.remove("apiVersion");
    fields.remove("kind");
    Ok(fields)
}
"#;

impl Printer<'_> {
    /// The file: imports, types, and the functions that they use.
    pub(super) fn finish(mut self) -> String {
        self.text.push_str(WITHOUT_NULLS);
        if self.literals.inside {
            self.text.push_str(INSIDE);
        }
        if self.one_property {
            self.text.push_str(ONE_PROPERTY);
        }
        if self.unknown {
            self.text.push_str(UNKNOWN);
        }
        for (name, value) in &self.literals.functions {
            let text = literal::json(value);
            let text = if literal::is_text(value) { text } else { format!("json!({text})") };
            let _ = write!(self.text, "\nfn {name}() -> Value {{\n    {text}\n}}\n");
        }
        format!("{}\n{}", self.imports(), self.text)
    }

    fn imports(&self) -> String {
        let uses = |name: &str| mentions(&self.text, name);
        let mut text = String::from("use std::borrow::Cow;\n");
        if uses("BTreeMap") {
            text.push_str("use std::collections::BTreeMap;\n");
        }
        text.push('\n');
        for (name, path) in [
            ("Quantity", "k8s_openapi::apimachinery::pkg::api::resource::Quantity"),
            ("Condition", "k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition"),
            ("IntOrString", "k8s_openapi::apimachinery::pkg::util::intstr::IntOrString"),
        ] {
            if uses(name) {
                let _ = writeln!(text, "use {path};");
            }
        }
        text.push_str("use kube::CustomResource;\nuse schemars::transform::transform_subschemas;\n");
        let macros = if self.model.root.flat { "" } else { ", json_schema" };
        let _ = writeln!(text, "use schemars::{{JsonSchema, Schema, SchemaGenerator{macros}}};");
        let deserializer = if self.unknown { "Deserialize, Deserializer" } else { "Deserialize" };
        let _ = writeln!(text, "use serde::{{{deserializer}, Serialize}};");
        text.push_str(if self.text.contains(" json!(") || self.text.contains("(json!(") {
            "use serde_json::{Value, json};\n"
        } else {
            "use serde_json::Value;\n"
        });
        text
    }
}

/// Whether the source uses a name, in a type. Comments and strings may mention it as well: they have other things
/// around it.
fn mentions(source: &str, name: &str) -> bool {
    source.lines().map(str::trim_start).filter(|line| !line.starts_with("//") && !line.starts_with("#[kube")).any(
        |line| {
            let pairs = line.match_indices(name);
            pairs.into_iter().any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + name.len()..].chars().next();
                matches!(before, Some('<' | '(' | ' ')) && matches!(after, Some('>' | ',' | ')' | '<' | ':'))
            })
        },
    )
}
