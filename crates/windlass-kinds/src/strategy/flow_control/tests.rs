//! What FlowSchemas and PriorityLevelConfigurations are refused for, in upstream's words.

use serde_json::{Value, json};

use super::super::testing::{create_errors, created, status_errors};
use super::*;

#[test]
fn flow_schemas_are_defaulted() {
    let schema = schema(&json!({}));
    assert_eq!(created(&FlowSchema, &schema)["spec"]["matchingPrecedence"], 1000);
    assert_eq!(create_errors(&FlowSchema, &schema), "[]");
}

#[test]
fn priority_levels_are_defaulted() {
    let level = level(&json!({"limitResponse": {"type": "Queue", "queuing": {}}}));
    let made = created(&PriorityLevel, &level);
    assert_eq!(made["spec"]["limited"]["nominalConcurrencyShares"], 30);
    assert_eq!(made["spec"]["limited"]["limitResponse"]["queuing"]["queues"], 64);
    assert_eq!(create_errors(&PriorityLevel, &level), "[]");
}

#[test]
fn flow_schemas_refer_to_a_level_and_have_a_precedence() {
    let check = |change: Value, expected: &str| assert_eq!(create_errors(&FlowSchema, &schema(&change)), expected);
    let reference = "spec.priorityLevelConfiguration.name: Required value: must reference a priority level";
    check(json!({"priorityLevelConfiguration": {}}), reference);
    check(json!({"matchingPrecedence": -1}), "spec.matchingPrecedence: Invalid value: -1: must be a positive value");
    check(
        json!({"matchingPrecedence": 10_001}),
        "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
    );
    check(
        json!({"matchingPrecedence": 1}),
        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
    );
    check(
        json!({"distinguisherMethod": {"type": "ByShoeSize"}}),
        r#"spec.distinguisherMethod.type: Unsupported value: {"Type":"ByShoeSize"}: supported values: "ByNamespace", "ByUser""#,
    );
    check(json!({"distinguisherMethod": {"type": "ByUser"}, "matchingPrecedence": 10_000}), "[]");
}

#[test]
fn rules_of_flow_schemas_name_what_requests_have() {
    let resources = |change: Value| {
        let mut rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["ns"]});
        merge(&mut rule, &change);
        json!({"resourceRules": [rule], "nonResourceRules": null})
    };
    let urls = |change: Value| {
        let mut rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]});
        merge(&mut rule, &change);
        json!({"nonResourceRules": [rule]})
    };
    let check = |change: Value, expected: &str| {
        let found = create_errors(&FlowSchema, &with_rule(&change));
        assert_eq!(found.replace("spec.rules[0]", "RULE"), expected, "{change}");
    };
    let verbs = r#""create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#;
    check(
        json!({"nonResourceRules": null}),
        "RULE: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
    );
    check(resources(json!({})), "[]");
    check(
        resources(json!({"verbs": ["get", "steal"]})),
        &format!(r#"RULE.resourceRules[0].verbs: Unsupported value: ["get","steal"]: supported values: {verbs}"#),
    );
    check(
        resources(json!({"verbs": ["get", "*"]})),
        r#"RULE.resourceRules[0].verbs: Invalid value: ["get","*"]: if '*' is present, must not specify other verbs"#,
    );
    check(
        resources(json!({"apiGroups": []})),
        "RULE.resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
    );
    check(
        resources(json!({"resources": ["*", "pods"]})),
        r#"RULE.resourceRules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources"#,
    );
    check(
        resources(json!({"namespaces": []})),
        "RULE.resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
    );
    check(resources(json!({"namespaces": [], "clusterScope": true})), "[]");
    check(resources(json!({"namespaces": ["*"]})), "[]");
    check(
        resources(json!({"namespaces": ["*", "ns"]})),
        r#"RULE.resourceRules[0].namespaces: Invalid value: ["*","ns"]: if '*' is present, must not specify other namespaces"#,
    );
    check(
        resources(json!({"namespaces": ["ok", "a.b"]})),
        r#"RULE.resourceRules[0].namespaces[1]: Invalid value: "a.b": each member of this list must be '*' or a DNS-1123 label; must not contain dots"#,
    );
    check(
        urls(json!({"verbs": ["peek"]})),
        &format!(r#"RULE.nonResourceRules[0].verbs: Unsupported value: ["peek"]: supported values: {verbs}"#),
    );
    let url = |url: &str, problem: &str| {
        let expected = match problem {
            "" => "[]".to_owned(),
            _ => format!("RULE.nonResourceRules[0].nonResourceURLs[0]: Invalid value: {url:?}: {problem}"),
        };
        check(urls(json!({"nonResourceURLs": [url]})), &expected);
    };
    url("", "must not be empty");
    url("/", "");
    url("healthz", "must start with slash");
    url("/a b", "must not contain white-space");
    url("/a//b", "must not contain double slash");
    url("/a/*", "");
    url("/a*", "wildcard can only do suffix matching");
    url("/*/a", "wildcard can only do suffix matching");
    url("/*/*", "wildcard can only do suffix matching");
}

#[test]
fn subjects_of_flow_schemas_have_names() {
    let check = |subject: Value, expected: &str| {
        let found = create_errors(&FlowSchema, &with_rule(&json!({"subjects": [subject]})));
        assert_eq!(found.replace("spec.rules[0].subjects[0]", "SUBJECT"), expected, "{subject}");
    };
    let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}});
    check(account("ns", "a.b"), "[]");
    check(account("ns", "*"), "[]");
    check(account("ns", ""), "SUBJECT.serviceAccount.name: Required value");
    check(
        account("", "a"),
        "SUBJECT.serviceAccount.namespace: Required value: must specify namespace for service account",
    );
    let name = create_errors(&FlowSchema, &with_rule(&json!({"subjects": [account("ns", "A")]})));
    let beginning =
        r#"spec.rules[0].subjects[0].serviceAccount.name: Invalid value: "A": a lowercase RFC 1123 subdomain must"#;
    assert!(name.starts_with(beginning), "{name}");
    let namespace = create_errors(&FlowSchema, &with_rule(&json!({"subjects": [account("*", "a")]})));
    let beginning =
        r#"spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: "*": a lowercase RFC 1123 label must"#;
    assert!(namespace.starts_with(beginning), "{namespace}");
    check(json!({"kind": "User", "user": {}}), "SUBJECT.user.name: Required value");
    check(
        json!({"kind": "Group", "user": {"name": "u"}}),
        "[SUBJECT.group: Required value: group is required when subject kind is 'Group', \
         SUBJECT.user: Forbidden: user is forbidden when subject kind is not 'User']",
    );
    check(
        json!({"kind": "Robot"}),
        r#"SUBJECT.kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User""#,
    );
}

#[test]
fn queues_of_a_level_can_be_dealt() {
    let check = |queuing: Value, expected: &str| {
        let level = level(&json!({"limitResponse": {"type": "Queue", "queuing": queuing}}));
        let found = create_errors(&PriorityLevel, &level);
        assert_eq!(found.replace("spec.limited.limitResponse.queuing", "QUEUING"), expected, "{queuing}");
    };
    check(
        json!({"queues": 2, "handSize": 8}),
        "QUEUING.handSize: Invalid value: 8: should not be greater than queues (2)",
    );
    check(json!({"queues": 8, "handSize": 8}), "[]");
    check(json!({"queues": 1, "handSize": 1}), "[]");
    check(
        json!({"queues": -1, "handSize": -1, "queueLengthLimit": -1}),
        "[QUEUING.queueLengthLimit: Invalid value: -1: must be positive, \
         QUEUING.queues: Invalid value: -1: must be positive, \
         QUEUING.handSize: Invalid value: -1: must be positive]",
    );
    check(json!({"queues": 10_000_000, "handSize": 2}), "[]");
    check(
        json!({"queues": 10_000_001, "handSize": 2}),
        "QUEUING.queues: Invalid value: 10000001: must not be greater than 10000000",
    );
    // 64 queues take 6 bits for each card of a hand.
    check(json!({"queues": 64, "handSize": 10}), "[]");
    check(
        json!({"queues": 64, "handSize": 11}),
        "QUEUING.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60",
    );
    check(
        json!({"queues": 2_147_483_647, "handSize": 2_147_483_647}),
        "[QUEUING.queues: Invalid value: 2147483647: must not be greater than 10000000, \
         QUEUING.handSize: Invalid value: 2147483647: required entropy bits of deckSize 2147483647 and handSize \
         2147483647 should not be greater than 60]",
    );
}

#[test]
fn shares_of_a_level_are_in_range() {
    let check = |limited: Value, expected: &str| {
        let mut all = json!({"limitResponse": {"type": "Reject"}});
        merge(&mut all, &limited);
        assert_eq!(create_errors(&PriorityLevel, &level(&all)), expected, "{limited}");
    };
    check(json!({"nominalConcurrencyShares": 0, "lendablePercent": 100, "borrowingLimitPercent": 0}), "[]");
    check(
        json!({"nominalConcurrencyShares": -1, "limitResponse": {"type": "Wait"}, "lendablePercent": 101, "borrowingLimitPercent": -1}),
        r#"[spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer, spec.limited.limitResponse.type: Unsupported value: "Wait": supported values: "Queue", "Reject", spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive, spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer]"#,
    );
    check(
        json!({"limitResponse": {"type": "Reject", "queuing": {}}}),
        "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited",
    );
    check(
        json!({"limitResponse": {"type": "Queue"}}),
        "spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited",
    );
    let exempt = json!({"metadata": {"name": "exempt"},
        "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": -1, "lendablePercent": -1}}});
    assert_eq!(
        create_errors(&PriorityLevel, &exempt),
        "[spec.exempt.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer, \
         spec.exempt.lendablePercent: Invalid value: -1: must be between 0 and 100, inclusive]"
    );
}

#[test]
fn the_annotation_of_v1beta3_is_refused() {
    let mut level = level(&json!({"limitResponse": {"type": "Reject"}}));
    level["metadata"]["annotations"] = json!({"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""});
    assert_eq!(
        create_errors(&PriorityLevel, &level),
        "metadata.annotations: Forbidden: annotation \
         'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden"
    );
}

#[test]
fn mandatory_objects_keep_their_specs() {
    let named = |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
    for (name, spec) in mandatory::schemas() {
        assert_eq!(create_errors(&FlowSchema, &named(name, &spec)), "[]");
    }
    for (name, spec) in mandatory::levels() {
        assert_eq!(create_errors(&PriorityLevel, &named(name, &spec)), "[]");
    }
    let [_, (name, mut spec)] = mandatory::schemas();
    spec["rules"] = json!([{"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "ns", "name": "a"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]}]);
    assert_eq!(
        create_errors(&FlowSchema, &named(name, &spec)),
        r#"spec: Invalid value: {"PriorityLevelConfiguration":{"Name":"catch-all"},"MatchingPrecedence":10000,"DistinguisherMethod":{"Type":"ByUser"},"Rules":[{"Subjects":[{"Kind":"ServiceAccount","User":null,"Group":null,"ServiceAccount":{"Namespace":"ns","Name":"a"}}],"ResourceRules":[{"Verbs":["*"],"APIGroups":["*"],"Resources":["*"],"ClusterScope":true,"Namespaces":null}],"NonResourceRules":null}]}: spec of 'catch-all' must equal the fixed value"#
    );
    let [(name, mut spec), (exempt, mut exempt_spec)] = mandatory::levels();
    spec["limited"]["nominalConcurrencyShares"] = json!(6);
    assert_eq!(
        create_errors(&PriorityLevel, &named(name, &spec)),
        r#"spec: Invalid value: {"Type":"Limited","Limited":{"NominalConcurrencyShares":6,"LimitResponse":{"Type":"Reject","Queuing":null},"LendablePercent":0,"BorrowingLimitPercent":null},"Exempt":null}: spec of 'catch-all' must equal the fixed value"#
    );
    exempt_spec["exempt"]["nominalConcurrencyShares"] = json!(6);
    assert_eq!(create_errors(&PriorityLevel, &named(exempt, &exempt_spec)), "[]");
}

#[test]
fn conditions_have_types_of_their_own() {
    let status = json!({"conditions": [{"type": "A"}, {"type": "A"}, {}]});
    let expected = r#"[status.conditions[1].type: Duplicate value: "A", status.conditions[2].type: Required value]"#;
    assert_eq!(status_errors(&FlowSchema, &schema(&json!({})), &status), expected);
    let level = level(&json!({"limitResponse": {"type": "Reject"}}));
    assert_eq!(status_errors(&PriorityLevel, &level, &status), expected);
}

/// A valid FlowSchema, of whose spec some fields are replaced.
fn schema(change: &Value) -> Value {
    let mut spec = json!({"priorityLevelConfiguration": {"name": "global-default"}, "rules": [
        {"subjects": [{"kind": "Group", "group": {"name": "g"}}],
         "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]});
    merge(&mut spec, change);
    json!({"metadata": {"name": "x"}, "spec": spec})
}

/// A valid FlowSchema, of whose only rule some fields are replaced.
fn with_rule(change: &Value) -> Value {
    let mut schema = schema(&json!({}));
    merge(&mut schema["spec"]["rules"][0], change);
    schema
}

fn level(limited: &Value) -> Value {
    json!({"metadata": {"name": "x"}, "spec": {"type": "Limited", "limited": limited}})
}

fn merge(into: &mut Value, change: &Value) {
    for (field, value) in change.as_object().expect("an object") {
        into[field.as_str()] = value.clone();
    }
}
