//! Requests that are refused: what discovery offers is asked for without credentials, with wrong, expired and insufficient
//! ones. Each refusal is compared as a whole, so that nothing of what is stored can be in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::handler::{handle, payload};

use crate::client::{create, eventually, get, get_with};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const NAMESPACE: &str = "vault";
/// The name of what is asked for.
const NAME: &str = "planted";
/// What the planted objects hold, and that in base64.
const CONTENT: [&str; 2] = ["swordfish", "c3dvcmRmaXNo"];

/// The headers that a refusal may have.
const HARMLESS: [&str; 7] = [
    "content-type",
    "content-length",
    "cache-control",
    "audit-id",
    "x-content-type-options",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// What one right allows: a verb on a resource or subresource.
#[derive(Debug)]
struct Right {
    group: String,
    version: String,
    resource: String,
    subresource: String,
    is_namespaced: bool,
    verb: String,
}

impl Right {
    /// Whether a request for this has the name of an object in its path.
    fn has_name(&self) -> bool {
        !self.subresource.is_empty() || matches!(&*self.verb, "get" | "update" | "patch" | "delete")
    }

    fn method(&self) -> Method {
        match &*self.verb {
            "get" | "list" | "watch" => Method::GET,
            "create" => Method::POST,
            "update" => Method::PUT,
            "patch" => Method::PATCH,
            "delete" | "deletecollection" => Method::DELETE,
            other => panic!("discovery has the verb {other}"),
        }
    }

    fn path(&self) -> String {
        let mut parts = match &*self.group {
            "" => vec!["/api", &self.version],
            group => vec!["/apis", group, &self.version],
        };
        if self.is_namespaced {
            parts.extend(["namespaces", NAMESPACE]);
        }
        parts.push(&self.resource);
        if self.has_name() {
            parts.push(NAME);
        }
        parts.extend(Some(&*self.subresource).filter(|subresource| !subresource.is_empty()));
        let path = parts.join("/");
        if self.verb == "watch" { path + "?watch=true" } else { path }
    }

    /// What upstream answers a user that may not do this.
    fn forbidden(&self, user: &str) -> Value {
        let Self { group, resource, verb, .. } = self;
        let (name, mut details) = if self.has_name() {
            (format!(" \"{NAME}\""), json!({"name": NAME, "kind": resource}))
        } else {
            (String::new(), json!({"kind": resource}))
        };
        let mut qualified = resource.clone();
        if !group.is_empty() {
            details["group"] = group.as_str().into();
            qualified = format!("{resource}.{group}");
        }
        let asked =
            if self.subresource.is_empty() { resource.clone() } else { format!("{resource}/{}", self.subresource) };
        let scope = match &**resource {
            _ if self.is_namespaced => format!("in the namespace \"{NAMESPACE}\""),
            // A namespace is in itself.
            "namespaces" if self.has_name() => format!("in the namespace \"{NAME}\""),
            _ => "at the cluster scope".to_owned(),
        };
        let message = format!(
            "{qualified}{name} is forbidden: User \"{user}\" cannot {verb} resource \"{asked}\" in API group \"{group}\" {scope}"
        );
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Forbidden", "details": details, "code": 403})
    }

    /// Whether every authenticated user may do this: questions about oneself, by the role `system:basic-user`.
    fn is_everybodys(&self) -> bool {
        let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"];
        self.verb == "create" && own.contains(&&*self.resource)
    }
}

/// Everything that a server's discovery offers.
async fn rights(server: &Server) -> Vec<Right> {
    let mut rights = Vec::new();
    for path in ["/api", "/apis"] {
        let document = get_with(server, path, &[("accept", AGGREGATED)]).await;
        let document: Value = serde_json::from_slice(document.body()).unwrap();
        for group in document["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                for resource in version["resources"].as_array().unwrap() {
                    let all = [("", resource)].into_iter();
                    let below = resource["subresources"].as_array().into_iter().flatten();
                    for (subresource, offer) in
                        all.chain(below.map(|below| (below["subresource"].as_str().unwrap(), below)))
                    {
                        rights.extend(offer["verbs"].as_array().unwrap().iter().map(|verb| Right {
                            group: group["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                            version: version["version"].as_str().unwrap().to_owned(),
                            resource: resource["resource"].as_str().unwrap().to_owned(),
                            subresource: subresource.to_owned(),
                            is_namespaced: resource["scope"] == "Namespaced",
                            verb: verb.as_str().unwrap().to_owned(),
                        }));
                    }
                }
            }
        }
    }
    rights
}

/// Sends a request as a client that has only a token, or not even that. Returns what the client sees.
async fn ask(server: &Server, method: &Method, path: &str, token: Option<&str>) -> (u16, HeaderMap, Bytes) {
    let content_type = if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("content-type", content_type);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body: Full<Bytes> = if *method == Method::GET { Full::default() } else { Full::from("{}") };
    let response = handle(Arc::clone(server.api()), request.body(body).unwrap().map(payload)).await;
    let (parts, body) = response.into_parts();
    (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
}

/// Checks that a request is refused with this body, and that nothing else is said.
async fn check(server: &Server, method: &Method, path: &str, token: Option<&str>, expected: &Value) {
    let (code, headers, body) = ask(server, method, path, token).await;
    let text = String::from_utf8_lossy(&body);
    assert_eq!(u64::from(code), expected["code"].as_u64().unwrap(), "{method} {path}: {text}");
    let found: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(found, *expected, "{method} {path}");
    assert_eq!(headers["content-type"], "application/json", "{method} {path}");
    for (name, value) in &headers {
        assert!(HARMLESS.contains(&name.as_str()), "{method} {path} {name}: {value:?}");
    }
    for secret in CONTENT.into_iter().chain(token) {
        assert!(!text.contains(secret) && !format!("{headers:?}").contains(secret), "{method} {path}: {text}");
    }
}

fn unauthorized() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
        "reason": "Unauthorized", "code": 401})
}

fn forbidden_path(user: &str, verb: &str, path: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "details": {}, "message": format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"")})
}

/// A server with objects to protect, whose clock can be put forward, in seconds.
async fn start() -> (Server, Arc<AtomicI64>) {
    let ahead = Arc::new(AtomicI64::new(0));
    let seconds = Arc::clone(&ahead);
    let clock = move || Timestamp::now() + SignedDuration::from_secs(seconds.load(Ordering::Relaxed));
    let insufficient = User::new("jane", ["devs".to_owned()]);
    let server = Server::builder().clock(clock).token("insufficient", insufficient).start().await.unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let crd = json!({"metadata": {"name": "safes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "safes", "kind": "Safe"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    for name in [NAMESPACE, NAME] {
        create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    (server, ahead)
}

/// Creates objects that hold what must not be told. Returns their paths.
async fn plant(server: &Server) -> Vec<String> {
    let [plain, encoded] = CONTENT;
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let containers = json!([{"name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": plain}]}]);
    let mut planted = Vec::new();
    for (collection, object) in [
        (format!("{core}/secrets"), json!({"data": {"password": encoded}})),
        (format!("{core}/configmaps"), json!({"data": {"password": plain}})),
        (format!("{core}/serviceaccounts"), json!({"secrets": [{"name": plain}]})),
        (format!("{core}/pods"), json!({"spec": {"containers": containers}})),
        (
            format!("/apis/example.com/v1/namespaces/{NAMESPACE}/safes"),
            json!({"apiVersion": "example.com/v1", "kind": "Safe", "spec": {"password": plain}}),
        ),
    ] {
        let mut object = object;
        object["metadata"] = json!({"name": NAME, "annotations": {"example.com/password": plain}});
        create(server, &collection, &object).await;
        planted.push(format!("{collection}/{NAME}"));
    }
    planted
}

#[tokio::test]
async fn refusals_say_what_upstream_says_and_nothing_else() {
    let (server, ahead) = start().await;
    let planted = plant(&server).await;
    let account = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let expired = create(&server, &format!("{account}/token"), &request).await;
    let expired = expired["status"]["token"].as_str().unwrap();
    eventually(&server, "/apis/example.com/v1", |answer| answer.code == 200).await;
    let rights = rights(&server).await;
    let mut before = Vec::new();
    for path in &planted {
        before.push(get(&server, path).await.body);
    }

    // The token is refused for what it may not do until it has expired.
    let robot = format!("system:serviceaccount:{NAMESPACE}:{NAME}");
    let secrets = rights.iter().find(|right| right.resource == "secrets" && right.verb == "get").unwrap();
    check(&server, &Method::GET, &secrets.path(), Some(expired), &secrets.forbidden(&robot)).await;
    ahead.store(3600, Ordering::Relaxed);

    for right in &rights {
        let (method, path) = (right.method(), right.path());
        check(&server, &method, &path, None, &right.forbidden("system:anonymous")).await;
        check(&server, &method, &path, Some("wrong"), &unauthorized()).await;
        check(&server, &method, &path, Some(expired), &unauthorized()).await;
        if right.is_everybodys() {
            let (code, ..) = ask(&server, &method, &path, Some("insufficient")).await;
            assert!(!matches!(code, 401 | 403), "{method} {path}: {code}");
        } else {
            check(&server, &method, &path, Some("insufficient"), &right.forbidden("jane")).await;
        }
    }
    let kinds: BTreeSet<_> = rights.iter().map(|right| (&right.group, &right.resource)).collect();
    assert!(rights.len() > 500 && kinds.len() > 60, "{} rights, {} resources", rights.len(), kinds.len());
    for (path, before) in planted.iter().zip(before) {
        assert_eq!(get(&server, path).await.body, before, "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn refusals_do_not_tell_what_there_is() {
    let (server, _) = start().await;
    plant(&server).await;
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    // What is there and what is not, of kinds, versions, names and namespaces, is refused in the same words.
    for (there, missing) in [
        (format!("{core}/secrets/{NAME}"), format!("{core}/secrets/absent0")),
        (format!("{core}/secrets/{NAME}"), format!("{core}/mysteries/{NAME}")),
        (
            format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
            "/apis/apps/v7/namespaces/vault/deployments".into(),
        ),
        (
            format!("/apis/example.com/v1/namespaces/{NAMESPACE}/safes"),
            "/apis/absent.com/v1/namespaces/vault/safes".into(),
        ),
        (format!("/api/v1/namespaces/{NAMESPACE}/pods"), "/api/v1/namespaces/none0/pods".to_owned()),
    ] {
        let words = async |path: &str| {
            let (code, _, body) = ask(&server, &Method::GET, path, Some("insufficient")).await;
            let mut text = String::from_utf8(body.to_vec()).unwrap();
            for (from, to) in
                [("absent0", NAME), ("mysteries", "secrets"), ("absent.com", "example.com"), ("none0", NAMESPACE)]
            {
                text = text.replace(from, to);
            }
            (code, text)
        };
        assert_eq!(words(&there).await, words(&missing).await, "{there} {missing}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn paths_without_resources_are_refused_alike() {
    let (server, _) = start().await;
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    let discovery = ["/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/openapi/v2", "/openapi/v3"];
    let closed = ["/metrics", "/logs", "/debug/pprof", "/", "/healthz/ping/more", "/swagger.json", "/absent"];
    for path in open.into_iter().chain(discovery).chain(closed) {
        check(&server, &Method::GET, path, Some("wrong"), &unauthorized()).await;
        let is_open = [(None, open.contains(&path)), (Some("insufficient"), !closed.contains(&path))];
        for (token, is_open) in is_open {
            if is_open {
                assert_eq!(ask(&server, &Method::GET, path, token).await.0, 200, "{path}");
            } else {
                let user = token.map_or("system:anonymous", |_| "jane");
                check(&server, &Method::GET, path, token, &forbidden_path(user, "get", path)).await;
                check(&server, &Method::POST, path, token, &forbidden_path(user, "post", path)).await;
            }
        }
    }
    server.stop().await.unwrap();
}
