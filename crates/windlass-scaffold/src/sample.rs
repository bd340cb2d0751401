//! Samples that the schema of their kind accepts.
//!
//! A generated sample fits the generated types. Types get other fields, and required ones: as long as a user has not
//! edited a sample it follows them. Fields that the schema does not have go, and those that it requires come, with the
//! simplest value that it takes. Rules in CEL are not looked at: only a person knows what they mean.
//!
//! What was made of the schema is recorded in `.windlass/samples`, to tell it from what a user has written.

mod text;

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::kustomize::to_yaml;
use crate::manifests::is_definition;
use crate::package::SAMPLES;
use crate::plan::{self, Plan, ReadError};
use crate::project::Project;
use crate::record;
use crate::render::render;
use crate::tree::Tree;

const HEADER: &str = "# Made from the schema by `windlass manifests --write`, as long as you do not edit it.\n";

/// Adds what changes in the samples of a project whose code says these manifests.
///
/// # Errors
/// If a file cannot be read.
pub fn follow_schemas(root: &Path, project: &Project, said: &[Value], plan: &mut Plan) -> Result<(), ReadError> {
    let templates = render(project);
    let recorded = record::named(root, record::SAMPLES).unwrap_or_default();
    let mut next = Tree::default();
    for (path, template) in templates.iter().filter(|(path, _)| path.starts_with(SAMPLES)) {
        let Ok(sample) = serde_saphyr::from_str::<Value>(template) else { continue };
        let Some(schema) = schema_of(&sample, said) else { continue };
        // What a user has deleted stays deleted.
        let Some(disk) = plan::read(root, path)? else { continue };
        if disk != template && recorded.get(path) != Some(&disk) {
            // The user's own from now on; if it is taken back, it is known what it was.
            if let Some(earlier) = recorded.get(path) {
                next.set(path, earlier);
            }
            continue;
        }
        let fitting = fit_object(&sample, schema);
        let after = if fitting == sample {
            template.to_owned()
        } else {
            let text = format!("{HEADER}{}", to_yaml(&[fitting]));
            next.set(path, text.clone());
            text
        };
        plan.change(path, Some(disk), Some(after));
    }
    let file = record::path(record::SAMPLES);
    let after = next.paths().next().is_some().then(|| record::to_text(&next));
    plan.change(&file, plan::read(root, &file)?, after);
    Ok(())
}

/// The schema of an object's version, among definitions.
fn schema_of<'a>(object: &Value, said: &'a [Value]) -> Option<&'a Value> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    let kind = &object["kind"];
    let mut definitions = said.iter().filter(|manifest| is_definition(manifest));
    let definition = definitions
        .find(|definition| definition["spec"]["group"] == group && definition["spec"]["names"]["kind"] == *kind)?;
    let mut versions = definition["spec"]["versions"].as_array()?.iter();
    versions.find(|one| one["name"] == version)?.pointer("/schema/openAPIV3Schema")
}

/// The object with what its schema has besides the fields of every object, and the status, which the operator writes.
fn fit_object(object: &Value, schema: &Value) -> Value {
    let (Some(fields), true) = (object.as_object(), schema["properties"].is_object()) else { return object.clone() };
    let common = |name: &str| matches!(name, "apiVersion" | "kind" | "metadata" | "status");
    let (mut fitting, own): (Map<String, Value>, Map<String, Value>) =
        fields.clone().into_iter().partition(|(name, _)| common(name));
    if let Value::Object(own) = fit(Some(&Value::Object(own)), schema, "", 0) {
        fitting.extend(own.into_iter().filter(|(name, _)| !common(name)));
    }
    Value::Object(fitting)
}

/// The value if the schema takes it, with other fields where it has to; an example otherwise.
fn fit(value: Option<&Value>, schema: &Value, name: &str, index: usize) -> Value {
    match value {
        Some(Value::Object(fields)) if is_type(schema, "object") => fit_fields(fields, schema, index),
        Some(value) if !value.is_object() && accepts(value, schema) => value.clone(),
        _ => example(schema, name, index),
    }
}

fn fit_fields(fields: &Map<String, Value>, schema: &Value, index: usize) -> Value {
    let known = &schema["properties"];
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true;
    let mut fitting = Map::new();
    for (name, value) in fields {
        match known.get(name).or_else(|| schema.get("additionalProperties").filter(|schema| schema.is_object())) {
            Some(schema) => {
                fitting.insert(name.clone(), fit(Some(value), schema, name, index));
            }
            None if open => {
                fitting.insert(name.clone(), value.clone());
            }
            None => {}
        }
    }
    for name in required(schema) {
        let of_field = &known[&name];
        // The server fills in defaults before it looks for what is missing.
        if !fitting.contains_key(&name) && of_field.get("default").is_none() {
            fitting.insert(name.clone(), example(of_field, &name, index));
        }
    }
    let least = schema["minProperties"].as_u64().unwrap_or(0).min(MOST);
    let values = &schema["additionalProperties"];
    let mut optional = known.as_object().into_iter().flatten();
    for number in 0.. {
        if fitting.len() as u64 >= least || number > MOST {
            break;
        }
        if let Some((name, of_field)) = optional.next() {
            fitting.entry(name).or_insert_with(|| example(of_field, name, index));
        } else if values.is_object() || values == &Value::Bool(true) || open {
            fitting.insert(format!("key{number}"), example(values, "value", index));
        }
    }
    Value::Object(fitting)
}

/// How many items or fields are made up.
const MOST: u64 = 64;

/// The fields that an object needs, also by what it has to be all, one or any of.
fn required(schema: &Value) -> Vec<String> {
    let names = |schema: &Value| -> Vec<String> {
        let names = schema["required"].as_array().into_iter().flatten();
        names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let mut found = names(schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(required(part));
    }
    for alternatives in ["oneOf", "anyOf"] {
        if let Some(branches) = schema[alternatives].as_array()
            && !branches.iter().any(|branch| required(branch).iter().all(|name| found.contains(name)))
            && let Some(first) = branches.first()
        {
            found.extend(required(first));
        }
    }
    found
}

fn is_type(schema: &Value, name: &str) -> bool {
    schema["type"] == name || (name == "object" && schema["properties"].is_object())
}

/// The simplest value that a schema takes; others for the items of a list that have to differ.
fn example(schema: &Value, name: &str, index: usize) -> Value {
    if let Some(default) = schema.get("default")
        && index == 0
    {
        return default.clone();
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
        return values.get(index).or(values.first()).copied().cloned().unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1 + index);
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "example"}});
    }
    match schema["type"].as_str() {
        Some("string") => text::example(schema, name, index).into(),
        Some("integer") => number(schema, index, true),
        Some("number") => number(schema, index, false),
        Some("boolean") => true.into(),
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(0).min(MOST);
            (0..count).map(|index| example(&schema["items"], name, usize::try_from(index).unwrap_or(0))).collect()
        }
        Some("object") => fit_fields(&Map::new(), schema, index),
        // Anything will do.
        _ => json!({}),
    }
}

fn number(schema: &Value, index: usize, whole: bool) -> Value {
    let bound = |name: &str| schema[name].as_f64();
    let step = bound("multipleOf").filter(|step| *step > 0.0).unwrap_or(1.0);
    #[allow(clippy::cast_precision_loss, reason = "a list has few items")]
    let shift = index as f64 * step;
    let from = |bound: f64| [(bound / step).ceil() * step, ((bound / step).floor() + 1.0) * step];
    let below = |bound: f64| [(bound / step).floor() * step, ((bound / step).ceil() - 1.0) * step];
    let mut candidates = vec![step, 0.0];
    candidates.extend(bound("minimum").into_iter().flat_map(from));
    candidates.extend(bound("maximum").into_iter().flat_map(below));
    if let (Some(least), Some(most), false) = (bound("minimum"), bound("maximum"), whole) {
        candidates.extend([f64::midpoint(least, most), least, most]);
    }
    let value = |number: f64| whole_number(number).map_or_else(|| json!(number), |number| json!(number));
    let shifted = candidates.iter().map(|number| number + shift);
    let mut all = shifted.chain(candidates.iter().copied()).map(value);
    all.find(|number| accepts(number, schema)).unwrap_or_else(|| json!(1))
}

#[allow(clippy::cast_possible_truncation, reason = "whole numbers that a schema names")]
fn whole_number(number: f64) -> Option<i64> {
    (number.fract() == 0.0).then_some(number as i64)
}

/// Whether the schema takes a value that is no object.
fn accepts(value: &Value, schema: &Value) -> bool {
    if value.is_null() {
        return schema["nullable"] == true;
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return false;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match (schema["type"].as_str(), value) {
        (Some("string"), Value::String(text)) => text::accepts(text, schema),
        (Some("integer"), Value::Number(number)) => {
            (number.is_i64() || number.is_u64()) && in_bounds(number.as_f64().unwrap_or_default(), schema)
        }
        (Some("number"), Value::Number(number)) => in_bounds(number.as_f64().unwrap_or_default(), schema),
        (Some("boolean"), Value::Bool(_)) | (None, _) => true,
        (Some("array"), Value::Array(items)) => {
            let count = items.len() as u64;
            schema["minItems"].as_u64().is_none_or(|least| count >= least)
                && schema["maxItems"].as_u64().is_none_or(|most| count <= most)
                && items.iter().all(|item| fit(Some(item), &schema["items"], "", 0) == *item)
        }
        (Some(_), _) => false,
    }
}

fn in_bounds(number: f64, schema: &Value) -> bool {
    let bound = |name: &str| schema[name].as_f64();
    let is_exclusive = |name: &str| schema[name] == true;
    let least =
        bound("minimum").is_none_or(|least| number > least || (number >= least && !is_exclusive("exclusiveMinimum")));
    let most =
        bound("maximum").is_none_or(|most| number < most || (number <= most && !is_exclusive("exclusiveMaximum")));
    let step = bound("multipleOf").is_none_or(|step| step <= 0.0 || ((number / step).fract()).abs() < 1e-9);
    least && most && step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &Value, schema: &Value, expected: &Value) {
        let schema = json!({"type": "object", "properties": {"spec": schema}, "required": ["spec"]});
        let sample = json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "b"}, "spec": spec});
        let fitting = fit_object(&sample, &schema);
        assert_eq!(fitting["spec"], *expected, "of {schema}");
        assert_eq!(fitting["metadata"], sample["metadata"]);
        assert_eq!(fit_object(&fitting, &schema), fitting, "what fits stays");
    }

    #[test]
    fn required_fields_come_and_unknown_ones_go() {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {"foo": text, "size": {"type": "integer", "minimum": 3}}});
        check(&json!({"foo": "bar"}), &schema, &json!({"foo": "bar"}));
        let mut strict = schema.clone();
        strict["required"] = json!(["size"]);
        check(&json!({"foo": "bar"}), &strict, &json!({"foo": "bar", "size": 3}));
        strict["properties"].as_object_mut().unwrap().remove("foo");
        check(&json!({"foo": "bar"}), &strict, &json!({"size": 3}));
        strict["properties"]["size"]["default"] = json!(5);
        check(&json!({"foo": "bar"}), &strict, &json!({}));
        strict["x-kubernetes-preserve-unknown-fields"] = json!(true);
        check(&json!({"foo": "bar"}), &strict, &json!({"foo": "bar"}));
    }

    #[test]
    fn values_are_as_the_schema_wants_them() {
        for (schema, value) in [
            (json!({"type": "string", "enum": ["Small", "Large"]}), json!("Small")),
            (json!({"type": "integer", "minimum": 10, "exclusiveMinimum": true, "multipleOf": 4}), json!(12)),
            (json!({"type": "integer", "maximum": -5}), json!(-5)),
            (json!({"type": "number", "minimum": 0.2, "maximum": 0.4}), json!(0.2_f64.midpoint(0.4))),
            (json!({"type": "boolean"}), json!(true)),
            (json!({"x-kubernetes-int-or-string": true}), json!(1)),
            (json!({"type": "array", "items": {"type": "string"}}), json!([])),
            (
                json!({"type": "array", "minItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "integer"}}),
                json!([1, 2]),
            ),
            (json!({"type": "object", "additionalProperties": {"type": "integer"}}), json!({})),
            (
                json!({"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}}),
                json!({"key0": 1}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}},
                       "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                json!({"a": true}),
            ),
            (
                json!({"type": "array", "minItems": 2, "items": {"type": "object", "required": ["name"],
                       "properties": {"name": {"type": "string"}}}}),
                json!([{"name": "example"}, {"name": "example-1"}]),
            ),
        ] {
            let spec = json!({"type": "object", "properties": {"field": schema}, "required": ["field"]});
            check(&json!({}), &spec, &json!({"field": value}));
        }
    }

    #[test]
    fn a_value_of_another_type_is_replaced() {
        let schema = json!({"type": "object", "properties": {"foo": {"type": "integer"}}});
        check(&json!({"foo": "bar"}), &schema, &json!({"foo": 1}));
        let schema = json!({"type": "object", "properties": {"foo": {"type": "object", "properties": {}}}});
        check(&json!({"foo": "bar"}), &schema, &json!({"foo": {}}));
    }
}
