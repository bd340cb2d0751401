//! What policies decide.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::validating::{Denial, decide};
use super::*;
use crate::admission_config::problems;
use windlass_kinds::strategy::{Expression, ExpressionKind};

/// What a policy with this spec refuses about a ConfigMap.
fn run(spec: &Value, object: &Value, old: &Value, params: &Value) -> Vec<Denial> {
    let policy = Policy::new(&json!({"metadata": {"name": "p"}, "spec": spec}), false);
    let subject = Subject { user: crate::user::User::admin(), policy: Arc::default() };
    let request = json!({"operation": "CREATE", "name": "x", "namespace": "n", "userInfo": {"username": "alice"}});
    let namespace = json!({"metadata": {"name": "n", "labels": {"team": "blue"}}});
    let input = Input {
        object,
        old_object: old,
        namespace: &namespace,
        request: &request,
        params,
        subject: &subject,
        variables: &policy.variables,
    };
    decide(&policy, input).denials
}

#[track_caller]
fn check(spec: &Value, object: &Value, expected: &[(&str, &str)]) {
    let found = run(spec, object, &Value::Null, &json!({"max": 3}));
    let found: Vec<(&str, &str)> = found.iter().map(|d| (d.message.as_str(), d.reason.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn validations_say_why() {
    let spec = json!({"variables": [{"name": "n", "expression": "int(object.data.n)"},
        {"name": "twice", "expression": "variables.n * 2"}],
    "validations": [
        {"expression": "variables.n < 10", "message": " too big "},
        {"expression": "variables.twice != 10", "messageExpression": "'five is bad: ' + string(variables.n)", "reason": "Forbidden"},
        {"expression": "object.metadata.name != 'gone'"},
        {"expression": "namespaceObject.metadata.labels.team == 'blue' && request.userInfo.username == 'alice'"},
        {"expression": "oldObject == null && authorizer.requestResource.check('get').allowed()"},
    ]});
    let object = |n: &str, name: &str| json!({"metadata": {"name": name}, "data": {"n": n}});
    check(&spec, &object("1", "a"), &[]);
    check(&spec, &object("10", "a"), &[("too big", "")]);
    check(&spec, &object("5", "a"), &[("five is bad: 5", "Forbidden")]);
    check(&spec, &object("1", "gone"), &[("failed expression: object.metadata.name != 'gone'", "")]);
    let why = "resulted in error: composited variable";
    let found = run(&spec, &object("x", "a"), &Value::Null, &Value::Null);
    assert_eq!(
        found[0].message,
        format!(
            "expression 'variables.n < 10' {why} \"n\" fails to evaluate: type conversion error from 'string' to 'int'"
        )
    );
}

#[test]
fn conditions_and_failure_policies() {
    let spec = json!({"matchConditions": [{"name": "c", "expression": "object.kind == 'A'"}],
        "validations": [{"expression": "false"}]});
    check(&spec, &json!({"kind": "B"}), &[]);
    check(&spec, &json!({"kind": "A"}), &[("failed expression: false", "")]);
    check(&spec, &json!({}), &[("expression 'object.kind == 'A'' resulted in error: no such key: kind", "")]);
    let ignoring = json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.x"}, {"expression": "object.x.y == 1"}]});
    check(&ignoring, &json!({}), &[]);
    let failing = json!({"validations": [{"expression": "1"}]});
    check(&failing, &json!({}), &[("compilation error: must evaluate to bool but got int", "")]);
}

#[test]
fn parameters_are_there_if_a_kind_is_named() {
    let rule =
        json!([{"expression": "object.n <= params.max", "messageExpression": "'at most ' + string(params.max)"}]);
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": rule});
    check(&spec, &json!({"n": 3}), &[]);
    check(&spec, &json!({"n": 4}), &[("at most 3", "")]);
    let without = json!({"validations": rule});
    assert!(
        run(&without, &json!({}), &Value::Null, &Value::Null)[0].message.contains("undeclared reference to 'params'")
    );
}

#[test]
fn no_policy_evaluates_for_long() {
    let numbers: Vec<i64> = (0..3_000).collect();
    let loops = "object.l.all(a, object.l.all(b, a + b >= 0))";
    let spec =
        json!({"variables": [{"name": "v", "expression": loops}], "validations": [{"expression": "variables.v"}]});
    let found = run(&spec, &json!({"l": numbers}), &Value::Null, &Value::Null);
    assert!(found[0].message.ends_with("operation cancelled: actual cost limit exceeded"), "{found:?}");
}

#[test]
fn expressions_that_do_not_compile_are_refused() {
    let expression = |kind: ExpressionKind, text: &str| Expression {
        field: String::new(),
        text: text.to_owned(),
        kind,
        params: false,
    };
    let found = problems(&[
        expression(ExpressionKind::Variable("a".to_owned()), "1"),
        expression(ExpressionKind::Validation, "variables.a == 1"),
        expression(ExpressionKind::Validation, "variables.b == 1"),
        expression(ExpressionKind::Validation, "1 + 1"),
        expression(ExpressionKind::Message, "authorizer.path('/').check('get').reason()"),
        expression(ExpressionKind::MatchCondition, "variables.a == 1"),
        expression(ExpressionKind::AuditAnnotation, "null"),
        expression(ExpressionKind::ApplyConfiguration, "Object{spec: Object.spec{replicas: 1}}"),
        expression(
            ExpressionKind::JsonPatch,
            "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c'), value: 1}]",
        ),
        expression(ExpressionKind::JsonPatch, "[1]"),
    ]);
    let words = [
        "",
        "",
        "undefined field 'b'",
        "must evaluate to bool but got int",
        "undeclared reference to 'authorizer'",
        "undeclared reference to 'variables'",
        "",
        "",
        "",
        "must evaluate to list(JSONPatch) but got list(int)",
    ];
    for (found, words) in found.iter().zip(words) {
        let found = found.as_deref().unwrap_or_default();
        assert!(found.contains(words) && found.is_empty() == words.is_empty(), "{found:?} {words:?}");
    }
}
