//! Bodies that are no objects, or too large.

use std::sync::Arc;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::client::{Answer, create, post, send_bytes, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn apply(server: &Server, query: &str, body: &str) -> Answer {
    let path = format!("{MAPS}/m?fieldManager=m{query}");
    send_bytes(server.service(), Method::PATCH, &path, "application/apply-patch+yaml", body.into()).await
}

#[tokio::test]
async fn what_is_no_object_is_not_applied() {
    let server = start().await;
    let no_map = |found: &str| {
        format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into \
             Go value of type map[string]interface {{}}"
        )
    };
    for exists in [false, true] {
        if exists {
            create(&server, MAPS, &json!({"metadata": {"name": "m"}})).await;
        }
        for (body, message) in [
            ("[]", no_map("array")),
            ("x", no_map("string")),
            ("3", no_map("number")),
            ("true", no_map("bool")),
            ("", "invalid object type: /, Kind=".to_owned()),
            ("null", "invalid object type: /, Kind=".to_owned()),
            ("{}", "invalid object type: /, Kind=".to_owned()),
        ] {
            let answer = apply(&server, "", body).await;
            assert_eq!((answer.code, answer.message()), (400, message.as_str()), "{body}");
            assert_eq!(answer.body["reason"], "BadRequest");
        }
        let answer = apply(&server, "", "a: [").await;
        let prefix = "error decoding patch: error converting YAML to JSON: yaml: line ";
        assert!(answer.code == 400 && answer.message().starts_with(prefix), "{}", answer.message());
    }
    let twice = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: b\n  a: c\n";
    let strict = apply(&server, "&fieldValidation=Strict", twice).await;
    let message = "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  \
                   line 7: key \"a\" already set in map";
    assert_eq!((strict.code, strict.message()), (400, message));
    let warned = apply(&server, "&fieldValidation=Warn", twice).await;
    assert_eq!(warned.code, 200, "{}", warned.body);
    assert_eq!(warned.warnings, [r#"299 - "line 7: key \"a\" already set in map""#]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_sends_too_much_over_http2_is_told() {
    let server = Server::builder().token("secret", User::admin()).start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(listener.address()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);

    let map = json!({"metadata": {"name": "big"}, "data": {"a": "x".repeat(5 << 20)}});
    let request = Request::post(format!("https://localhost{MAPS}"))
        .header("authorization", "Bearer secret")
        .header("content-type", "application/json")
        .body(Full::<bytes::Bytes>::from(map.to_string()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 413);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["message"], "Request entity too large: limit is 3145728");
    assert_eq!(status["reason"], "RequestEntityTooLarge");

    // The connection goes on, and a body of many pieces arrives whole.
    let map = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(900_000)}});
    let request = Request::post(format!("https://localhost{MAPS}"))
        .header("authorization", "Bearer secret")
        .header("content-type", "application/json")
        .body(Full::<bytes::Bytes>::from(map.to_string()))
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 201);

    // So does a long selector, and what else stands in a header.
    let request = Request::get(format!("https://localhost{MAPS}?labelSelector=a+in+({})", "value,".repeat(8_000)))
        .header("authorization", "Bearer secret")
        .header("x-long", "x".repeat(500_000))
        .body(Full::<bytes::Bytes>::default())
        .unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    // What is no token is nothing: the health of a server is for everybody.
    for (authorization, path, code) in
        [("Basic YTpi", "/healthz", 200), ("Bearer  x", MAPS, 403), ("Bearer x", MAPS, 401)]
    {
        let request = Request::get(format!("https://localhost{path}")).header("authorization", authorization);
        let answer = sender.send_request(request.body(Full::<bytes::Bytes>::default()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), code, "{authorization}");
    }
    drop(sender);
    connection.await.unwrap().unwrap();
    listener.stop().await;
    server.stop().await.unwrap();
}

/// A replacement has to name its object: an empty body must not empty it.
#[tokio::test]
async fn a_replacement_without_a_name_changes_nothing() {
    let server = start().await;
    create(&server, MAPS, &json!({"metadata": {"name": "m"}, "data": {"k": "v"}})).await;
    for (path, name) in [(format!("{MAPS}/m"), "m"), ("/api/v1/namespaces/default/finalize".to_owned(), "default")] {
        let answer = send_bytes(server.service(), Method::PUT, &path, "application/json", "{}".into()).await;
        let message = format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
        assert_eq!((answer.code, answer.body["message"].as_str()), (400, Some(&*message)), "{path}");
    }
    let kept = send_bytes(server.service(), Method::GET, &format!("{MAPS}/m"), "", Vec::new()).await;
    assert_eq!(kept.body["data"]["k"], "v");
}

/// A list that is there but empty is not one that is absent, where upstream tells them apart.
#[tokio::test]
async fn an_autoscaler_without_any_policy_is_refused() {
    let server = start().await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"maxReplicas": 2, "scaleTargetRef": target, "behavior": {"scaleUp": {"policies": []}}});
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": spec});
    let answer = post(&server, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &autoscaler).await;
    assert_eq!(answer.code, 422, "{}", answer.message());
    let expected = "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
    assert!(answer.message().ends_with(expected), "{}", answer.message());
    server.stop().await.unwrap();
}
