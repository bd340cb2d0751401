//! Probes against a scripted container and real servers on pipes.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::convert::Infallible;

use http::{HeaderMap, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use windlass_server::pki::Authority;

use super::*;

/// Answers commands as it was told, and then always as the last time; serves what a function says on its ports.
struct Scripted {
    codes: Mutex<VecDeque<i32>>,
    serve: fn(tokio::io::DuplexStream) -> BoxFuture<'static, ()>,
}

impl Target for Scripted {
    fn exec(&self, _: Vec<String>) -> BoxFuture<'static, Result<(i32, String), String>> {
        let mut codes = self.codes.lock();
        let code = if codes.len() > 1 { codes.pop_front() } else { codes.front().copied() };
        Box::pin(async move { Ok((code.unwrap_or(0), String::new())) })
    }

    fn connect(&self, _: Option<String>, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, String>> {
        let serve = self.serve;
        Box::pin(async move {
            if port == 1 {
                return Err("dial tcp: connection refused".to_owned());
            }
            let (client, server) = tokio::io::duplex(4096);
            tokio::spawn(serve(server));
            Ok(Box::new(client) as Box<dyn Connection>)
        })
    }
}

fn target(codes: &[i32]) -> Arc<dyn Target> {
    Arc::new(Scripted { codes: Mutex::new(codes.iter().copied().collect()), serve: |_| Box::pin(async {}) })
}

fn container(value: Value) -> Container {
    serde_json::from_value(value).unwrap()
}

/// The first outcomes that count, with the seconds after the start.
async fn outcomes(container: Value, codes: &[i32], count: usize) -> Vec<(Probe, bool, u64)> {
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let began = tokio::time::Instant::now();
    let _probes = start(&self::container(container), false, &target(codes), move |event| {
        if let ContainerEvent::Probe { probe, success, .. } = event {
            let _ = send.send((probe, success, began.elapsed().as_secs()));
        }
    });
    let mut found = Vec::new();
    while found.len() < count {
        match tokio::time::timeout(Duration::from_secs(1000), receive.recv()).await {
            Ok(Some(outcome)) => found.push(outcome),
            _ => break,
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn outcomes_count_when_they_come_in_a_row() {
    let probe =
        json!({"exec": {"command": ["x"]}, "periodSeconds": 2, "initialDelaySeconds": 3, "failureThreshold": 2});
    let ready = json!({"name": "c", "readinessProbe": probe});
    let found = outcomes(ready, &[0, 1, 0, 1, 1, 1, 0], 3).await;
    assert_eq!(found, [(Probe::Readiness, true, 3), (Probe::Readiness, false, 11), (Probe::Readiness, true, 15)]);
    let live = json!({"name": "c", "livenessProbe": {"exec": {"command": ["x"]}, "periodSeconds": 1}});
    assert_eq!(outcomes(live, &[0, 1, 1, 1, 1], 2).await, [(Probe::Liveness, false, 3)]);
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_told() {
    let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 2});
    let ready = container(json!({"name": "c", "readinessProbe": probe}));
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let _probes = start(&ready, false, &target(&[1, 0, 1, 1, 1, 0]), move |event| _ = send.send(event));
    let mut told = Vec::new();
    while told.len() < 6 {
        told.push(match receive.recv().await.unwrap() {
            ContainerEvent::Probe { success: true, .. } => "ready",
            ContainerEvent::Probe { .. } => "not ready",
            _ => "failed",
        });
    }
    assert_eq!(told, ["failed", "ready", "failed", "not ready", "failed", "ready"]);
}

#[tokio::test(start_paused = true)]
async fn other_probes_wait_for_the_startup() {
    let exec = |period: i32| json!({"exec": {"command": ["x"]}, "periodSeconds": period});
    let both = json!({"name": "c", "startupProbe": exec(5), "readinessProbe": exec(1)});
    let found = outcomes(both.clone(), &[1, 1, 0, 0], 2).await;
    assert_eq!(found, [(Probe::Startup, true, 10), (Probe::Readiness, true, 10)]);
    assert_eq!(outcomes(both, &[1], 2).await, [(Probe::Startup, false, 10)]);
}

#[tokio::test]
async fn http_servers_are_asked() {
    async fn serve(mut stream: tokio::io::DuplexStream) {
        let mut asked = vec![0; 1024];
        let read = stream.read(&mut asked).await.unwrap();
        let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
        let good = asked.starts_with("GET /healthz HTTP/1.1\r\n") && asked.to_lowercase().contains("x-own: 1");
        let answer =
            if good { "HTTP/1.1 204 No Content\r\n\r\n" } else { "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n" };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
    let target = Scripted { codes: Mutex::default(), serve: |stream| Box::pin(serve(stream)) };
    let own = container(json!({"name": "c", "ports": [{"name": "web", "containerPort": 80}]}));
    let ask = async |value: Value| Action::of(&serde_json::from_value(value).unwrap(), &own).ask(&target).await;
    let headers = json!([{"name": "X-Own", "value": "1"}]);
    let good = json!({"httpGet": {"port": "web", "path": "healthz", "httpHeaders": headers}});
    assert_eq!(ask(good).await, Ok(()));
    let bad = ask(json!({"httpGet": {"port": 80}})).await;
    assert_eq!(bad, Err("HTTP probe failed with statuscode: 503".to_owned()));
    assert_eq!(ask(json!({"tcpSocket": {"port": 80}})).await, Ok(()));
    assert!(ask(json!({"tcpSocket": {"port": 1}})).await.unwrap_err().contains("refused"));
    assert!(ask(json!({"tcpSocket": {"port": "no"}})).await.unwrap_err().contains("couldn't find port"));
}

#[tokio::test]
async fn https_servers_are_asked_whatever_their_certificate() {
    async fn serve(stream: tokio::io::DuplexStream) {
        let authority = Authority::generate().unwrap();
        let identity = authority.server(&["elsewhere.example.com".to_owned()]).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(&identity).unwrap()));
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        let mut asked = vec![0; 1024];
        let read = stream.read(&mut asked).await.unwrap();
        let code = if asked[..read].starts_with(b"GET /ready HTTP/1.1\r\n") { 200 } else { 404 };
        let answer = format!("HTTP/1.1 {code} So\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
    let target = Scripted { codes: Mutex::default(), serve: |stream| Box::pin(serve(stream)) };
    let own = container(json!({"name": "c"}));
    let ask = async |value: Value| Action::of(&serde_json::from_value(value).unwrap(), &own).ask(&target).await;
    assert_eq!(ask(json!({"httpGet": {"port": 8443, "path": "/ready", "scheme": "HTTPS"}})).await, Ok(()));
    let missing = ask(json!({"httpGet": {"port": 8443, "scheme": "HTTPS"}})).await;
    assert_eq!(missing, Err("HTTP probe failed with statuscode: 404".to_owned()));
    ask(json!({"httpGet": {"port": 8443, "path": "/ready", "scheme": "HTTP"}})).await.unwrap_err();
}

/// The name of the service in a request for its health.
fn service_in(body: &[u8]) -> String {
    let message = &body[5..];
    assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize, message.len());
    let Some((field, rest)) = message.split_first() else { return String::new() };
    assert_eq!(*field, 0x0a);
    let (mut length, mut at) = (0, 0);
    loop {
        length |= usize::from(rest[at] & 0x7f) << (7 * at);
        at += 1;
        if rest[at - 1] & 0x80 == 0 {
            break;
        }
    }
    assert_eq!(rest.len(), at + length);
    String::from_utf8(rest[at..].to_vec()).unwrap()
}

type Answer = Response<StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>>;

/// Answers as `grpc.health.v1.Health` does.
async fn check_health(request: Request<Incoming>) -> Result<Answer, Infallible> {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["content-type"], "application/grpc");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (status, code) = match service_in(&body).as_str() {
        "down" => (2, "0"),
        "new" => (0, "0"),
        "none" => (1, "12"),
        "unknown" => (1, "5"),
        _ => (1, "0"),
    };
    let message: &[u8] = if status == 0 { &[0, 0, 0, 0, 0] } else { &[0, 0, 0, 0, 2, 8, status] };
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]);
    let mut frames = vec![Ok(Frame::trailers(trailers))];
    if code == "0" {
        frames.insert(0, Ok(Frame::data(Bytes::copy_from_slice(message))));
    }
    Ok(Response::new(StreamBody::new(futures::stream::iter(frames))))
}

#[tokio::test]
async fn grpc_servers_are_asked_for_their_health() {
    async fn serve(stream: tokio::io::DuplexStream) {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let served = server.serve_connection(TokioIo::new(stream), hyper::service::service_fn(check_health));
        // The client goes away when it has its answer.
        let _ = served.await;
    }
    let target = Scripted { codes: Mutex::default(), serve: |stream| Box::pin(serve(stream)) };
    let own = container(json!({"name": "c"}));
    let ask = async |grpc: Value| {
        let probe = serde_json::from_value(json!({ "grpc": grpc })).unwrap();
        Action::of(&probe, &own).ask(&target).await
    };
    assert_eq!(ask(json!({"port": 9000})).await, Ok(()));
    for length in [1, 127, 128, 300] {
        assert_eq!(ask(json!({"port": 9000, "service": "s".repeat(length)})).await, Ok(()), "{length}");
    }
    let said = async |service: &str| ask(json!({"port": 9000, "service": service})).await.unwrap_err();
    assert_eq!(said("down").await, "service unhealthy (responded with \"NOT_SERVING\")");
    assert_eq!(said("new").await, "service unhealthy (responded with \"UNKNOWN\")");
    assert_eq!(said("unknown").await, "error: health rpc failed: status 5");
    assert!(said("none").await.contains("does not implement the grpc health protocol"));
    assert!(ask(json!({"port": 1})).await.unwrap_err().contains("refused"));
    assert_eq!(ask(json!({"port": 70000})).await, Err("70000 is not a port".to_owned()));
}

#[tokio::test]
async fn a_server_without_grpc_is_not_healthy() {
    async fn serve(mut stream: tokio::io::DuplexStream) {
        let _ = stream.write_all(b"HTTP/1.1 400 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    }
    let target = Scripted { codes: Mutex::default(), serve: |stream| Box::pin(serve(stream)) };
    let grpc = Action::Grpc { port: 9000, service: String::new() };
    let said = grpc.ask(&target).await.unwrap_err();
    assert!(said.starts_with("error: health rpc failed: "), "{said}");
}
