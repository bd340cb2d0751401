//! Value checks, worded as a real API server words them.

// Tables of `json!` literals read better by value.
#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::*;
use crate::schema::structural;

fn schema(spec: &Value) -> Schema {
    structural::root(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}))
}

fn violations(schema: &Schema, object: &Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    validate(object, schema, "", &mut errors);
    embedded::validate(object, schema, &Path::root(), &mut errors);
    list_type::validate(object, schema, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(spec: &Value, value: Value, expected: &[&str]) {
    assert_eq!(violations(&schema(spec), &json!({"spec": value})), expected);
}

#[test]
fn types() {
    let spec = json!({
        "int": {"type": "integer"}, "str": {"type": "string"}, "b": {"type": "boolean"}, "n": {"type": "number"},
        "ios": {"x-kubernetes-int-or-string": true}, "nul": {"type": "string", "nullable": true},
        "arr": {"type": "array", "items": {"type": "integer"}}, "any": {"x-kubernetes-preserve-unknown-fields": true},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    });
    check(
        &spec,
        json!({"int": 2.0, "str": "", "b": false, "n": 1, "ios": "5%", "nul": null, "arr": [], "any": [1]}),
        &[],
    );
    check(&spec, json!({"ios": 80, "map": {"a": 1}}), &[]);
    check(
        &spec,
        json!({"int": 1.5}),
        &[
            r#"spec.int: Invalid value: "number": spec.int in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.int"#,
        ],
    );
    for (value, expected) in [
        (
            json!({"int": "x"}),
            r#"spec.int: Invalid value: "string": spec.int in body must be of type integer: "string""#,
        ),
        (json!({"b": "true"}), r#"spec.b: Invalid value: "string": spec.b in body must be of type boolean: "string""#),
        (json!({"str": {}}), r#"spec.str: Invalid value: "object": spec.str in body must be of type string: "object""#),
        (
            json!({"ios": true}),
            r#"spec.ios: Invalid value: "boolean": spec.ios in body must be of type integer,string: "boolean""#,
        ),
        (
            json!({"arr": [null]}),
            r#"spec.arr[0]: Invalid value: "null": spec.arr[0] in body must be of type integer: "null""#,
        ),
        (
            json!({"map": {"a": "x"}}),
            r#"spec.map.a: Invalid value: "string": spec.map.a in body must be of type integer: "string""#,
        ),
    ] {
        check(&spec, value, &[expected]);
    }
}

#[test]
fn numbers() {
    let spec = json!({
        "int": {"type": "integer", "minimum": 1, "maximum": 10},
        "ex": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": true},
        "mult": {"type": "number", "multipleOf": 0.5}, "even": {"type": "integer", "multipleOf": 2},
        "half": {"type": "number", "minimum": 1.5}, "i32": {"type": "integer", "format": "int32"},
        "i64": {"type": "integer", "format": "int64"}, "big": {"type": "number", "maximum": 1e21},
    });
    check(&spec, json!({"int": 1, "ex": 2, "mult": 1.5, "even": 4, "i64": 9_007_199_254_740_993_i64}), &[]);
    for (value, expected) in [
        (json!({"int": 0}), "spec.int: Invalid value: 0: spec.int in body should be greater than or equal to 1"),
        (json!({"int": 11}), "spec.int: Invalid value: 11: spec.int in body should be less than or equal to 10"),
        (json!({"ex": 1}), "spec.ex: Invalid value: 1: spec.ex in body should be greater than 1"),
        (json!({"ex": 5}), "spec.ex: Invalid value: 5: spec.ex in body should be less than 5"),
        (json!({"mult": 0.3}), "spec.mult: Invalid value: 0.3: spec.mult in body should be a multiple of 0.5"),
        (json!({"even": 3}), "spec.even: Invalid value: 3: spec.even in body should be a multiple of 2"),
        (
            json!({"half": 1.25}),
            "spec.half: Invalid value: 1.25: spec.half in body should be greater than or equal to 1.5",
        ),
        (
            json!({"big": 2e21}),
            "spec.big: Invalid value: 2e+21: spec.big in body should be less than or equal to 1e+21",
        ),
        (
            json!({"i32": 3_000_000_000_i64}),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i32"#,
        ),
    ] {
        check(&spec, value, &[expected]);
    }
}

#[test]
fn strings_and_formats() {
    let spec = json!({
        "str": {"type": "string", "minLength": 2, "maxLength": 4}, "pat": {"type": "string", "pattern": "^a+$"},
        "when": {"type": "string", "format": "date-time"}, "odd": {"type": "string", "format": "fax"},
        "quant": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+(m|Ki)?$"},
    });
    check(&spec, json!({"str": "éééé", "pat": "aa", "when": "2020-01-01T00:00:00Z", "odd": "x", "quant": 5}), &[]);
    for (value, expected) in [
        (json!({"str": "a"}), r#"spec.str: Invalid value: "a": spec.str in body should be at least 2 chars long"#),
        (json!({"str": "abcde"}), "spec.str: Too long: may not be more than 4 bytes"),
        (json!({"pat": "ab"}), r#"spec.pat: Invalid value: "ab": spec.pat in body should match '^a+$'"#),
        (json!({"quant": "x"}), r#"spec.quant: Invalid value: "x": spec.quant in body should match '^[0-9]+(m|Ki)?$'"#),
        (json!({"when": "no"}), r#"spec.when: Invalid value: "no": spec.when in body must be of type date-time: "no""#),
        (
            json!({"when": 5}),
            r#"spec.when: Invalid value: "int64": spec.when in body must be of type date-time: "int64""#,
        ),
    ] {
        check(&spec, value, &[expected]);
    }
}

#[test]
fn enumerations_and_required_fields() {
    let spec = json!({
        "en": {"type": "string", "enum": ["A", "B"]}, "num": {"type": "integer", "enum": [1, 2]},
        "req": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x", "y"]},
    });
    check(&spec, json!({"en": "A", "num": 2}), &[]);
    check(&spec, json!({"en": "C"}), &[r#"spec.en: Unsupported value: "C": supported values: "A", "B""#]);
    check(&spec, json!({"num": 3}), &[r#"spec.num: Unsupported value: 3: supported values: "1", "2""#]);
    check(
        &spec,
        json!({"en": 5}),
        &[
            r#"spec.en: Invalid value: "integer": spec.en in body must be of type string: "integer""#,
            r#"spec.en: Unsupported value: 5: supported values: "A", "B""#,
        ],
    );
    check(&spec, json!({"req": {}}), &["spec.req.x: Required value", "spec.req.y: Required value"]);
}

#[test]
fn sizes() {
    let spec = json!({
        "arr": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
        "uniq": {"type": "array", "items": {"type": "integer"}, "uniqueItems": true},
    });
    check(&spec, json!({"arr": []}), &["spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items"]);
    check(&spec, json!({"arr": [1, 2, 3]}), &["spec.arr: Too many: 3: must have at most 2 items"]);
    check(
        &spec,
        json!({"map": {}}),
        &["spec.map: Invalid value: 0: spec.map in body should have at least 1 properties"],
    );
    check(&spec, json!({"map": {"a": 1, "b": 2, "c": 3}}), &["spec.map: Too many: 3: must have at most 2 items"]);
    check(
        &spec,
        json!({"uniq": [1, 1]}),
        &[r#"spec.uniq: Invalid value: "": spec.uniq in body shouldn't contain duplicates"#],
    );
}

#[test]
fn closed_objects() {
    let spec = json!({"shut": {"type": "object", "additionalProperties": false}});
    check(&spec, json!({"shut": {}}), &[]);
    let forbidden = r#"spec.shut: Invalid value: "a": spec.shut.a in body is a forbidden property"#;
    check(&spec, json!({"shut": {"a": 1}}), &[forbidden]);
}

#[test]
fn combinations() {
    let two = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    let spec = json!({
        "one": {"type": "object", "properties": two, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "any": {"type": "object", "properties": two, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "all": {"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]},
        "no": {"type": "string", "not": {"enum": ["bad"]}},
    });
    check(&spec, json!({"one": {"a": 1}, "any": {"a": 1, "b": 1}, "all": 2, "no": "good"}), &[]);
    check(
        &spec,
        json!({"one": {}}),
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.one.a: Required value",
        ],
    );
    check(
        &spec,
        json!({"one": {"a": 1, "b": 1}}),
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        &spec,
        json!({"any": {}}),
        &[
            r#"<nil>: Invalid value: "": "spec.any" must validate at least one schema (anyOf)"#,
            "spec.any.a: Required value",
        ],
    );
    check(
        &spec,
        json!({"all": 9}),
        &[
            "spec.all: Invalid value: 9: spec.all in body should be less than or equal to 3",
            r#"<nil>: Invalid value: "": "spec.all" must validate all the schemas (allOf)"#,
        ],
    );
    check(&spec, json!({"no": "bad"}), &[r#"<nil>: Invalid value: "": "spec.no" must not validate the schema (not)"#]);
}

#[test]
fn list_types() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "p": {"type": "string"}}});
    let spec = json!({
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"]},
        "one": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    });
    check(&spec, json!({"set": ["a", "b", "a", "a"]}), &[r#"spec.set[2]: Duplicate value: "a""#]);
    check(&spec, json!({"map": [{"k": "a", "p": "T"}, {"k": "a", "p": "U"}]}), &[]);
    check(
        &spec,
        json!({"map": [{"k": "a", "p": "T"}, {"k": "a", "p": "T"}]}),
        &[r#"spec.map[1]: Duplicate value: {"k":"a","p":"T"}"#],
    );
    check(&spec, json!({"one": [{"k": "a"}, {"k": "a"}, {}]}), &[r#"spec.one[1]: Duplicate value: {"k":"a"}"#]);
}

#[test]
fn embedded_resources() {
    let spec = json!({"tpl": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}});
    check(&spec, json!({"tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}}), &[]);
    check(&spec, json!({"tpl": {"apiVersion": "v1"}}), &["spec.tpl.kind: Required value"]);
    check(
        &spec,
        json!({"tpl": {"apiVersion": "a/b/c", "kind": "Pod"}}),
        &[r#"spec.tpl.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#],
    );
    let labels =
        r#"{"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#;
    check(
        &spec,
        json!({"tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}}),
        &[&format!("spec.tpl.metadata: Invalid value: {labels}")],
    );
    check(
        &spec,
        json!({"tpl": {"apiVersion": "v1", "kind": "Pod", "metadata": 1}}),
        &["spec.tpl.metadata: Invalid value: 1: json: cannot unmarshal number into Go value of type v1.ObjectMeta"],
    );
    let found = violations(
        &schema(&spec),
        &json!({"spec": {"tpl": {"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "Bad Name", "labels": {"a b": "c"}}}}}),
    );
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with(r#"spec.tpl.metadata.labels: Invalid value: "a b": name part must consist"#),
        "{}",
        found[0]
    );
}

#[test]
fn what_the_author_demands_of_metadata_is_checked() {
    let schema = structural::root(&json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}}));
    let found = violations(&schema, &json!({"metadata": {"name": "long", "labels": {"a": "b"}}}));
    assert_eq!(found, ["metadata.name: Too long: may not be more than 3 bytes"]);
}

#[test]
fn status_violations_name_the_field_under_status() {
    let schema =
        structural::Reader::new().value(&json!({"type": "object", "properties": {"ready": {"type": "boolean"}}}));
    let mut errors = FieldErrors::default();
    validate(&json!({"ready": "x"}), &schema, "status", &mut errors);
    let expected = r#"status.ready: Invalid value: "string": ready in body must be of type boolean: "string""#;
    assert_eq!(errors.to_string(), expected);
}

#[track_caller]
fn check_update(spec: &Value, old: Value, new: Value, expected: &[&str]) {
    let mut errors = FieldErrors::default();
    validate_update(&json!({"spec": new}), &json!({"spec": old}), &schema(spec), "", &mut errors);
    let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn unchanged_violations_are_forgiven() {
    let short = json!({"type": "string", "maxLength": 2});
    let spec = json!({
        "a": short, "b": {"type": "string"},
        "list": {"type": "array", "items": short},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": short}}},
    });
    check_update(&spec, json!({"a": "long"}), json!({"a": "long", "b": "x"}), &[]);
    check_update(
        &spec,
        json!({"a": "long"}),
        json!({"a": "other"}),
        &["spec.a: Too long: may not be more than 2 bytes"],
    );
    check_update(&spec, json!({}), json!({"a": "long"}), &["spec.a: Too long: may not be more than 2 bytes"]);
    check_update(&spec, json!({"list": ["long"]}), json!({"list": ["long"], "b": "x"}), &[]);
    check_update(
        &spec,
        json!({"list": ["long"]}),
        json!({"list": ["long", "b"]}),
        &["spec.list[0]: Too long: may not be more than 2 bytes"],
    );
    check_update(
        &spec,
        json!({"map": [{"k": "1", "v": "long"}, {"k": "2", "v": "long"}]}),
        json!({"map": [{"k": "3", "v": "x"}, {"k": "2", "v": "long"}, {"k": "1", "v": "other"}]}),
        &["spec.map[2].v: Too long: may not be more than 2 bytes"],
    );
}
