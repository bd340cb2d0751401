//! Which rights a request takes: for every verb that can do more than its name says, what is refused without the other
//! rights and what is allowed with them.
//!
//! Rights are written as `verb,verb plural.group/subresource:name`, or `verb /path`.

mod creates;
mod fields;
mod impersonation;
mod reads;
mod roles;
mod subresources;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_api::codec::json;
use windlass_server::Server;
use windlass_server::authn::User;

use crate::client::{Answer, create, start};

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A rule of a role.
fn rule(rights: &str) -> Value {
    let (verbs, target) = rights.split_once(' ').unwrap();
    let verbs: Vec<&str> = verbs.split(',').collect();
    if target.starts_with('/') {
        return json!({"verbs": verbs, "nonResourceURLs": [target]});
    }
    let (target, name) = target.split_once(':').map_or((target, None), |(target, name)| (target, Some(name)));
    let (resource, subresource) =
        target.split_once('/').map_or((target, None), |(resource, sub)| (resource, Some(sub)));
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let resource = subresource.map_or(plural.to_owned(), |subresource| format!("{plural}/{subresource}"));
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

/// Gives a user rights in the whole cluster.
async fn grant(server: &Server, user: &str, rights: &[&str]) {
    let name = user.replace(':', ".");
    let rules: Vec<Value> = rights.iter().map(|rights| rule(rights)).collect();
    create(server, &format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
    create(server, &format!("{RBAC}/clusterrolebindings"), &binding).await;
}

/// One request after another, each by a new user with exactly these rights.
struct Checker {
    server: Server,
    users: usize,
}

/// A request.
#[derive(Clone)]
struct Ask<'a> {
    method: Method,
    path: &'a str,
    content_type: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: Value,
}

impl<'a> Ask<'a> {
    fn new(method: Method, path: &'a str, body: Value) -> Self {
        let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        Self { method, path, content_type, headers: Vec::new(), body }
    }

    fn get(path: &'a str) -> Self {
        Self::new(Method::GET, path, Value::Null)
    }

    fn post(path: &'a str, body: Value) -> Self {
        Self::new(Method::POST, path, body)
    }

    fn put(path: &'a str, body: Value) -> Self {
        Self::new(Method::PUT, path, body)
    }

    fn patch(path: &'a str, body: Value) -> Self {
        Self::new(Method::PATCH, path, body)
    }

    fn delete(path: &'a str) -> Self {
        Self::new(Method::DELETE, path, Value::Null)
    }

    /// Server-side apply; the path names the manager.
    fn apply(path: &'a str, body: Value) -> Self {
        Self { content_type: "application/apply-patch+yaml", ..Self::new(Method::PATCH, path, body) }
    }

    fn with(mut self, headers: &[(&'a str, &'a str)]) -> Self {
        self.headers.extend_from_slice(headers);
        self
    }

    /// Sends the request. The body of a watch is not waited for.
    async fn send(self, server: &Server, user: User) -> Answer {
        let bytes = if self.body.is_null() { Vec::new() } else { serde_json::to_vec(&self.body).unwrap() };
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in [("content-type", self.content_type)].into_iter().chain(self.headers) {
            request = request.header(name, value);
        }
        let request = request.body(Full::<bytes::Bytes>::from(bytes)).unwrap();
        let response = server.service_as(user).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        if code == 200 && self.path.contains("watch") {
            return Answer { code, warnings: Vec::new(), body: Value::Null };
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { code, warnings: Vec::new(), body: json::parse(&body).map(|parsed| parsed.value).unwrap_or_default() }
    }
}

impl Checker {
    /// A server with a custom resource, `widgets.example.com`, that has a status and a scale.
    async fn start() -> Self {
        let server = start().await;
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        let crd = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}}]}});
        create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
        Self { server, users: 0 }
    }

    /// A new user with these rights.
    async fn user(&mut self, rights: &[&str]) -> User {
        self.users += 1;
        let name = format!("user-{}", self.users);
        grant(&self.server, &name, rights).await;
        User::new(name, [])
    }

    async fn ask(&mut self, rights: &[&str], ask: Ask<'_>) -> (Answer, String) {
        let user = self.user(rights).await;
        let name = user.name.clone();
        (ask.send(&self.server, user).await, name)
    }

    /// With these rights the request is answered with `code`.
    async fn answers(&mut self, rights: &[&str], ask: Ask<'_>, code: u16) -> Answer {
        let what = format!("{} {} with {rights:?}", ask.method, ask.path);
        let (answer, _) = self.ask(rights, ask).await;
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        answer
    }

    /// With these rights the request is forbidden, with `why`, where `USER` stands for the name of the user.
    async fn refuses(&mut self, rights: &[&str], ask: Ask<'_>, why: &str) {
        let what = format!("{} {} with {rights:?}", ask.method, ask.path);
        let (answer, name) = self.ask(rights, ask).await;
        let message = answer.message().replace(&name, "USER");
        assert_eq!((answer.code, message.as_str()), (403, why), "{what}: {}", answer.body);
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": 1}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
