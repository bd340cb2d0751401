//! Requests through the proxy, to servers on loopback.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::services::{Service, ServiceName};

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A server that answers with its name and what it was told about the client.
async fn server(name: &'static str) -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
    let address = listener.local_addr().expect("bound");
    let serving = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
                let header = |name: &str| {
                    let value = request.headers().get(name).and_then(|value| value.to_str().ok());
                    value.unwrap_or_default().to_owned()
                };
                let (host, scheme) = (header("host"), header("x-forwarded-proto"));
                let text = format!("{name} {} {host} {} {scheme}", request.uri(), header("x-forwarded-for"));
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(Bytes::from(text))))
            });
            let http = hyper::server::conn::http1::Builder::new();
            connections.spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(serving)))
}

/// An echo server that first agrees to an upgrade.
async fn echo() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
    let address = listener.local_addr().expect("bound");
    let serving = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a request"));
            }
            assert!(String::from_utf8_lossy(&head).to_lowercase().contains("upgrade: websocket"));
            let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            stream.write_all(agreed).await.expect("sent");
            let (mut read, mut write) = stream.split();
            let _ = tokio::io::copy(&mut read, &mut write).await;
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(serving)))
}

fn services(endpoints: &[SocketAddr]) -> Services {
    let slices: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            let address = json!([{"addresses": [endpoint.ip().to_string()]}]);
            let ports = json!([{"name": "http", "port": endpoint.port()}]);
            let slice = json!({"addressType": "IPv4", "endpoints": address, "ports": ports});
            serde_json::from_value(slice).expect("a slice")
        })
        .collect();
    let service = json!({"spec": {"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]}});
    let service = serde_json::from_value(service).expect("a service");
    let services = Services::default();
    services.set(&ServiceName::new("default", "web"), Some(Service::new(&service, &slices)));
    services
}

fn ingress(spec: &Value) -> Ingress {
    let meta = json!({"name": "web", "namespace": "default"});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("an Ingress")
}

fn to_web(path: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"name": "http"}}});
    json!({"rules": [{"http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}]})
}

/// A controller that listens on loopback.
async fn start(services: Services, spec: &Value) -> (IngressController, SocketAddr, CancellationToken) {
    let controller = IngressController::new(services, connect_directly(), None);
    controller.set([&ingress(spec)]);
    let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let (serving, until) = (controller.clone(), stop.clone());
    tokio::spawn(async move { serving.serve(listener, until).await });
    (controller, address, stop)
}

async fn get(address: SocketAddr, path: &str) -> (StatusCode, String) {
    let stream = TcpStream::connect(address).await.expect("connected");
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("a connection");
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(path).header("host", "pets.example.com").body(Empty::<Bytes>::new());
    let response = sender.send_request(request.expect("a request")).await.expect("an answer");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    drop(connection);
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn requests_go_to_endpoints_in_turn() {
    let ((one, _one), (two, _two)) = (server("one").await, server("two").await);
    let (_, address, stop) = start(services(&[one, two]), &to_web("/hello")).await;
    let mut names = Vec::new();
    for _ in 0..4 {
        let (status, text) = get(address, "/hello/x?y=1").await;
        assert_eq!(status, StatusCode::OK);
        let (name, rest) = text.split_once(' ').expect("a name");
        assert_eq!(rest, "/hello/x?y=1 pets.example.com 127.0.0.1 http");
        names.push(name.to_owned());
    }
    assert_eq!((&names[0], &names[1]), (&names[2], &names[3]));
    assert_ne!(names[0], names[1]);
    assert_eq!(get(address, "/").await.0, StatusCode::NOT_FOUND);
    stop.cancel();
}

#[tokio::test]
async fn an_endpoint_that_is_gone_fails_no_request() {
    let (one, _one) = server("one").await;
    let gone = TcpListener::bind(LOOPBACK).await.expect("a listener").local_addr().expect("bound");
    let services = services(&[one, gone]);
    let (_, address, stop) = start(services.clone(), &to_web("/")).await;
    for _ in 0..4 {
        let (status, text) = get(address, "/").await;
        assert!(status == StatusCode::OK && text.starts_with("one "), "{text}");
    }
    services.set(&ServiceName::new("default", "web"), None);
    assert_eq!(get(address, "/").await.0, StatusCode::SERVICE_UNAVAILABLE);
    stop.cancel();
}

#[tokio::test]
async fn connections_are_upgraded() {
    let (server, _server) = echo().await;
    let (_, address, stop) = start(services(&[server]), &to_web("/")).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"ping").await.expect("sent");
    let mut text = [0; 4];
    stream.read_exact(&mut text).await.expect("an answer");
    assert_eq!(&text, b"ping");
    stop.cancel();
}

#[tokio::test]
async fn encrypted_connections_have_the_certificate_of_the_host() {
    let (one, _one) = server("one").await;
    let mut spec = to_web("/");
    spec["tls"] = json!([{"hosts": ["pets.example.com"], "secretName": "pets"}]);
    let controller = IngressController::new(services(&[one]), connect_directly(), None);
    controller.set([&ingress(&spec)]);
    let made = rcgen::generate_simple_self_signed(vec!["pets.example.com".to_owned()]).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let secret = |certificate: &str, key: &str| Secret {
        data: Some(
            [("tls.crt", certificate), ("tls.key", key)]
                .map(|(name, text)| (name.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec())))
                .into(),
        ),
        ..Secret::default()
    };
    assert!(certificates::certificate(&secret("", &key)).is_err());
    assert!(certificates::certificate(&secret(&certificate, "no key")).is_err());
    let pair = certificates::certificate(&secret(&certificate, &key)).expect("a certificate");
    controller.certificates.set(("default".to_owned(), "pets".to_owned()), Some(pair));

    let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let (serving, until) = (controller.clone(), stop.clone());
    tokio::spawn(async move { serving.serve_tls(listener, until).await });

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let connect = |name: &'static str| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            connector.connect(name.try_into().expect("a name"), stream).await
        }
    };
    let mut stream = connect("pets.example.com").await.expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: pets.example.com\r\nconnection: close\r\n\r\n").await.expect("sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    assert!(text.ends_with("one / pets.example.com 127.0.0.1 https"), "{text}");
    assert!(connect("other.example.com").await.is_err(), "this host has no certificate");
    stop.cancel();
}
