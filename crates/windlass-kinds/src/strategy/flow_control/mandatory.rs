//! The FlowSchemas and PriorityLevelConfigurations that no cluster is without: their specs are fixed.
//!
//! Mirrors the mandatory objects of upstream's `flowcontrol/bootstrap/default.go`, and the check that
//! `flowcontrol/validation` makes of them. A violation shows the whole spec as Go prints its internal types.

use serde_json::{Value, json};

use crate::field::{ErrorKind, FieldError, FieldErrors, Path, go_json};
use crate::validation::access::{Access, AccessMut, semantically_equal};

/// The mandatory PriorityLevelConfigurations: names and specs.
#[must_use]
pub fn levels() -> [(&'static str, Value); 2] {
    let catch_all = json!({"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0});
    let exempt = json!({"nominalConcurrencyShares": 0, "lendablePercent": 0});
    [
        ("catch-all", json!({"type": "Limited", "limited": catch_all})),
        ("exempt", json!({"type": "Exempt", "exempt": exempt})),
    ]
}

/// The mandatory FlowSchemas: names and specs.
#[must_use]
pub fn schemas() -> [(&'static str, Value); 2] {
    let everything = |groups: &[&str]| {
        let subjects: Vec<Value> =
            groups.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect();
        let resources =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
        let urls = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
        json!([{"subjects": subjects, "resourceRules": [resources], "nonResourceRules": [urls]}])
    };
    let exempt = json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1,
        "rules": everything(&["system:masters"])});
    let catch_all = json!({"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 10_000,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": everything(&["system:unauthenticated", "system:authenticated"])});
    [("exempt", exempt), ("catch-all", catch_all)]
}

/// Checks that a FlowSchema with the name of a mandatory one has its spec.
pub(super) fn check_schema(name: &str, spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some((_, fixed)) = schemas().into_iter().find(|(mandatory, _)| *mandatory == name) else { return };
    if !semantically_equal(spec, &fixed) {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown_schema(spec), detail));
    }
}

/// Checks that a PriorityLevelConfiguration with the name of a mandatory one has its spec; the shares of `exempt` are free.
pub(super) fn check_level(name: &str, spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let Some((_, fixed)) = levels().into_iter().find(|(mandatory, _)| *mandatory == name) else { return };
    let mut compared = spec.clone();
    let mut besides = "";
    if name == "exempt" {
        compared.copy_field("exempt", &fixed);
        besides = " except the 'spec.exempt' field";
    }
    if !semantically_equal(&compared, &fixed) {
        let detail = format!("spec of '{name}'{besides} must equal the fixed value");
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown_level(spec), detail));
    }
}

/// The method by which a FlowSchema tells flows apart, as Go prints it.
pub(super) fn shown_method(method: &Value) -> String {
    if method.is_null() { "null".to_owned() } else { format!(r#"{{"Type":{}}}"#, text(method, "type")) }
}

fn shown_schema(spec: &Value) -> String {
    format!(
        r#"{{"PriorityLevelConfiguration":{},"MatchingPrecedence":{},"DistinguisherMethod":{},"Rules":{}}}"#,
        named(spec.at("priorityLevelConfiguration")),
        spec.int("matchingPrecedence"),
        shown_method(spec.at("distinguisherMethod")),
        list(spec, "rules", shown_rule),
    )
}

fn shown_rule(rule: &Value) -> String {
    let subject = |subject: &Value| {
        let account = match subject.at("serviceAccount") {
            Value::Null => "null".to_owned(),
            account => {
                format!(r#"{{"Namespace":{},"Name":{}}}"#, text(account, "namespace"), text(account, "name"))
            }
        };
        let one_of = |field: &str| match subject.at(field) {
            Value::Null => "null".to_owned(),
            value => named(value),
        };
        let (kind, user, group) = (text(subject, "kind"), one_of("user"), one_of("group"));
        format!(r#"{{"Kind":{kind},"User":{user},"Group":{group},"ServiceAccount":{account}}}"#)
    };
    let resources = |rule: &Value| {
        format!(
            r#"{{"Verbs":{},"APIGroups":{},"Resources":{},"ClusterScope":{},"Namespaces":{}}}"#,
            go_json(rule.at("verbs")),
            go_json(rule.at("apiGroups")),
            go_json(rule.at("resources")),
            rule.flag("clusterScope"),
            go_json(rule.at("namespaces")),
        )
    };
    let urls = |rule: &Value| {
        let (verbs, urls) = (go_json(rule.at("verbs")), go_json(rule.at("nonResourceURLs")));
        format!(r#"{{"Verbs":{verbs},"NonResourceURLs":{urls}}}"#)
    };
    format!(
        r#"{{"Subjects":{},"ResourceRules":{},"NonResourceRules":{}}}"#,
        list(rule, "subjects", subject),
        list(rule, "resourceRules", resources),
        list(rule, "nonResourceRules", urls),
    )
}

fn shown_level(spec: &Value) -> String {
    let limited = match spec.at("limited") {
        Value::Null => "null".to_owned(),
        limited => format!(
            r#"{{"NominalConcurrencyShares":{},"LimitResponse":{},"LendablePercent":{},"BorrowingLimitPercent":{}}}"#,
            limited.int("nominalConcurrencyShares"),
            shown_response(limited.at("limitResponse")),
            limited.at("lendablePercent"),
            limited.at("borrowingLimitPercent"),
        ),
    };
    let exempt = match spec.at("exempt") {
        Value::Null => "null".to_owned(),
        exempt => format!(
            r#"{{"NominalConcurrencyShares":{},"LendablePercent":{}}}"#,
            exempt.at("nominalConcurrencyShares"),
            exempt.at("lendablePercent"),
        ),
    };
    format!(r#"{{"Type":{},"Limited":{limited},"Exempt":{exempt}}}"#, text(spec, "type"))
}

fn shown_response(response: &Value) -> String {
    let queuing = match response.at("queuing") {
        Value::Null => "null".to_owned(),
        queuing => format!(
            r#"{{"Queues":{},"HandSize":{},"QueueLengthLimit":{}}}"#,
            queuing.int("queues"),
            queuing.int("handSize"),
            queuing.int("queueLengthLimit"),
        ),
    };
    format!(r#"{{"Type":{},"Queuing":{queuing}}}"#, text(response, "type"))
}

fn named(value: &Value) -> String {
    format!(r#"{{"Name":{}}}"#, text(value, "name"))
}

fn text(owner: &Value, field: &str) -> String {
    go_json(&Value::from(owner.text(field)))
}

/// A list as Go prints it: one that is not set is `null`.
fn list(owner: &Value, field: &str, shown: impl Fn(&Value) -> String) -> String {
    if !owner.has(field) {
        return "null".to_owned();
    }
    let items: Vec<String> = owner.list(field).iter().map(shown).collect();
    format!("[{}]", items.join(","))
}
