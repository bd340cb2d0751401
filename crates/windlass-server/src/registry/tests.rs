//! The [order of a write](super#the-order-of-a-write), observed by a strategy and by admission policies.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Answer, Context, serve};
use crate::Server;
use crate::authn::{MASTERS, User};
use crate::catalog::{Behaviour, Served};
use crate::field::FieldErrors;
use crate::object::{self, metadata_mut};
use crate::registry::strategy::Strategy;
use crate::request::{Query, Verb};
use windlass_kinds::BuiltinKind;

const POLICY_GROUP: &str = "admissionregistration.k8s.io";

/// Writes down its calls. Requests are told apart by their user, who is also the manager of fields.
struct Recorder {
    user: &'static str,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Recorder {
    /// Writes down a call, after what has happened to the object since the last one.
    fn record(&self, call: &'static str, object: &Value) {
        let mut calls = self.calls.lock();
        let metadata = object::metadata(object);
        let owners = metadata.get("managedFields").and_then(Value::as_array);
        if owners.into_iter().flatten().any(|owner| owner["manager"] == self.user) && !calls.contains(&"own") {
            calls.push("own");
        }
        if object["data"]["mutated"] == self.user && !calls.contains(&"mutate") {
            calls.push("mutate");
        }
        calls.push(call);
    }
}

impl Strategy for Recorder {
    fn default(&self, object: &mut Value) {
        self.record("default", object);
    }

    fn prepare_create(&self, object: &mut Value) {
        self.record("prepare_create", object);
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        self.record("prepare_update", object);
    }

    fn validate(&self, object: &Value, _errors: &mut FieldErrors) {
        self.record("validate", object);
    }

    fn validate_update(&self, object: &Value, _old: &Value, _errors: &mut FieldErrors) {
        self.record("validate_update", object);
    }

    fn canonicalize(&self, object: &mut Value) {
        self.record("canonicalize", object);
        metadata_mut(object).insert("annotations".into(), json!({"canonical": self.user}));
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        self.record("warnings", object);
        vec!["warnings".to_owned()]
    }
}

/// A request of `user` for an object or a collection.
fn request(server: &Server, served: &Arc<Served>, user: &str, verb: Verb, name: Option<&str>, body: &Value) -> Context {
    let mut context = Context::own_status_update(server.api(), served, "");
    context.path.subresource = None;
    context.path.name = name.map(str::to_owned);
    context.path.namespace = served.namespaced.then(|| "default".to_owned());
    context.user = User::new(user, [MASTERS.to_owned()]);
    context.verb = verb;
    context.query = Query::parse(Some(&format!("fieldManager={user}")));
    let content_type = match user {
        "patch" => "application/merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        _ => "application/json",
    };
    context.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    context.body = body.to_string().into();
    context
}

async fn write(
    server: &Server,
    served: &Arc<Served>,
    user: &str,
    verb: Verb,
    name: Option<&str>,
    body: &Value,
) -> Answer {
    serve(request(server, served, user, verb, name, body)).await.unwrap_or_else(|why| panic!("{user}: {}", why.message))
}

/// Policies that change each ConfigMap, and that warn of each once it is canonical.
async fn enforce_policies(server: &Server) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{data: {'mutated': request.userInfo.username}}"}});
    let is_canonical = "has(object.metadata.annotations) && 'canonical' in object.metadata.annotations && \
                        object.metadata.annotations['canonical'] == request.userInfo.username";
    let constraints = json!({"resourceRules": [rule]});
    let mutating = json!({"matchConstraints": constraints, "reinvocationPolicy": "Never", "mutations": [mutation]});
    let validating = json!({"matchConstraints": constraints,
        "validations": [{"expression": format!("!({is_canonical})"), "message": "admit"}]});
    let policies = [
        ("mutatingadmissionpolicies", mutating),
        ("validatingadmissionpolicies", validating),
        ("mutatingadmissionpolicybindings", json!({"policyName": "order"})),
        ("validatingadmissionpolicybindings", json!({"policyName": "order", "validationActions": ["Warn"]})),
    ];
    for (plural, spec) in policies {
        let served = server.api().catalog.snapshot().find(POLICY_GROUP, "v1", plural).cloned().expect("a resource");
        let policy = json!({"metadata": {"name": "order"}, "spec": spec});
        write(server, &served, "admin", Verb::Create, None, &policy).await;
    }
}

/// Writes a ConfigMap. Returns the calls, and the warnings of the answer.
async fn observe(server: &Server, user: &'static str, verb: Verb, name: Option<&str>, body: &Value) -> String {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorder = Box::leak(Box::new(Recorder { user, calls: Arc::clone(&calls) }));
    let builtin = server.api().catalog.snapshot().find("", "v1", "configmaps").cloned().expect("a resource");
    let served = Arc::new(Served {
        resource: builtin.resource.clone(),
        behaviour: Behaviour::Builtin(Box::leak(Box::new(BuiltinKind::new(recorder)))),
        head: builtin.head.clone(),
        current_since: 0,
        since: 0,
        gate: None,
        ended: CancellationToken::new(),
    });
    let Answer::Object { warnings, .. } = write(server, &served, user, verb, name, body).await else {
        panic!("no object");
    };
    let warnings: Vec<&str> = warnings.iter().filter_map(|warning| warning.rsplit(' ').next()).collect();
    format!("{}; {}", calls.lock().join(" "), warnings.join(" "))
}

#[tokio::test]
async fn writes_follow_the_documented_order() {
    let server = Server::builder().start().await.expect("a server");
    enforce_policies(&server).await;
    let object =
        |data: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {data: "1"}});

    let created = observe(&server, "create", Verb::Create, None, &object("x")).await;
    let expected = "default own mutate default prepare_create validate canonicalize warnings; warnings admit";
    assert_eq!(created, expected);

    let update = "default own mutate default prepare_update validate_update canonicalize warnings; admit warnings";
    assert_eq!(observe(&server, "update", Verb::Update, Some("a"), &object("y")).await, update);
    assert_eq!(observe(&server, "patch", Verb::Patch, Some("a"), &object("z")).await, update);

    let applied = observe(&server, "apply", Verb::Patch, Some("a"), &object("applied")).await;
    assert_eq!(applied, update.replace("default own", "own default"));
}
