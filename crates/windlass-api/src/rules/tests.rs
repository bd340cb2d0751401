//! Rules on schemas: what they see, what they say, what they cost.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::schema::structural;

/// What is wrong with an object, and what was.
fn run(schema: &Json, object: &Json, old: Option<&Json>) -> (Vec<String>, Vec<String>) {
    let schema = structural::root(schema);
    let (mut errors, mut warnings) = (FieldErrors::default(), Vec::new());
    Rules::new(&schema).unwrap().validate(&schema, object, old, &mut errors, &mut warnings);
    (errors.0.iter().map(ToString::to_string).collect(), warnings)
}

#[track_caller]
fn check(spec: &Json, object: &Json, old: Option<&Json>, errors: &[&str]) {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let old = old.map(|old| json!({"spec": old}));
    assert_eq!(run(&schema, &json!({"spec": object}), old.as_ref()).0, errors);
}

fn with_rule(mut schema: Json, rule: Json) -> Json {
    schema["x-kubernetes-validations"] = Json::Array(vec![rule]);
    schema
}

#[test]
fn values_have_the_types_of_their_schema() {
    let spec = json!({"type": "object", "properties": {
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "long": {"type": "string", "format": "duration"},
        "blob": {"type": "string", "format": "byte"},
        "port": {"x-kubernetes-int-or-string": true},
        "ratio": {"type": "number"},
        "a-b": {"type": "string"},
        "namespace": {"type": "string"},
        "maybe": {"type": "string", "nullable": true},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }});
    let object = json!({"when": "2020-01-02T03:04:05Z", "day": "2020-01-02", "long": "90m", "blob": "aGk=", "port": 8,
        "ratio": 2, "a-b": "x", "namespace": "n", "maybe": null, "labels": {"a.b/c": "v"}});
    for rule in [
        "self.when.getHours() == 3 && self.day.getDate() == 2 && self.when > self.day",
        "self.long == duration('1h30m') && self.long.getMinutes() == 90",
        "self.blob == b'hi' && size(self.blob) == 2",
        "type(self.port) == int && self.port == 8 && self.ratio == 2.0",
        "self.a__dash__b == 'x' && self.__namespace__ == 'n' && self.namespace == 'n'",
        "!has(self.maybe) && self.?maybe.orValue('-') == '-'",
        "self.labels['a.b/c'] == 'v' && 'a.b/c' in self.labels && self.labels.all(k, v, k != v)",
    ] {
        check(&with_rule(spec.clone(), json!({"rule": rule})), &object, None, &[]);
    }
}

#[test]
fn only_names_of_metadata_are_visible() {
    let schema = |rule: &str| {
        json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": true}}})
    };
    let object = json!({"apiVersion": "e.com/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}},
        "t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}}});
    let rule =
        "self.kind == 'K' && self.metadata.name == 'n' && self.t.metadata.generateName == 'p-' && self.t.kind == 'Pod'";
    assert_eq!(run(&schema(rule), &object, None).0, Vec::<String>::new());
    let (errors, _) = run(&schema("has(self.metadata.labels)"), &object, None);
    assert!(errors[0].contains("undefined field 'labels'"), "{errors:?}");
    assert_eq!(run(&schema("self.metadata == oldSelf.metadata"), &object, Some(&object)).0, Vec::<String>::new());
}

#[test]
fn metadata_that_is_declared_in_full_is_visible_as_declared() {
    let schema = |names: Json, rule: &str| {
        let mut metadata = json!({"type": "object", "properties": {"namespace": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}});
        for name in names.as_array().unwrap() {
            metadata["properties"][name.as_str().unwrap()] = json!({"type": "string"});
        }
        json!({"type": "object", "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata}}}})
    };
    let object = json!({"t": {"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "n", "namespace": "s", "labels": {"a": "b"}}}});
    let rule = "self.metadata.namespace == 's' && self.metadata.labels['a'] == 'b' && self.metadata.name == 'n'";
    assert_eq!(run(&schema(json!(["name", "generateName"]), rule), &object, None).0, Vec::<String>::new());
    let (errors, _) = run(&schema(json!(["name"]), rule), &object, None);
    assert!(errors[0].contains("undefined field 'namespace'"), "{errors:?}");
    let (errors, _) = run(&schema(json!(["name", "generateName"]), "has(self.metadata.uid)"), &object, None);
    assert!(errors[0].contains("undefined field 'uid'"), "{errors:?}");
}

#[test]
fn failures_say_what_the_rule_says() {
    let int = json!({"type": "integer"});
    let cases = [
        (json!({"rule": "self > 5"}), "spec: Invalid value: 1: failed rule: self > 5"),
        (json!({"rule": "self > 5", "message": " too small "}), "spec: Invalid value: 1: too small"),
        (json!({"rule": "self > 5", "reason": "FieldValueForbidden"}), "spec: Forbidden: failed rule: self > 5"),
        (json!({"rule": "self > 5", "reason": "FieldValueDuplicate"}), "spec: Duplicate value: 1"),
        (json!({"rule": "self > 5", "messageExpression": "'got ' + string(self)"}), "spec: Invalid value: 1: got 1"),
        (
            json!({"rule": "self > 5", "messageExpression": "string(1 / (self - self))"}),
            "spec: Invalid value: 1: failed rule: self > 5",
        ),
        (json!({"rule": "self > 5", "messageExpression": "' '"}), "spec: Invalid value: 1: failed rule: self > 5"),
        (
            json!({"rule": "1 / (self - 1) > 5"}),
            "spec: Invalid value: \"integer\": division by zero evaluating rule: 1 / (self - 1) > 5",
        ),
        (
            json!({"rule": "dyn(self).startsWith('a')"}),
            "spec: Invalid value: \"integer\": 'no such overload': call arguments did not match a supported operator, \
             function or macro signature for rule: dyn(self).startsWith('a')",
        ),
    ];
    for (rule, expected) in cases {
        check(&with_rule(int.clone(), rule), &json!(1), None, &[expected]);
    }
    let object =
        json!({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}});
    let rule =
        json!({"rule": "false", "fieldPath": ".m['k']", "reason": "FieldValueRequired", "message": "k is needed"});
    check(&with_rule(object, rule), &json!({"m": {}}), None, &["spec.m[k]: Required value: k is needed"]);
}

#[test]
fn messages_see_plain_old_values_where_rules_look_at_them() {
    let string = json!({"type": "string", "maxLength": 9});
    let rule = |rule: &str, message: &str, optional: bool| {
        let mut rule = json!({"rule": rule, "message": "fixed", "messageExpression": message});
        if optional {
            rule["optionalOldSelf"] = json!(true);
        }
        with_rule(string.clone(), rule)
    };
    let old = json!("y");
    check(
        &rule("self == oldSelf", "'was ' + oldSelf", false),
        &json!("x"),
        Some(&old),
        &["spec: Invalid value: \"x\": was y"],
    );
    let fixed = "spec: Invalid value: \"x\": fixed";
    check(
        &rule("self == oldSelf.orValue('z')", "'was ' + oldSelf.orValue('z')", true),
        &json!("x"),
        Some(&old),
        &[fixed],
    );
    check(&rule("self == 'z'", "'was ' + oldSelf", false), &json!("x"), Some(&old), &[fixed]);
}

/// An object's metadata is never declared as a whole, so a whole object never counts as unchanged.
#[test]
fn rules_about_whole_objects_are_not_forgiven() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.spec.a > 5"}], "properties": {
        "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "self.a > 6"}],
            "properties": {"a": {"type": "integer"}}}}});
    let object = json!({"apiVersion": "e.com/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"a": 1}});
    let (errors, warnings) = run(&schema, &object, Some(&object));
    assert_eq!(errors, ["<nil>: Invalid value: failed rule: self.spec.a > 5"]);
    assert_eq!(warnings, ["spec: Invalid value: failed rule: self.a > 6"]);
}

#[test]
fn transition_rules_need_something_to_compare_with() {
    let rule = json!({"rule": "self == oldSelf", "message": "immutable"});
    let immutable = with_rule(json!({"type": "string"}), rule);
    let spec = json!({"type": "object", "properties": {"a": immutable, "b": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": immutable}}}}});
    check(&spec, &json!({"a": "x"}), None, &[]);
    check(&spec, &json!({"a": "x"}), Some(&json!({})), &[]);
    check(&spec, &json!({"a": "x"}), Some(&json!({"a": "y"})), &["spec.a: Invalid value: \"x\": immutable"]);
    // Items are found by their keys, wherever they are.
    let old = json!({"b": [{"k": "1", "v": "x"}, {"k": "2", "v": "y"}]});
    let new = json!({"b": [{"k": "2", "v": "y"}, {"k": "3", "v": "z"}, {"k": "1", "v": "changed"}]});
    check(&spec, &new, Some(&old), &["spec.b[2].v: Invalid value: \"changed\": immutable"]);
    let rule = json!({"rule": "oldSelf.orValue('none') != 'none' || self == 'first'", "optionalOldSelf": true});
    let optional = with_rule(json!({"type": "string"}), rule);
    check(&optional, &json!("first"), None, &[]);
    check(&optional, &json!("other"), Some(&json!("first")), &[]);
    assert_eq!(
        run(&json!({"type": "object", "properties": {"spec": optional}}), &json!({"spec": "other"}), None).0.len(),
        1
    );
}

#[test]
fn what_did_not_change_is_only_warned_about() {
    let spec = json!({"type": "object", "properties": {
        "n": with_rule(json!({"type": "integer"}), json!({"rule": "self < 10", "message": "too big"})),
        "l": {"type": "array", "items": with_rule(json!({"type": "integer"}), json!({"rule": "self < 10"}))},
        "x": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let old = json!({"spec": {"n": 50, "l": [50], "x": "a"}});
    let (errors, warnings) = run(&schema, &json!({"spec": {"n": 50, "l": [50], "x": "b"}}), Some(&old));
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(
        warnings,
        ["spec.l[0]: Invalid value: 50: failed rule: self < 10", "spec.n: Invalid value: 50: too big"]
    );
    let (errors, warnings) = run(&schema, &json!({"spec": {"n": 51, "l": [50, 1], "x": "a"}}), Some(&old));
    assert_eq!(errors, ["spec.l[0]: Invalid value: 50: failed rule: self < 10", "spec.n: Invalid value: 51: too big"]);
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn lists_compare_and_merge_as_their_type_says() {
    let spec = json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "atomic": {"type": "array", "items": {"type": "string"}}}});
    let old = json!({"set": ["a", "b"], "map": [{"k": "1", "v": 1}, {"k": "2", "v": 2}], "atomic": ["a", "b"]});
    let new = json!({"set": ["b", "a"], "map": [{"k": "2", "v": 2}, {"k": "1", "v": 1}], "atomic": ["b", "a"]});
    for rule in [
        "self.set == oldSelf.set && self.map == oldSelf.map && self.atomic != oldSelf.atomic",
        "self.set + oldSelf.set == ['a', 'b'] && (self.map + oldSelf.map).size() == 2",
        "self.atomic + ['c'] == ['b', 'a', 'c']",
    ] {
        check(&with_rule(spec.clone(), json!({"rule": rule})), &new, Some(&old), &[]);
    }
}

#[test]
fn budgets_end_evaluation() {
    let numbers: Vec<i64> = (0..2_000).collect();
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let rule = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
    let expected = format!(
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules \
         will be run due to call cost exceeds limit for rule: {rule}"
    );
    check(&with_rule(list.clone(), json!({"rule": rule})), &json!(numbers), None, &[&expected]);
    // Each item costs a little; together they cost too much.
    let item = with_rule(json!({"type": "string"}), json!({"rule": "self.matches('^[a-z]{1,100}$')"}));
    let list = json!({"type": "array", "items": item});
    let long = "x".repeat(20_000);
    let texts = vec![long; 2_000];
    let schema = json!({"type": "object", "properties": {"spec": list}});
    let (errors, _) = run(&schema, &json!({"spec": texts}), None);
    let last = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(errors.last().unwrap().ends_with(last), "{:?}", errors.last());
}

/// What a rule costs: at most, and for one object.
fn costs(rule: &str, schema: &Json, object: &Json) -> (u64, u64) {
    let schema = structural::root(schema);
    let declared = declare_root(&schema).unwrap();
    let validation = Validation { rule: rule.to_owned(), ..Validation::default() };
    let compiled = Place::new(&declared).compile(&validation);
    let program = compiled.program.unwrap_or_else(|| panic!("{rule}: {:?}", compiled.problem));
    let mut globals = Selves { value: object, old: Some(object), shape: Shape::Schema(&schema), optional: false };
    let (_, cost) = program.eval(&mut globals, CALL_LIMIT);
    (program.max_cost, cost)
}

#[test]
fn costs_are_upstreams() {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"}, "s": {"type": "string", "maxLength": 10}, "u": {"type": "string"},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}},
        "m": {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}}}});
    let object = json!({"i": 3, "s": "0123456789", "u": "u", "l": ["a", "b"], "m": {"k": 1}});
    for (rule, expected) in [
        ("true", (0, 0)),
        ("self.i > 1", (3, 3)),
        ("has(self.i)", (1, 1)),
        ("self.s == 'abc'", (3, 3)),
        ("self.s.startsWith('01')", (3, 3)),
        ("self.s.matches('^[a-z]+$')", (12, 6)),
        ("self.l.all(x, x.size() > 0)", (33, 15)),
        ("self.l.exists(x, x == 'b')", (33, 15)),
        ("self.m.all(k, self.m[k] > 0)", (27, 10)),
        ("'a' in self.l", (7, 4)),
        ("self.i in [1, 2, 3]", (15, 2)),
        ("self.s + self.s == 'x'", (13, 7)),
        ("self.i == 1 ? true : self.u.contains('abc')", (314_577, 6)),
        ("self.?i.orValue(1) == 1", (4, 3)),
    ] {
        assert_eq!(costs(rule, &schema, &object), expected, "{rule}");
    }
}

#[test]
fn uncosted_work_is_limited_for_the_whole_object() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let rules: Vec<Json> = (0..10).map(|_| json!({"rule": "self.all(a, (self + self).size() > a)"})).collect();
    let spec = |rules: &[Json]| {
        let mut list = list.clone();
        list["x-kubernetes-validations"] = rules.into();
        list
    };
    let numbers: Vec<i64> = (0..1_500).collect();
    check(&spec(&rules[..1]), &json!(numbers), None, &[]);
    let schema = json!({"type": "object", "properties": {"spec": spec(&rules)}});
    let (errors, _) = run(&schema, &json!({"spec": numbers}), None);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("no further validation rules will be run"), "{errors:?}");
}

/// Whether checking an object with so many names, and metadata as servers keep it, may take long.
fn is_long(rule: &str, at_root: bool, names: usize) -> bool {
    let rule = json!([{"rule": rule}]);
    let mut schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "names": {"type": "array", "items": {"type": "string"}}}}}});
    let at = if at_root { &mut schema } else { &mut schema["properties"]["spec"] };
    at["x-kubernetes-validations"] = rule;
    let names: Vec<String> = (0..names).map(|i| format!("n{i}")).collect();
    let fields: serde_json::Map<_, _> = (0..100).map(|i| (format!("f:field-{i}"), json!({}))).collect();
    let object = json!({"apiVersion": "test.io/v1", "kind": "Good", "spec": {"names": names}, "metadata": {
        "name": "a", "uid": "5b0c5b8e-7b5c-4a53-8d3c-0f6d0e2b7f10", "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]}});
    let rules = Rules::new(&structural::root(&schema)).unwrap();
    growth::is_long(rules.nanoseconds(&object, Some(&object)))
}

#[test]
fn rules_are_long_by_what_they_see() {
    let below = "self.names.all(x, self.names.exists_one(y, x == y))";
    let root = "self.spec.names.all(x, self.spec.names.exists_one(y, x == y))";
    for (rule, at_root) in [(below, false), (root, true)] {
        assert!(!is_long(rule, at_root, 5), "{rule}");
        assert!(is_long(rule, at_root, 2_000), "{rule}");
    }
}
