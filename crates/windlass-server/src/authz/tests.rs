//! Authentication and authorisation through the whole server, in process.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use windlass_store::{Memory, Store};

use crate::Server;
use crate::authn::{Peer, User};
use crate::handler::{handle, payload};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends requests as a user.
struct Client<'a> {
    server: &'a Server,
    user: Option<User>,
    headers: Vec<(&'static str, String)>,
}

impl<'a> Client<'a> {
    fn user(server: &'a Server, name: &str) -> Self {
        Self { server, user: Some(User::new(name, [])), headers: Vec::new() }
    }

    fn admin(server: &'a Server) -> Self {
        Self { server, user: Some(User::admin()), headers: Vec::new() }
    }

    fn token(server: &'a Server, token: &str) -> Self {
        Self { server, user: None, headers: vec![("authorization", format!("Bearer {token}"))] }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = request.body(Full::new(body)).expect("a request");
        if let Some(user) = &self.user {
            request.extensions_mut().insert(Peer::Local(user.clone()));
        }
        let response = handle(Arc::clone(self.server.api()), request.map(payload)).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, &Value::Null).await
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.send("POST", path, &body).await;
        assert_eq!(code, 201, "{path}: {answer}");
        answer
    }
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules})
}

fn binding(role: &str, kind: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    })
}

async fn server() -> Server {
    Server::builder().start().await.expect("starts")
}

#[tokio::test]
async fn a_grant_is_in_effect_when_its_write_returns() {
    let server = server().await;
    let (admin, jane) = (Client::admin(&server), Client::user(&server, "jane"));
    let secrets = "/api/v1/namespaces/default/secrets";
    for round in 0..3 {
        assert_eq!(jane.get(secrets).await.0, 403, "round {round}");
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"]}]);
        admin.create(&format!("{RBAC}/namespaces/default/roles"), role("r", &rules)).await;
        admin.create(&format!("{RBAC}/namespaces/default/rolebindings"), binding("r", "Role", "jane")).await;
        assert_eq!(jane.get(secrets).await.0, 200, "round {round}");
        assert_eq!(jane.get("/api/v1/namespaces/kube-system/secrets").await.0, 403);
        for path in ["roles/r", "rolebindings/r"] {
            admin.send("DELETE", &format!("{RBAC}/namespaces/default/{path}"), &Value::Null).await;
        }
    }
}

#[tokio::test]
async fn impersonation_needs_a_grant() {
    let server = server().await;
    let (admin, mut jane) = (Client::admin(&server), Client::user(&server, "jane"));
    jane.headers.push(("impersonate-user", "bob".into()));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = jane.send("POST", path, &review).await;
    let why = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"jane\" cannot \
               impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" \
               at the cluster scope";
    assert_eq!((code, answer["message"].as_str()), (403, Some(why)));
    let mut grant = role(
        "r",
        &json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]}]),
    );
    grant["kind"] = "ClusterRole".into();
    admin.create(&format!("{RBAC}/clusterroles"), grant).await;
    let mut bound = binding("r", "ClusterRole", "jane");
    bound["kind"] = "ClusterRoleBinding".into();
    admin.create(&format!("{RBAC}/clusterrolebindings"), bound).await;
    assert_eq!(jane.create(path, review.clone()).await["status"]["userInfo"]["username"], "bob");
    jane.headers.push(("impersonate-group", "system:masters".into()));
    assert_eq!(jane.send("POST", path, &review).await.0, 403);
}

#[tokio::test]
async fn users_give_away_only_what_they_have() {
    let server = server().await;
    let (admin, amy) = (Client::admin(&server), Client::user(&server, "amy"));
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let rbac = "rbac.authorization.k8s.io";
    let rules = json!([
        {"verbs": ["create", "update", "patch"], "apiGroups": [rbac], "resources": ["roles", "rolebindings"]},
        {"verbs": ["bind"], "apiGroups": [rbac], "resources": ["clusterroles"], "resourceNames": ["system:aggregate-to-view"]},
    ]);
    admin.create(&roles, role("editor", &rules)).await;
    admin.create(&bindings, binding("editor", "Role", "amy")).await;
    let more = role("more", &json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let (code, answer) = amy.send("POST", &roles, &more).await;
    let why = "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"amy\" (groups=[\"system:authenticated\"]) is \
               attempting to grant RBAC permissions not currently held:\n\
               {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}";
    assert_eq!((code, answer["message"].as_str()), (403, Some(why)));
    assert_eq!(amy.send("POST", &bindings, &binding("system:aggregate-to-edit", "ClusterRole", "bob")).await.0, 403);
    amy.create(&bindings, binding("system:aggregate-to-view", "ClusterRole", "bob")).await;
    assert_eq!(Client::user(&server, "bob").get("/api/v1/namespaces/default/pods").await.0, 200);
}

#[tokio::test]
async fn tokens_live_as_long_as_what_they_are_bound_to() {
    let server = server().await;
    let admin = Client::admin(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    admin.create(accounts, named("ServiceAccount", "robot")).await;
    admin.create("/api/v1/namespaces/default/secrets", named("Secret", "s")).await;
    let request = |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let token = |answer: Value| answer["status"]["token"].as_str().expect("a token").to_owned();
    let path = format!("{accounts}/robot/token");
    let free = token(admin.create(&path, request(json!({}))).await);
    let reference = json!({"kind": "Secret", "apiVersion": "v1", "name": "s"});
    let bound = token(admin.create(&path, request(json!({"boundObjectRef": reference}))).await);
    let elsewhere = token(admin.create(&path, request(json!({"audiences": ["elsewhere"]}))).await);
    let code = async |token: &str| Client::token(&server, token).get("/version").await.0;
    assert_eq!((code(&free).await, code(&bound).await, code(&elsewhere).await), (200, 200, 401));
    // Service accounts may read who issues their tokens.
    assert_eq!(Client::token(&server, &free).get("/openid/v1/jwks").await.1["keys"][0]["alg"], "ES256");
    admin.send("DELETE", "/api/v1/namespaces/default/secrets/s", &Value::Null).await;
    assert_eq!((code(&free).await, code(&bound).await), (200, 401));
    admin.send("DELETE", &format!("{accounts}/robot"), &Value::Null).await;
    admin.create(accounts, named("ServiceAccount", "robot")).await;
    assert_eq!(code(&free).await, 401, "another account of the same name");
}

#[tokio::test]
async fn what_is_only_asked_is_not_stored() {
    let server = server().await;
    let admin = Client::admin(&server);
    let before = *server.api().store.revision().borrow();
    let (code, statuses) = admin.get("/api/v1/componentstatuses").await;
    assert_eq!((code, statuses["items"].as_array().map(Vec::len)), (200, Some(3)));
    assert_eq!(admin.get("/api/v1/componentstatuses/etcd-0").await.1["conditions"][0]["status"], "True");
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
    });
    let answer = admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await;
    assert_eq!(answer["status"], json!({"allowed": false}));
    assert_eq!(*server.api().store.revision().borrow(), before);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    admin.create("/api/v1/namespaces/default/pods", pod).await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    });
    admin.create("/api/v1/namespaces/default/bindings", binding).await;
    assert_eq!(admin.get("/api/v1/namespaces/default/pods/p").await.1["spec"]["nodeName"], "n");
}

#[tokio::test]
async fn default_roles_are_made_once() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let first = Server::builder().store(Arc::clone(&store)).start().await.expect("starts");
    let admin = Client::admin(&first);
    let uid = admin.get(&format!("{RBAC}/clusterroles/admin")).await.1["metadata"]["uid"].clone();
    admin.send("DELETE", &format!("{RBAC}/clusterroles/view"), &Value::Null).await;
    drop(first);
    let again = Server::builder().store(store).start().await.expect("starts");
    let admin = Client::admin(&again);
    let role = admin.get(&format!("{RBAC}/clusterroles/admin")).await.1;
    assert_eq!(role["metadata"]["uid"], uid);
    assert_eq!(admin.get(&format!("{RBAC}/clusterroles/view")).await.0, 200);
}
