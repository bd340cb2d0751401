//! Checking an applied configuration against the schema, with structured-merge-diff's words.
//!
//! Upstream answers these failures with 500 and no reason, and quotes values as Go prints them.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::fields::print_element;
use super::shape::{Kind, Shape};
use crate::field::quote;
use crate::patch::{go_print, go_type};
use crate::schema::{Schema, Type};

struct Problem {
    path: String,
    message: String,
}

/// Checks `config`; the failure is upstream's text.
pub(super) fn validate(shape: Shape<'_>, config: &Value) -> Result<(), String> {
    let problems = check(shape, config);
    let text = |problem: &Problem| {
        if problem.path.is_empty() { problem.message.clone() } else { format!("{}: {}", problem.path, problem.message) }
    };
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(text(one)),
        many => Err(many.iter().fold("errors:".to_owned(), |mut all, problem| {
            let _ = write!(all, "\n  {}", text(problem));
            all
        })),
    }
}

fn one(message: String) -> Vec<Problem> {
    vec![Problem { path: String::new(), message }]
}

fn below(element: &str, mut problems: Vec<Problem>, out: &mut Vec<Problem>) {
    if !problems.is_empty() {
        let prefix = print_element(element);
        for problem in &mut problems {
            problem.path.insert_str(0, &prefix);
        }
        out.append(&mut problems);
    }
}

fn check(shape: Shape<'_>, value: &Value) -> Vec<Problem> {
    match (shape.kind_of(value), value) {
        (_, Value::Null) => Vec::new(),
        (Kind::Scalar, value) => check_scalar(shape, value),
        (Kind::Map, Value::Object(map)) => {
            let mut out = Vec::new();
            for (name, value) in map {
                let Some(field) = shape.declared_field(name) else {
                    out.push(Problem { path: format!(".{name}"), message: "field not declared in schema".to_owned() });
                    break;
                };
                let problems = check(field, value);
                if !problems.is_empty() {
                    below(&super::fields::field(name), problems, &mut out);
                }
            }
            out
        }
        (Kind::Map, other) => one(format!("expected map, got {}", pointer(other))),
        (Kind::List, Value::Array(items)) => check_items(shape, items),
        (Kind::List, other) => one(format!("expected list, got {}", pointer(other))),
    }
}

fn check_items(shape: Shape<'_>, items: &[Value]) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let mut element = String::new();
        if shape.list_is_atomic() {
            let _ = write!(element, "i:{index}");
        } else {
            if let Err(problem) = shape.write_item(item, &mut element) {
                out.extend(one(format!("element {index}: {problem}")));
                return out;
            }
            if !seen.insert(element.clone()) {
                out.extend(one(format!("duplicate entries for key {}", print_element(&element))));
            }
        }
        below(&element, check(shape.item(), item), &mut out);
    }
    out
}

fn check_scalar(shape: Shape<'_>, value: &Value) -> Vec<Problem> {
    let schema = match shape {
        Shape::Schema(schema, _) | Shape::Object(schema, _) => Some(schema),
        Shape::Deduced | Shape::Atomic => None,
    };
    match schema.map(scalar_type) {
        Some(Type::Integer) if !value.is_number() => {
            one(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Some(Type::String) if !value.is_string() => {
            let mut text = String::from("expected string, got &value.valueUnstructured{Value:");
            go_syntax(value, &mut text);
            text.push('}');
            one(text)
        }
        Some(Type::Boolean) if !value.is_boolean() => one(format!("expected boolean, got {}", pointer(value))),
        Some(Type::Any) | None if value.is_object() || value.is_array() => {
            one(format!("expected any scalar, got {}", pointer(value)))
        }
        _ => Vec::new(),
    }
}

/// The scalar type upstream checks: strings with a format are only checked to be scalars.
fn scalar_type(schema: &Schema) -> Type {
    match (schema.ty, schema.format.as_deref()) {
        (Type::Integer | Type::Number, _) => Type::Integer,
        (Type::String, None | Some("" | "byte")) => Type::String,
        (Type::Boolean, _) => Type::Boolean,
        _ => Type::Any,
    }
}

/// A wrapped value as `%v` prints it.
fn pointer(value: &Value) -> String {
    let mut out = String::from("&{");
    go_print(value, &mut out);
    out.push('}');
    out
}

/// A value as `%#v` prints it.
fn go_syntax(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Number(n) if n.is_f64() => {
            out.push_str(&windlass_cel::go::float::verbose(n.as_f64().unwrap_or_default()));
        }
        Value::Bool(_) | Value::Number(_) => {
            let _ = write!(out, "{value}");
        }
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                go_syntax(item, out);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[string]interface {}{");
            for (i, (name, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quote(name));
                out.push(':');
                go_syntax(item, out);
            }
            out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[track_caller]
    fn check_spec(spec: &Value, expected: &str) {
        let shape = Shape::root(builtin::definition(builtin::by_kind("apps", "v1", "Deployment").unwrap()));
        let outcome = validate(shape, &json!({"apiVersion": "apps/v1", "spec": spec}));
        assert_eq!(outcome.err().unwrap_or_default(), expected);
    }

    #[test]
    fn problems_read_as_upstream_words_them() {
        check_spec(
            &json!({"replicas": 1, "paused": true, "strategy": null, "template": {"metadata": {"creationTimestamp": null}}}),
            "",
        );
        check_spec(&json!({"bogus": 1}), ".spec.bogus: field not declared in schema");
        check_spec(&json!({"replicas": "many"}), ".spec.replicas: expected numeric (int or float), got string");
        check_spec(&json!({"paused": "yes"}), ".spec.paused: expected boolean, got &{yes}");
        check_spec(
            &json!({"strategy": {"type": 1}}),
            ".spec.strategy.type: expected string, got &value.valueUnstructured{Value:1}",
        );
        check_spec(&json!({"strategy": [1]}), ".spec.strategy: expected map, got &{[1]}");
        check_spec(
            &json!({"selector": {"matchExpressions": {"a": 1}}}),
            ".spec.selector.matchExpressions: expected list, got &{map[a:1]}",
        );
        let containers = |containers: Value| json!({"template": {"spec": {"containers": containers}}});
        check_spec(
            &containers(json!([{"name": "c"}, {"name": "c", "image": 1}])),
            "errors:\n  .spec.template.spec.containers: duplicate entries for key [name=\"c\"]\n  \
             .spec.template.spec.containers[name=\"c\"].image: expected string, got &value.valueUnstructured{Value:1}",
        );
        check_spec(
            &containers(json!([1])),
            ".spec.template.spec.containers: element 0: associative list with keys may not have non-map elements",
        );
        check_spec(
            &containers(json!([{"name": "c", "args": ["a", 1]}])),
            ".spec.template.spec.containers[name=\"c\"].args[1]: expected string, got &value.valueUnstructured{Value:1}",
        );
        // A missing key takes its default, and any scalar is a quantity.
        check_spec(&containers(json!([{"image": "c:1", "resources": {"limits": {"cpu": 1}}}])), "");
    }
}
