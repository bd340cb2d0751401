//! Group versions that another server serves.

use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::aggregated::Aggregated;
use crate::client::{create, get, get_with, send, send_to};

pub(crate) const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WARDLE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.wardle.example.com";
pub(crate) const ROOT: &str = "/apis/wardle.example.com/v1";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A server, and the authority of the certificate that it shows to aggregated servers.
async fn started() -> (Server, String) {
    let authority = Authority::generate().unwrap();
    let certificate = authority.certificate().to_owned();
    (Server::builder().front_proxy_authority(authority).start().await.unwrap(), certificate)
}

/// Waits for an answer; other tasks run meanwhile, and so does what they wait for.
pub(crate) async fn until(server: &Server, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let answer = get(server, path).await;
            if is_right(&answer.body) {
                return answer.body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let Ok(body) = tokio::time::timeout(std::time::Duration::from_secs(30), wait).await else {
        panic!("{path} is not as it should be: {}", get(server, path).await.body)
    };
    body
}

pub(crate) async fn until_reason(server: &Server, reason: &str) -> Value {
    let body = until(server, WARDLE, |body| body["status"]["conditions"][0]["reason"] == reason).await;
    body["status"]["conditions"][0].clone()
}

pub(crate) fn service(more: &Value) -> Value {
    let mut spec = json!({"group": "wardle.example.com", "version": "v1", "groupPriorityMinimum": 2000,
        "versionPriority": 10, "service": {"namespace": "default", "name": "wardle"}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": "v1.wardle.example.com"}, "spec": spec})
}

/// A Service whose only endpoint is `aggregated`.
async fn endpoint(server: &Server, aggregated: &Aggregated) {
    let spec = json!({"ports": [{"name": "https", "port": 443}]});
    create(server, "/api/v1/namespaces/default/services", &json!({"metadata": {"name": "wardle"}, "spec": spec})).await;
    // Endpoints may not be on loopback; slices may be anything that a node routes.
    slice(server, aggregated.address.port()).await;
    server.set_dialer(To(aggregated.address));
}

pub(crate) async fn slice(server: &Server, port: u16) {
    let slice = json!({
        "metadata": {"name": "wardle-1", "labels": {"kubernetes.io/service-name": "wardle"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.9"]}], "ports": [{"name": "https", "port": port}],
    });
    create(server, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
}

/// Leads every address of pods to one listener.
pub(crate) struct To(pub(crate) std::net::SocketAddr);

impl windlass_server::dialer::Dialer for To {
    fn dial(&self, address: std::net::SocketAddr) -> Option<windlass_server::dialer::Dialing> {
        let target = self.0;
        (!address.ip().is_loopback()).then(|| Box::pin(tokio::net::TcpStream::connect(target)) as _)
    }
}

/// A server with an aggregated one that is available.
async fn both() -> (Server, Aggregated) {
    let (server, front_proxy) = started().await;
    let aggregated = Aggregated::start(&front_proxy).await;
    endpoint(&server, &aggregated).await;
    create(&server, API_SERVICES, &service(&json!({"caBundle": aggregated.bundle()}))).await;
    until_reason(&server, "Passed").await;
    until(&server, ROOT, |body| body["kind"] == "APIResourceList").await;
    (server, aggregated)
}

#[tokio::test]
async fn the_condition_follows_the_service_its_endpoints_and_probes() {
    let (server, front_proxy) = started().await;
    let aggregated = Aggregated::start(&front_proxy).await;
    create(&server, API_SERVICES, &service(&json!({"caBundle": aggregated.bundle()}))).await;
    let condition = until_reason(&server, "ServiceNotFound").await;
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["message"], "service/wardle in \"default\" is not present");
    let services = "/api/v1/namespaces/default/services";
    let with_port =
        |port: u16| json!({"metadata": {"name": "wardle"}, "spec": {"ports": [{"name": "https", "port": port}]}});
    create(&server, services, &with_port(80)).await;
    let message = until_reason(&server, "ServicePortError").await["message"].clone();
    assert_eq!(message, "service/wardle in \"default\" is not listening on port 443");
    let patch = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    assert_eq!(send(&server, Method::PATCH, &format!("{services}/wardle"), &patch).await.code, 200);
    let message = until_reason(&server, "EndpointsNotFound").await["message"].clone();
    assert_eq!(message, "cannot find endpointslices for service/wardle in \"default\"");
    // Nothing listens on a port that was just given back.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    server.set_dialer(To(free));
    slice(&server, 8443).await;
    let message = until_reason(&server, "FailedDiscoveryCheck").await["message"].clone();
    let url = "https://10.244.0.9:8443/apis/wardle.example.com/v1";
    let expected = format!(
        "failing or missing response from {url}: Get \"{url}\": dial tcp 10.244.0.9:8443: connect: connection refused"
    );
    assert_eq!(message, expected);
    assert_eq!(get_with(&server, ROOT, &[]).await.body(), "service unavailable\n");
    aggregated.set_broken(true);
    server.set_dialer(To(aggregated.address));
    let broken = format!("failing or missing response from {url}: bad status from {url}: 500");
    until(&server, WARDLE, |body| body["status"]["conditions"][0]["message"] == broken).await;
    aggregated.set_broken(false);
    let condition = until_reason(&server, "Passed").await;
    assert_eq!((&condition["status"], &condition["message"]), (&json!("True"), &json!("all checks passed")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn requests_are_passed_on_in_the_name_of_the_user() {
    let (server, aggregated) = both().await;
    let path = format!("{ROOT}/namespaces/default/flunders");
    let user = User::new("jane", ["system:masters".to_owned()]);
    let request = Request::post(format!("{path}?fieldManager=x"))
        .header("x-remote-user", "forged")
        .header("x-remote-extra-forged", "yes")
        .header("authorization", "Bearer secret")
        .header("impersonate-user", "joe")
        .header("impersonate-group", "system:masters")
        .header("impersonate-extra-example.com%2fscope", "a")
        .header("content-type", "application/json")
        .body(Full::<bytes::Bytes>::from(json!({"kind": "Flunder"}).to_string()))
        .unwrap();
    let response = server.service_as(user).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["x-wardle"], "yes");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, json!({"kind": "Flunder"}).to_string());
    let seen = aggregated.last(&path);
    assert_eq!(seen.client.as_deref(), Some("front-proxy-client"));
    assert_eq!(seen.all("x-remote-user"), ["joe"]);
    assert_eq!(seen.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(seen.all("x-remote-extra-example.com%2fscope"), ["a"]);
    for name in ["authorization", "impersonate-user", "x-remote-extra-forged"] {
        assert!(seen.all(name).is_empty(), "{name}");
    }
    let nobody = server.service_as(User::new("nobody", []));
    assert_eq!(send_to(nobody, Method::POST, &path, &json!({})).await.code, 403);
    let redirected = get_with(&server, &format!("{ROOT}/elsewhere"), &[]).await;
    assert_eq!(redirected.status(), 502);
    assert_eq!(redirected.body(), "the backend attempted to redirect this request, which is not permitted");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn aggregated_servers_are_told_whom_to_trust() {
    let (server, front_proxy) = started().await;
    create(&server, API_SERVICES, &service(&json!({"insecureSkipTLSVerify": true}))).await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = until(&server, path, |body| body["data"].is_object()).await["data"].clone();
    assert_eq!(data["requestheader-client-ca-file"], front_proxy);
    assert_eq!(data["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert!(data.get("client-ca-file").is_none());
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    assert_eq!(get(&server, path).await.body["data"]["client-ca-file"], authority.certificate());
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn watches_and_upgrades_go_through() {
    let (server, _aggregated) = both().await;
    let request = Request::get(format!("{ROOT}/flunders?watch=1")).body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut events = server.service().oneshot(request).await.unwrap().into_body();
    let mut text = String::new();
    while text.lines().count() < 2 {
        let frame = events.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    let kinds: Vec<Value> =
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED"]);
    drop(events);
    let request = Request::get(format!("{ROOT}/echo"))
        .header("connection", "Upgrade")
        .header("upgrade", "echo")
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 101);
    let mut raw = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    raw.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    raw.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
    drop(raw);
    server.stop().await.unwrap();
}

/// The entry of the group in the aggregated document.
async fn discovered(server: &Server) -> Value {
    let answer = get_with(server, "/apis", &[("accept", AGGREGATED)]).await;
    let document: Value = serde_json::from_slice(answer.body()).unwrap();
    let items = document["items"].as_array().unwrap();
    items.iter().find(|item| item["metadata"]["name"] == "wardle.example.com").cloned().unwrap_or_default()
}

pub(crate) async fn until_discovered(server: &Server, is_right: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let group = discovered(server).await;
            if is_right(&group) {
                return group;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.unwrap()
}

#[tokio::test]
async fn discovery_has_what_the_other_server_serves() {
    let (server, aggregated) = both().await;
    let group = until_discovered(&server, |group| group["versions"][0]["freshness"] == "Current").await;
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "flunders");
    let groups = get(&server, "/apis").await.body;
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    // Its priority is lower than that of any built-in group.
    assert_eq!(names.last(), Some(&"wardle.example.com"));
    let version = json!({"groupVersion": "wardle.example.com/v1", "version": "v1"});
    let expected = json!({"kind": "APIGroup", "apiVersion": "v1", "name": "wardle.example.com",
        "versions": [version], "preferredVersion": version});
    assert_eq!(get(&server, "/apis/wardle.example.com").await.body, expected);
    let paths = get(&server, "/").await.body["paths"].to_string();
    assert!(paths.contains("\"/apis/wardle.example.com/v1\""), "{paths}");
    // A server that does not answer any more is still registered.
    aggregated.set_broken(true);
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    send(&server, Method::PATCH, "/api/v1/namespaces/default/services/wardle", &patch).await;
    until_reason(&server, "FailedDiscoveryCheck").await;
    let group = until_discovered(&server, |group| group["versions"][0]["freshness"] == "Stale").await;
    assert_eq!(group["versions"], json!([{"version": "v1", "freshness": "Stale"}]));
    assert_eq!(get_with(&server, &format!("{ROOT}/flunders"), &[]).await.status(), 503);
    assert_eq!(send(&server, Method::DELETE, WARDLE, &Value::Null).await.code, 200);
    until_discovered(&server, Value::is_null).await;
    assert_eq!(get_with(&server, ROOT, &[]).await.status(), 404);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn openapi_has_what_the_other_server_describes() {
    let (server, _aggregated) = both().await;
    until_discovered(&server, |group| group["versions"][0]["freshness"] == "Current").await;
    let v2 = get(&server, "/openapi/v2").await.body;
    assert!(v2["paths"]["/apis/wardle.example.com/v1/flunders"].is_object());
    assert!(v2["paths"]["/api/v1/pods"].is_object());
    assert_eq!(v2["definitions"]["com.example.Flunder"], json!({"type": "object"}));
    let index = get(&server, "/openapi/v3").await.body;
    let url = index["paths"]["apis/wardle.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(url, "/openapi/v3/apis/wardle.example.com/v1?hash=1");
    assert_eq!(get(&server, url).await.body, json!({"openapi": "3.0.0"}));
    assert!(index["paths"]["apis/apps/v1"].is_object());
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_older_server_is_discovered_and_described_as_well() {
    let (server, front_proxy) = started().await;
    let aggregated = Aggregated::old(&front_proxy).await;
    endpoint(&server, &aggregated).await;
    create(&server, API_SERVICES, &service(&json!({"insecureSkipTLSVerify": true}))).await;
    let group = until_discovered(&server, |group| group["versions"][0]["freshness"] == "Current").await;
    let kind = json!({"group": "", "version": "", "kind": "Flunder"});
    let below = json!([{"subresource": "status", "responseKind": kind, "verbs": ["get"]}]);
    let resource = json!({"resource": "flunders", "responseKind": kind, "scope": "Namespaced", "shortNames": ["fl"],
        "singularResource": "flunder", "verbs": ["get", "list", "watch"], "subresources": below});
    assert_eq!(group["versions"], json!([{"version": "v1", "resources": [resource], "freshness": "Current"}]));
    let index = get(&server, "/openapi/v3").await.body;
    let url = index["paths"]["apis/wardle.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(&server, url).await.body;
    assert_eq!(document["components"]["schemas"]["com.example.Flunder"], json!({"type": "object"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_not_trusted() {
    let (server, front_proxy) = started().await;
    let aggregated = Aggregated::start(&front_proxy).await;
    let other = Aggregated::start(&front_proxy).await;
    endpoint(&server, &aggregated).await;
    create(&server, API_SERVICES, &service(&json!({"caBundle": other.bundle()}))).await;
    let message = until_reason(&server, "FailedDiscoveryCheck").await["message"].clone();
    assert!(message.as_str().unwrap().contains("x509: certificate signed by unknown authority"), "{message}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_external_name_is_reached_by_that_name() {
    let (server, front_proxy) = started().await;
    let aggregated = Aggregated::start(&front_proxy).await;
    let spec = json!({"type": "ExternalName", "externalName": "localhost"});
    create(&server, "/api/v1/namespaces/default/services", &json!({"metadata": {"name": "wardle"}, "spec": spec}))
        .await;
    let reference = json!({"namespace": "default", "name": "wardle", "port": aggregated.address.port()});
    create(&server, API_SERVICES, &service(&json!({"caBundle": aggregated.bundle(), "service": reference}))).await;
    until_reason(&server, "Passed").await;
    until(&server, ROOT, |body| body["kind"] == "APIResourceList").await;
    server.stop().await.unwrap();
}
