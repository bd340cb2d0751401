//! Rules and schemas that mean harm: they are refused, or cut off, and everybody else is served meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::Server;

use crate::client::{Answer, create, get, post, send_bytes, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Nothing that is refused may take longer, in a debug build beside other builds. Without the limits that are tested here, it
/// would take minutes to hours.
const LONGEST: Duration = Duration::from_secs(60);

fn definition(spec: &Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"metadata": {"name": "traps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "traps", "kind": "Trap"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

async fn define(server: &Server, spec: &Value) -> Answer {
    let started = Instant::now();
    let answer = post(server, DEFINITIONS, &definition(spec)).await;
    assert!(started.elapsed() < LONGEST, "{:?}", started.elapsed());
    answer
}

async fn refused(server: &Server, spec: &Value, words: &str) {
    let answer = define(server, spec).await;
    assert!(matches!(answer.code, 400 | 422), "{} {words}", answer.body);
    assert!(answer.message().contains(words), "{words}: {}", &answer.message()[..answer.message().len().min(600)]);
}

fn ruled(schema: Value, rule: &str) -> Value {
    let mut schema = schema;
    schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
    json!({"type": "object", "properties": {"x": schema}})
}

#[tokio::test]
async fn hostile_definitions_are_refused() {
    let server = start().await;
    let list = json!({"type": "array", "items": {"type": "string"}});
    let too_much = "estimated rule cost exceeds budget by factor of more than 100x";
    let loops = (0..6).fold("true".to_owned(), |inner, n| format!("self.all(v{n}, {inner})"));
    refused(&server, &ruled(list.clone(), &loops), too_much).await;
    refused(&server, &ruled(list.clone(), "self.all(a, self.all(b, a.matches(b)))"), too_much).await;
    let text = json!({"type": "string", "maxLength": 10});
    let copies = format!("optional.of(self){}.hasValue()", ".optMap(a, a)".repeat(80));
    refused(&server, &ruled(text.clone(), &copies), "x-kubernetes-validations[0].rule: Invalid value").await;
    let deep = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    refused(&server, &ruled(text.clone(), &deep), "expression recursion limit exceeded").await;
    let long = format!("self == '{}'", "x".repeat(200_000));
    refused(&server, &ruled(text.clone(), &long), "code point size exceeds limit").await;
    refused(&server, &ruled(text.clone(), "self.matches('(((a{1000}){1000}){1000})')"), "Invalid value").await;
    refused(&server, &ruled(text, "self.matches('(a')"), "invalid matches argument").await;

    let pattern =
        json!({"type": "object", "properties": {"x": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}});
    refused(&server, &pattern, "must be a valid regular expression").await;
    // Nested deeper than anybody needs: refused as a document, or as a schema.
    let nested = (0..20_000).fold("{\"type\":\"string\"}".to_owned(), |inner, _| {
        format!("{{\"type\":\"object\",\"properties\":{{\"a\":{inner}}}}}")
    });
    let body = definition(&json!("HERE")).to_string().replace("\"HERE\"", &nested);
    let answer = crate::client::send_text(&server, DEFINITIONS, body).await;
    assert!(matches!(answer.code, 400 | 422), "{}", answer.code);
    assert_eq!(get(&server, &format!("{DEFINITIONS}/traps.example.com")).await.code, 404);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn patterns_that_backtrack_elsewhere_are_matched_in_linear_time() {
    let server = start().await;
    let text = json!({"type": "string", "maxLength": 60_000, "pattern": "^(a+)+$"});
    let spec = json!({"type": "object", "properties": {"x": text}});
    assert_eq!(define(&server, &spec).await.code, 201);
    let trap = json!({"apiVersion": "example.com/v1", "kind": "Trap", "metadata": {"name": "t"},
        "spec": {"x": format!("{}!", "a".repeat(50_000))}});
    let started = Instant::now();
    let answer = post(&server, "/apis/example.com/v1/namespaces/default/traps", &trap).await;
    assert_eq!(answer.code, 422);
    assert!(answer.message().contains("in body should match '^(a+)+$'"), "{}", answer.message().len());
    assert!(started.elapsed() < LONGEST);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_policies_are_cut_off_while_others_are_served() {
    let server = Arc::new(start().await);
    let loops = (0..4).fold("true".to_owned(), |inner, n| format!("object.data.all(v{n}, {inner})"));
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({"metadata": {"name": "trap"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": loops}]}});
    create(&server, CONFIG_MAPS, &json!({"metadata": {"name": "bystander"}})).await;
    create(&server, POLICIES, &policy).await;
    let binding = json!({"metadata": {"name": "trap"}, "spec": {"policyName": "trap", "validationActions": ["Deny"]}});
    create(&server, BINDINGS, &binding).await;

    let data: serde_json::Map<String, Value> = (0..1_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let victim = json!({"metadata": {"name": "victim"}, "data": data});
    let done = Arc::new(AtomicBool::new(false));
    let hostile = tokio::spawn({
        let (server, done) = (Arc::clone(&server), Arc::clone(&done));
        async move {
            let mut answers = Vec::new();
            for _ in 0..5 {
                answers.push(post(&server, CONFIG_MAPS, &victim).await);
            }
            done.store(true, Ordering::SeqCst);
            answers
        }
    });
    let mut waits = Vec::new();
    while !done.load(Ordering::SeqCst) {
        let started = Instant::now();
        assert_eq!(get(&server, &format!("{CONFIG_MAPS}/bystander")).await.code, 200);
        waits.push(started.elapsed());
        tokio::task::yield_now().await;
    }
    for answer in hostile.await.unwrap() {
        assert_eq!(answer.code, 422, "{}", answer.body);
        assert!(answer.message().ends_with("operation cancelled: actual cost limit exceeded"), "{}", answer.message());
    }
    assert!(!waits.is_empty());
    waits.sort();
    // The median, as the machine may be busy with other tests.
    assert!(waits[waits.len() / 2] < Duration::from_millis(100), "{:?}", waits[waits.len() / 2]);
    Arc::into_inner(server).unwrap().stop().await.unwrap();
}

/// How long reads take, in order of length, until `done`.
async fn reads(server: &Server, done: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut waits = Vec::new();
    while !done(waits.len()) {
        let started = Instant::now();
        assert_eq!(get(server, &format!("{CONFIG_MAPS}/bystander")).await.code, 200);
        waits.push(started.elapsed());
        tokio::task::yield_now().await;
    }
    waits.sort();
    waits
}

/// Reads beside two writers, on a runtime with one thread: a request that holds that up holds up all others. Reads may
/// take somewhat longer than when nothing else happens, but nothing like as long as writes do.
async fn not_held_up(server: Server, path: &str, hostile: Value, code: u16) {
    let write = Harm { method: Method::POST, path, content_type: "application/json", body: &hostile, code };
    held_up_by_none(server, write).await;
}

/// A request that takes long.
struct Harm<'a> {
    method: Method,
    path: &'a str,
    content_type: &'a str,
    body: &'a Value,
    code: u16,
}

async fn held_up_by_none(server: Server, harm: Harm<'_>) {
    let Harm { method, path, content_type, body, code } = harm;
    let body: bytes::Bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() }.into();
    let server = Arc::new(server);
    create(&server, CONFIG_MAPS, &json!({"metadata": {"name": "bystander"}})).await;
    let idle = reads(&server, |count| count == 200).await;
    let writer = || {
        let (server, path, body) = (Arc::clone(&server), path.to_owned(), body.clone());
        let (method, content_type) = (method.clone(), content_type.to_owned());
        tokio::spawn(async move {
            let started = Instant::now();
            for _ in 0..3 {
                let request =
                    Request::builder().method(method.clone()).uri(&path).header("content-type", &content_type);
                // Reading what a large answer says would itself hold up the thread.
                let request = request.body(Full::new(body.clone())).unwrap();
                let response = server.service().oneshot(request).await.unwrap();
                assert_eq!(response.status(), code);
                response.into_body().collect().await.unwrap();
            }
            started.elapsed() / 3
        })
    };
    let writers = [writer(), writer()];
    let beside = reads(&server, |_| writers.iter().all(tokio::task::JoinHandle::is_finished)).await;
    for writer in writers {
        let write = writer.await.unwrap();
        assert!(beside[beside.len() * 9 / 10] < write / 4, "{:?} beside {write:?}", beside[beside.len() * 9 / 10]);
        let (idle, beside) = (idle[idle.len() / 2], beside[beside.len() / 2]);
        assert!(write > idle * 50, "this means no harm: {write:?}, {idle:?}");
        assert!(beside < idle * 10, "{beside:?} beside {write:?}, {idle:?} alone");
    }
    // A reader that waits for each write sees no more than a few.
    assert!(beside.len() > 20, "{}", beside.len());
    Arc::into_inner(server).unwrap().stop().await.unwrap();
}

fn trap(x: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Trap", "metadata": {"generateName": "t"}, "spec": {"x": x}})
}

const TRAPS: &str = "/apis/example.com/v1/namespaces/default/traps?dryRun=All";

#[tokio::test]
async fn slow_rules_hold_up_no_other_request() {
    let server = start().await;
    let text = json!({"type": "string", "maxLength": 2_000});
    let list = json!({"type": "array", "maxItems": 10, "items": text});
    let spec = ruled(list, "self.all(x, !x.matches('(a?){500}a{500}'))");
    assert_eq!(define(&server, &spec).await.code, 201);
    // Never quite long enough for a match.
    let text = format!("{}b", "a".repeat(499)).repeat(4);
    not_held_up(server, TRAPS, trap(&json!(vec![text; 3])), 201).await;
}

#[tokio::test]
async fn slow_patterns_hold_up_no_other_request() {
    let server = start().await;
    let mut patterns: Vec<Value> = (0..100).map(|n| json!({"pattern": format!("^(x|y{n}|[a-z]+)z$")})).collect();
    patterns.push(json!({"pattern": "1$"}));
    let list = json!({"type": "array", "items": {"type": "string", "anyOf": patterns}});
    let spec = json!({"type": "object", "properties": {"x": list}});
    assert_eq!(define(&server, &spec).await.code, 201);
    not_held_up(server, TRAPS, trap(&json!(vec!["abcdefgh1"; 500])), 201).await;
}

#[tokio::test]
async fn slow_policies_hold_up_no_other_request() {
    let server = start().await;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]});
    let loops = "object.data.all(a, object.data.all(b, a != 'x' && b != 'y'))";
    let policy = json!({"metadata": {"name": "trap"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": loops}]}});
    create(&server, POLICIES, &policy).await;
    let binding = json!({"metadata": {"name": "trap"}, "spec": {"policyName": "trap", "validationActions": ["Deny"]}});
    create(&server, BINDINGS, &binding).await;
    let data: serde_json::Map<String, Value> = (0..200).map(|n| (format!("k{n}"), json!("dg=="))).collect();
    let secret = json!({"metadata": {"generateName": "s"}, "data": data});
    not_held_up(server, "/api/v1/namespaces/default/secrets?dryRun=All", secret, 201).await;
}

/// Letters in no order: there is always something new to remember about those that came before.
fn disorder(length: usize) -> String {
    let mut seed = 1_u32;
    let letters = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 31 == 0 { 'a' } else { 'b' }
    });
    letters.take(length).collect()
}

#[tokio::test]
async fn patterns_are_not_matched_forever() {
    let server = start().await;
    let text = json!({"type": "string", "pattern": "a[ab]{990}c"});
    let spec = json!({"type": "object", "properties": {"x": text}});
    assert_eq!(define(&server, &spec).await.code, 201);
    let started = Instant::now();
    let answer = post(&server, TRAPS, &trap(&json!(disorder(2_500_000)))).await;
    assert_eq!(answer.code, 422);
    assert!(answer.message().contains("takes too long to be matched with"), "{}", answer.message().len());
    assert!(started.elapsed() < LONGEST);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn rules_do_not_match_forever() {
    let server = start().await;
    let text = json!({"type": "string", "maxLength": 100_000});
    assert_eq!(define(&server, &ruled(text, "!self.matches('a[ab]{990}c')")).await.code, 201);
    let started = Instant::now();
    let answer = post(&server, TRAPS, &trap(&json!(disorder(100_000)))).await;
    assert_eq!(answer.code, 422);
    assert!(answer.message().contains("cost"), "{}", answer.message());
    assert!(started.elapsed() < LONGEST);
    server.stop().await.unwrap();
}

/// What a pattern may take at worst was held against every text.
#[tokio::test]
async fn long_patterns_match_many_texts() {
    let server = start().await;
    let text = json!({"type": "string", "maxLength": 1_000, "pattern": "^.{0,1000}$"});
    let list = json!({"type": "array", "maxItems": 500, "items": text});
    let rule = "self.all(x, x.matches('^.{0,1000}$') && x.find('[0-9]{900,1000}') != '')";
    assert_eq!(define(&server, &ruled(list, rule)).await.code, 201);
    let texts: Vec<String> = (0..300).map(|n| format!("{n:01000}")).collect();
    let answer = post(&server, TRAPS, &trap(&json!(texts))).await;
    assert_eq!(answer.code, 201, "{}", answer.message());
    server.stop().await.unwrap();
}

/// A server with a kind that has a list of keyed items and one of texts.
async fn with_lists() -> Server {
    let server = start().await;
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": item});
    let spec = json!({"type": "object", "properties": {
        "x": list, "texts": {"type": "array", "items": {"type": "string"}}}});
    assert_eq!(define(&server, &spec).await.code, 201);
    server
}

fn items(count: usize) -> Value {
    (0..count).map(|n| json!({"k": n.to_string()})).collect()
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Trap", "metadata": {"name": name}, "spec": spec})
}

const LARGE: &str = "/apis/example.com/v1/namespaces/default/traps/large?fieldManager=m&dryRun=All";

#[tokio::test]
async fn applying_large_objects_holds_up_no_other_request() {
    let server = with_lists().await;
    let body = named("large", &json!({"x": items(3_000)}));
    let (method, content_type) = (Method::PATCH, "application/apply-patch+yaml");
    held_up_by_none(server, Harm { method, path: LARGE, content_type, body: &body, code: 201 }).await;
}

#[tokio::test]
async fn patches_of_large_objects_hold_up_no_other_request() {
    let server = with_lists().await;
    let traps = "/apis/example.com/v1/namespaces/default/traps";
    create(&server, traps, &named("large", &json!({"x": items(3_000)}))).await;
    let body = json!({"metadata": {"annotations": {"a": "b"}}});
    let (method, content_type) = (Method::PATCH, "application/merge-patch+json");
    held_up_by_none(server, Harm { method, path: LARGE, content_type, body: &body, code: 200 }).await;
}

#[tokio::test]
async fn very_many_errors_hold_up_no_other_request() {
    let server = with_lists().await;
    let body = named("large", &json!({"texts": vec![0; 20_000]}));
    not_held_up(server, TRAPS, body, 422).await;
}

#[tokio::test]
async fn long_json_patches_hold_up_no_other_request() {
    let server = start().await;
    create(&server, CONFIG_MAPS, &json!({"metadata": {"name": "large"}, "data": {"a": "b"}})).await;
    let path = &*format!("{CONFIG_MAPS}/large?dryRun=All");
    let adds = (0..5_000).map(|n| json!({"op": "add", "path": format!("/data/k{n}"), "value": "v"}));
    let body: Value = adds.collect();
    let (method, content_type) = (Method::PATCH, "application/json-patch+json");
    held_up_by_none(server, Harm { method, path, content_type, body: &body, code: 200 }).await;
}

#[tokio::test]
async fn large_decoded_lists_hold_up_no_other_request() {
    let server = with_lists().await;
    let traps = "/apis/example.com/v1/namespaces/default/traps";
    for n in 0..10 {
        create(&server, traps, &named(&format!("t{n}"), &json!({"x": items(500)}))).await;
    }
    let path = &*format!("{traps}?fieldSelector=metadata.name!%3Dt1&pretty=true");
    let harm = Harm { method: Method::GET, path, content_type: "", body: &Value::Null, code: 200 };
    held_up_by_none(server, harm).await;
}

/// Items are looked for among the old ones, which took a time that grew with the square of their number.
#[tokio::test]
async fn long_lists_are_updated_in_linear_time() {
    let server = with_lists().await;
    let traps = "/apis/example.com/v1/namespaces/default/traps";
    let mut created = create(&server, traps, &named("large", &json!({"x": items(30_000)}))).await;
    created["metadata"]["annotations"] = json!({"a": "b"});
    let started = Instant::now();
    let body = serde_json::to_vec(&created).unwrap();
    let answer = send_bytes(server.service(), Method::PUT, &format!("{traps}/large"), "application/json", body).await;
    assert_eq!(answer.code, 200, "{}", answer.message());
    assert!(started.elapsed() < LONGEST, "{:?}", started.elapsed());
    server.stop().await.unwrap();
}
