//! What the audit log says about requests.

use std::path::PathBuf;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;
use windlass_server::authn::User;
use windlass_server::{AuditOptions, AuditPolicy, Server, ServerBuilder};

use crate::client::{create, get, send, send_patch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A server that records what `rules` say.
pub(crate) struct Audited {
    pub(crate) server: Server,
    path: PathBuf,
    _dir: TempDir,
}

impl Audited {
    async fn start(policy: &str) -> Self {
        Self::start_with(policy, Server::builder()).await
    }

    pub(crate) async fn start_with(policy: &str, builder: ServerBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut options = AuditOptions::new(&path);
        options.policy = AuditPolicy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{policy}")).unwrap();
        let server = builder.audit(options).token("secret-token", User::admin()).start().await.unwrap();
        Self { server, path, _dir: dir }
    }

    /// Stops the server; the events of requests that clients made, and the text of the log.
    pub(crate) async fn stop(self) -> (Vec<Value>, String) {
        self.server.stop().await.unwrap();
        let text = std::fs::read_to_string(&self.path).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let own = events.filter(|event: &Value| event["userAgent"] != "kube-apiserver").collect();
        (own, text)
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["stage"].as_str()).collect()
}

#[tokio::test]
async fn events_say_who_did_what_and_with_what_result() {
    let audited = Audited::start("rules: [{level: Metadata}]").await;
    create(&audited.server, MAPS, &map("m")).await;
    assert_eq!(create_again(&audited.server).await, 409);
    let (events, _) = audited.stop().await;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete", "RequestReceived", "ResponseComplete"]);
    assert_eq!(events[0]["auditID"], events[1]["auditID"]);
    assert_ne!(events[1]["auditID"], events[2]["auditID"]);
    let event = &events[1];
    assert_eq!((&event["kind"], &event["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
    assert_eq!((&event["level"], &event["verb"]), (&json!("Metadata"), &json!("create")));
    assert_eq!(event["requestURI"], MAPS);
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["user"]["groups"], json!(["system:masters", "system:authenticated"]));
    let reference = json!({"resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1"});
    assert_eq!(event["objectRef"], reference);
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    assert_eq!(events[3]["responseStatus"]["reason"], "AlreadyExists");
    assert_eq!(events[3]["responseStatus"]["code"], 409);
    assert!(events[0].get("annotations").is_none(), "nothing was decided yet");
}

async fn create_again(server: &Server) -> u16 {
    crate::client::post(server, MAPS, &map("m")).await.code
}

#[tokio::test]
async fn bodies_are_recorded_as_far_as_the_level_says() {
    let policy = "omitStages: [RequestReceived]
rules:
- {level: Request, verbs: [create, patch]}
- {level: RequestResponse, verbs: [get, list], omitManagedFields: true}
- {level: None}
";
    let audited = Audited::start(policy).await;
    create(&audited.server, MAPS, &map("m")).await;
    let patch = json!({"data": {"c": "d"}});
    send_patch(&audited.server, &format!("{MAPS}/m"), "application/merge-patch+json", &patch).await;
    get(&audited.server, &format!("{MAPS}/m")).await;
    get(&audited.server, MAPS).await;
    send(&audited.server, Method::DELETE, &format!("{MAPS}/m"), &Value::Null).await;
    let (events, _) = audited.stop().await;
    assert_eq!(stages(&events), ["ResponseComplete"; 4]);
    assert_eq!(events[0]["requestObject"]["data"], json!({"a": "b"}));
    assert!(events[0].get("responseObject").is_none());
    assert_eq!(events[1]["requestObject"], patch);
    assert_eq!(events[2]["responseObject"]["data"], json!({"a": "b", "c": "d"}));
    assert!(events[2]["responseObject"]["metadata"].get("managedFields").is_none());
    assert_eq!(events[3]["responseObject"]["kind"], "ConfigMapList");
}

#[tokio::test]
async fn only_rules_that_name_credentials_record_them() {
    let audited = Audited::start("rules: [{level: RequestResponse}]").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "planted-password"}});
    create(&audited.server, SECRETS, &secret).await;
    get(&audited.server, &format!("{SECRETS}/s")).await;
    get(&audited.server, SECRETS).await;
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "planted-token"}});
    create(&audited.server, "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    let (events, text) = audited.stop().await;
    assert!(events.iter().any(|event| event["objectRef"]["resource"] == "secrets"));
    for planted in ["planted", "cGxhbnRlZC1wYXNzd29yZA"] {
        assert!(!text.contains(planted), "{planted} is in the log");
    }
}

#[tokio::test]
async fn a_rule_that_names_secrets_records_them() {
    let rule = "{level: Request, resources: [{group: '', resources: [secrets]}]}";
    let audited = Audited::start(&format!("rules: [{rule}]")).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "known"}});
    create(&audited.server, SECRETS, &secret).await;
    let (events, _) = audited.stop().await;
    assert_eq!(events.last().unwrap()["requestObject"]["stringData"], json!({"p": "known"}));
}

#[tokio::test]
async fn a_watch_has_started_and_is_complete_when_it_ends() {
    let audited = Audited::start("rules: [{level: Metadata, verbs: [watch]}]").await;
    let request = Request::get(format!("{MAPS}?watch=1")).body(Full::<Bytes>::default()).unwrap();
    let response = audited.server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    let (events, _) = audited.stop().await;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[2]["requestURI"], format!("{MAPS}?watch=1"));
}

#[tokio::test]
async fn refusals_and_impersonation_are_recorded() {
    let audited = Audited::start("omitStages: [RequestReceived]\nrules: [{level: Metadata}]").await;
    let mut request = Request::get(MAPS).body(Full::<Bytes>::default()).unwrap();
    request.headers_mut().insert("impersonate-user", "jane".parse().unwrap());
    request.headers_mut().insert("audit-id", "my-own-id".parse().unwrap());
    let response = audited.server.service().oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["audit-id"]), (403, &"my-own-id".parse().unwrap()));
    response.into_body().collect().await.unwrap();
    let (events, _) = audited.stop().await;
    let event = &events[0];
    assert_eq!((&event["auditID"], &event["user"]["username"]), (&json!("my-own-id"), &json!("kubernetes-admin")));
    assert_eq!(event["impersonatedUser"], json!({"username": "jane", "groups": ["system:authenticated"]}));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(
        (&event["responseStatus"]["reason"], &event["responseStatus"]["code"]),
        (&json!("Forbidden"), &json!(403))
    );
}

#[tokio::test]
async fn unauthenticated_requests_are_audited_without_tokens() {
    let audited = Audited::start("rules: [{level: RequestResponse}]").await;
    let api = std::sync::Arc::clone(audited.server.api());
    let request = Request::get(MAPS).header("authorization", "Bearer planted-token").body(Full::<Bytes>::default());
    let request = request.unwrap().map(windlass_server::handler::payload);
    assert_eq!(windlass_server::handler::handle(api, request).await.status(), 401);
    let (events, text) = audited.stop().await;
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!(events[0]["user"], json!({}));
    assert_eq!(events[0]["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert!(!text.contains("planted"));
}

#[tokio::test]
async fn a_request_whose_client_goes_away_is_complete() {
    let audited = Audited::start("omitStages: [RequestReceived]\nrules: [{level: Metadata}]").await;
    let body =
        http_body_util::StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, std::io::Error>>());
    let request = Request::post(MAPS).header("content-type", "application/json").body(body).unwrap();
    let mut answer = Box::pin(audited.server.service().oneshot(request));
    assert!(futures::FutureExt::now_or_never(&mut answer).is_none());
    drop(answer);
    let (events, _) = audited.stop().await;
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0]["responseStatus"]["message"], "Connection closed early");
}

#[tokio::test]
async fn an_unwritable_log_keeps_the_server_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions::new(dir.path().join("missing/audit.log"));
    let error = Server::builder().audit(options).start().await.err().unwrap().to_string();
    assert!(error.starts_with("cannot write the audit log ") && error.contains("No such file"), "{error}");
}
