//! Mutating admission policies: what they change, in which order, and what becomes of failures.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{Answer, create, get, post, send, start};
use crate::hook::{Hook, Reply, patch};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Puts a policy for ConfigMaps into effect.
async fn enforce(server: &Server, name: &str, mutations: Value, more: Value, binding: Value) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"]});
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never",
        "mutations": mutations});
    let mut bound = json!({"policyName": name});
    for (target, fields) in [(&mut spec, more), (&mut bound, binding)] {
        for (field, value) in fields.as_object().into_iter().flatten() {
            target[field] = value.clone();
        }
    }
    create(server, POLICIES, &json!({"metadata": {"name": name}, "spec": spec})).await;
    create(server, BINDINGS, &json!({"metadata": {"name": name}, "spec": bound})).await;
}

fn applies(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patches(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// A policy that sets a key of `data` to what an expression says.
fn sets(key: &str, value: &str) -> Value {
    json!([patches(&format!("[JSONPatch{{op: 'add', path: '/data/{key}', value: {value}}}]"))])
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

async fn data(server: &Server, name: &str) -> Value {
    create(server, CONFIG_MAPS, &config_map(name)).await["data"].clone()
}

#[tokio::test]
async fn configurations_are_applied_and_patches_carried_out_in_order() {
    let server = start().await;
    let mutations = json!([
        applies("Object{metadata: Object.metadata{labels: {'team': variables.team}}, data: {'first': 'applied'}}"),
        patches(
            "[JSONPatch{op: 'test', path: '/data/first', value: 'applied'}, \
              JSONPatch{op: 'add', path: '/metadata/annotations', value: {'by': 'policy'}}, \
              JSONPatch{op: 'replace', path: '/data/first', value: 'patched'}]"
        ),
        patches("[JSONPatch{op: 'test', path: '/data/first', value: 'no'}, JSONPatch{op: 'remove', path: '/data/k'}]"),
    ]);
    let variables = json!([{"name": "team", "expression": "'of-' + object.metadata.name"}]);
    enforce(&server, "p", mutations, json!({"variables": variables}), json!({})).await;
    let made = create(&server, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(made["data"], json!({"k": "v", "first": "patched"}));
    assert_eq!(made["metadata"]["labels"], json!({"team": "of-a"}));
    assert_eq!(made["metadata"]["annotations"], json!({"by": "policy"}));
    // Policies are not owners: what they set belongs to the writer.
    assert_eq!(made["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    // A change goes the same way.
    let patched = send(&server, Method::PATCH, &format!("{CONFIG_MAPS}/a"), &json!({"data": {"first": "x"}})).await;
    assert_eq!(patched.body["data"]["first"], "patched");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn lists_merge_by_their_keys_and_atomics_are_left_alone() {
    let server = start().await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let constraints = json!({"matchConstraints": {"resourceRules": [rule]}});
    let sidecar = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh:1', \
        restartPolicy: 'Always'}], containers: [Object.spec.containers{name: 'c', tty: true}]}}";
    enforce(&server, "mesh", json!([applies(sidecar)]), constraints.clone(), json!({})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = create(&server, pods, &pod("a")).await;
    assert_eq!(made["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&made["spec"]["containers"][0]["image"], &made["spec"]["containers"][0]["tty"]),
        (&json!("i"), &json!(true))
    );
    // What came in is defaulted.
    assert_eq!(made["spec"]["initContainers"][0]["terminationMessagePath"], "/dev/termination-log");

    let selector = "Object{spec: Object.spec{nodeSelector: {'disk': 'ssd'}}}";
    enforce(&server, "ssd", json!([applies(selector)]), constraints, json!({})).await;
    let refused = post(&server, pods, &pod("b")).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let words = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector";
    assert!(refused.message().contains(words), "{}", refused.message());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn custom_resources_are_changed_by_their_schema() {
    let server = start().await;
    let slot = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "v": {"type": "integer"}}});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 9},
        "slots": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"], "items": slot}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({"metadata": {"name": "racks.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "racks", "kind": "Rack"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let rule =
        json!({"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["racks"]});
    let constraints = json!({"matchConstraints": {"resourceRules": [rule]}});
    let change =
        "Object{spec: Object.spec{size: int(object.spec.size) * 2, slots: [Object.spec.slots{id: 'a', v: 1}]}}";
    enforce(&server, "grow", json!([applies(change)]), constraints, json!({})).await;
    let racks = "/apis/example.com/v1/namespaces/default/racks";
    let rack = |size: i64| {
        json!({"apiVersion": "example.com/v1", "kind": "Rack", "metadata": {"name": format!("r{size}")},
            "spec": {"size": size, "slots": [{"id": "b"}, {"id": "a"}]}})
    };
    let made = create(&server, racks, &rack(3)).await;
    assert_eq!(made["spec"], json!({"size": 6, "slots": [{"id": "b"}, {"id": "a", "v": 1}]}));
    // What a policy makes of an object is validated.
    let refused = post(&server, racks, &rack(5)).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(refused.message().contains("spec.size: Invalid value: 10"), "{}", refused.message());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn parameters_say_what_to_do() {
    let server = start().await;
    let params = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let mutations = sets("team", "params.data.team");
    let by_name = json!({"paramRef": {"name": "settings", "parameterNotFoundAction": "Deny"}});
    enforce(&server, "p", mutations, params, by_name).await;
    // The parameters are themselves ConfigMaps, and there are none yet.
    let refused = post(&server, CONFIG_MAPS, &config_map("settings")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message(),
        "policy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding \
         with `Deny` parameterNotFoundAction"
    );
    send(&server, Method::DELETE, &format!("{BINDINGS}/p"), &Value::Null).await;
    let settings = |name: &str, team: &str| json!({"metadata": {"name": name, "labels": {"role": "settings"}}, "data": {"team": team}});
    create(&server, CONFIG_MAPS, &settings("settings", "blue")).await;
    create(&server, CONFIG_MAPS, &settings("settings-2", "red")).await;
    let bind = async |reference: Value| {
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "paramRef": reference}});
        create(&server, BINDINGS, &binding).await;
    };
    bind(json!({"name": "settings", "parameterNotFoundAction": "Deny"})).await;
    assert_eq!(data(&server, "a").await, json!({"k": "v", "team": "blue"}));
    send(&server, Method::DELETE, &format!("{BINDINGS}/p"), &Value::Null).await;
    // A selector has the policy run once for each, in the order of their names.
    bind(json!({"selector": {"matchLabels": {"role": "settings"}}, "parameterNotFoundAction": "Allow"})).await;
    assert_eq!(data(&server, "b").await, json!({"k": "v", "team": "red"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn conditions_decide_who_is_changed() {
    let server = start().await;
    let conditions = json!({"matchConditions": [
        {"name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')"},
        {"name": "has-data", "expression": "has(object.data)"},
    ]});
    let only = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "matchPolicy": "Equivalent", "objectSelector": {}}});
    enforce(&server, "p", sets("x", "'1'"), conditions, only).await;
    assert_eq!(data(&server, "a").await, json!({"k": "v", "x": "1"}));
    assert_eq!(data(&server, "exempt-a").await, json!({"k": "v"}));
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    assert_eq!(create(&server, elsewhere, &config_map("a")).await["data"], json!({"k": "v"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn failures_are_fatal_or_ignored() {
    let server = start().await;
    let broken = json!([patches("[JSONPatch{op: 'remove', path: '/data/' + object.data.missing}]")]);
    enforce(&server, "p", broken.clone(), json!({"failurePolicy": "Fail"}), json!({})).await;
    let refused: Answer = post(&server, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((refused.code, &refused.body["reason"]), (403, &json!("Invalid")));
    let start = "policy 'p' with binding 'p' denied request: expression '";
    assert!(refused.message().starts_with(start), "{}", refused.message());
    assert!(refused.message().ends_with("resulted in error: no such key: missing"), "{}", refused.message());
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}/a")).await.code, 404);
    for list in [BINDINGS, POLICIES] {
        send(&server, Method::DELETE, &format!("{list}/p"), &Value::Null).await;
    }
    enforce(&server, "q", broken, json!({"failurePolicy": "Ignore"}), json!({})).await;
    assert_eq!(data(&server, "a").await, json!({"k": "v"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn policies_are_asked_again_when_others_changed_the_object() {
    let server = start().await;
    // Policies take their turn by name: the first cannot see what the second does, unless it is asked again.
    let sees = |policy: &str| sets(policy, "has(object.data.late) ? 'late' : 'early'");
    enforce(&server, "a-again", sees("again"), json!({"reinvocationPolicy": "IfNeeded"}), json!({})).await;
    enforce(&server, "a-once", sees("once"), json!({"reinvocationPolicy": "Never"}), json!({})).await;
    let waiting = json!({"reinvocationPolicy": "IfNeeded",
        "matchConditions": [{"name": "late", "expression": "has(object.data.late)"}]});
    enforce(&server, "a-waiting", sets("waiting", "'had a turn'"), waiting, json!({})).await;
    enforce(&server, "b-late", sets("late", "'yes'"), json!({}), json!({})).await;
    // Who had no turn the first time has none the second time either.
    let expected = json!({"k": "v", "again": "late", "once": "early", "late": "yes"});
    assert_eq!(data(&server, "m").await, expected);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn policies_come_before_webhooks_and_again_after_them() {
    let server = start().await;
    let hook = Hook::start(|request| {
        let seen = if request["object"]["data"]["policy"].is_null() { "nothing" } else { "the policy's" };
        Reply::Review(patch(&json!([{"op": "add", "path": "/data/hook", "value": seen}])))
    })
    .await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    let webhook = json!({"name": "h.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": hook.config(), "rules": [rule], "reinvocationPolicy": "Never"});
    create(&server, WEBHOOKS, &json!({"metadata": {"name": "h"}, "webhooks": [webhook]})).await;
    let sees = "has(object.data.hook) ? 'after' : 'before'";
    enforce(&server, "p", sets("policy", sees), json!({"reinvocationPolicy": "IfNeeded"}), json!({})).await;
    assert_eq!(data(&server, "m").await, json!({"k": "v", "hook": "the policy's", "policy": "after"}));
    assert_eq!(hook.received().len(), 1);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn doubtful_expressions_are_found_by_type() {
    let server = start().await;
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "any": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({"metadata": {"name": "racks.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "racks", "kind": "Rack"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let check = |groups: &[&str], resources: &[&str], expression: &str| {
        let rule = json!({"apiGroups": groups, "apiVersions": ["v1"], "resources": resources});
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": [rule]},
            "paramKind": {"apiVersion": "example.com/v1", "kind": "Rack"},
            "variables": [{"name": "size", "expression": "params.spec.size"}],
            "validations": [{"expression": expression}]}});
        let warnings = server.api().check_policy(&policy);
        warnings.into_iter().map(|warning| (warning.field_ref, warning.warning)).next()
    };
    let fine = [
        "object.spec.containers.all(c, c.image != '' && has(c.resources))",
        "oldObject == null || oldObject.metadata.labels == object.metadata.labels",
        "variables.size > 3 && params.metadata.name != 'x'",
        "object.spec.containers.all(c, c.livenessProbe.httpGet.port == 80)",
        "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
    ];
    for expression in fine {
        assert_eq!(check(&[""], &["pods"], expression), None, "{expression}");
    }
    let (field, warning) = check(&["", "example.com"], &["pods", "racks"], "object.spec.colour == 'red'").unwrap();
    assert_eq!(field, "spec.validations[0].expression");
    let kinds: Vec<&str> = warning.split("\n\n").map(|part| part.split(':').next().unwrap()).collect();
    assert_eq!(kinds, ["/v1, Kind=Pod", "example.com/v1, Kind=Rack"], "{warning}");
    for (expression, words) in [
        ("object.spec.containers.size() + 'a' == ''", "no matching overload"),
        ("params.spec.colour == 'red'", "undefined field 'colour'"),
        ("params.spec.any.thing == 'x'", "undefined field 'thing'"),
        // Upstream does not know the type of quantities, and leaves out what is made of them.
        ("object.spec.containers.all(c, has(c.resources.limits))", "undefined field 'limits'"),
        ("variables.size == 'three'", "no matching overload for '_==_'"),
    ] {
        let (_, warning) = check(&[""], &["pods"], expression).unwrap();
        assert!(warning.contains(words), "{expression}: {warning}");
    }
    // What could be about anything is not checked.
    for (groups, resources) in [(&["*"], &["pods"]), (&[""], &["*"]), (&[""], &["pods/status"]), (&["none"], &["pods"])]
    {
        assert_eq!(check(groups, resources, "object.nonsense"), None);
    }
    server.stop().await.unwrap();
}
