//! Clients that take without giving back: connections they do not use, bodies they do not end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::ServiceExt as _;
use windlass_server::Server;
use windlass_server::authn::User;
use windlass_server::pki::Authority;

use crate::client::{create, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A body of some pieces that never ends.
struct Endless {
    pieces: usize,
    piece: Bytes,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pieces == 0 {
            return Poll::Pending;
        }
        self.pieces -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

async fn send(server: &Server, user: &str, path: &str, body: Endless) -> (u16, Value, Option<String>) {
    let request = Request::post(path).header("content-type", "application/json").body(body).unwrap();
    let response = server.service_as(User::new(user, ["system:authenticated".to_owned()])).oneshot(request).await;
    let response = response.unwrap();
    let code = response.status().as_u16();
    let retry = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap(), retry)
}

/// A user without the right to create is refused by the path alone.
#[tokio::test]
async fn a_body_is_not_read_for_an_account_without_rights() {
    struct Unread;

    impl Body for Unread {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            panic!("the body is read")
        }
    }

    let server = start().await;
    let service = server.service_as(User::new("nobody", ["system:authenticated".to_owned()]));
    let request = Request::post(MAPS).header("content-type", "application/json").body(Unread).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 403);
    server.stop().await.unwrap();
}

/// Reviews of oneself are for everybody, so these bodies are read: up to a share, and for a minute.
#[tokio::test(start_paused = true)]
async fn endless_bodies_take_no_more_than_a_share() {
    let server = Arc::new(start().await);
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let attack = |server: &Arc<Server>| {
        let (server, body) = (Arc::clone(server), Endless { pieces: 2, piece: piece.clone() });
        tokio::spawn(async move { send(&server, "nobody", REVIEWS, body).await })
    };
    let attacks: Vec<_> = (0..100).map(|_| attack(&server)).collect();
    let mut codes = Vec::new();
    for attack in attacks {
        let (code, status, retry) = attack.await.unwrap();
        if code == 429 {
            assert_eq!((retry.as_deref(), &status["reason"]), (Some("1"), &json!("TooManyRequests")));
        } else {
            let message = "Timeout: request did not complete within the allotted timeout";
            assert_eq!((code, &status["message"], &status["reason"]), (504, &json!(message), &json!("Timeout")));
        }
        codes.push(code);
    }
    assert_eq!(codes.iter().filter(|code| **code == 504).count(), 10);

    // Meanwhile others are served, and afterwards everybody is.
    let attacks: Vec<_> = (0..100).map(|_| attack(&server)).collect();
    tokio::task::yield_now().await;
    create(&server, MAPS, &json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(900_000)}})).await;
    for attack in attacks {
        attack.await.unwrap();
    }
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let request = Request::post(REVIEWS).header("content-type", "application/json");
    let request = request.body(http_body_util::Full::<Bytes>::from(review.to_string())).unwrap();
    let nobody = User::new("nobody", ["system:authenticated".to_owned()]);
    assert_eq!(server.service_as(nobody).oneshot(request).await.unwrap().status(), 201);
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_when_it_asked_to() {
    let server = start().await;
    let started = tokio::time::Instant::now();
    let body = Endless { pieces: 1, piece: Bytes::from("{") };
    let (code, ..) = send(&server, "nobody", &format!("{REVIEWS}?timeout=3s"), body).await;
    assert_eq!((code, started.elapsed()), (504, Duration::from_secs(3)));
    let (code, status, _) =
        send(&server, "nobody", &format!("{REVIEWS}?timeout=soon"), Endless { pieces: 0, piece: Bytes::new() }).await;
    let message = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!((code, &status["message"]), (400, &json!(message)));
}

type Connection = TlsStream<TcpStream>;

async fn connect(address: std::net::SocketAddr, authority: &Authority) -> std::io::Result<Connection> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect("localhost".try_into().unwrap(), stream).await
}

/// Sends a request and returns the first line of the answer.
async fn ask(connection: &mut Connection, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer secret\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n") {
        answer.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}

async fn is_closed(connection: &mut Connection) -> bool {
    // Without a farewell of TLS, which counts as an error.
    matches!(connection.read(&mut [0; 1 << 12]).await, Ok(0) | Err(_))
}

/// All connections were taken by a client that did nothing with them, and no other got in.
#[tokio::test]
async fn idle_connections_make_room_for_new_ones() {
    const LIMIT: usize = 8;
    let builder = Server::builder().token("secret", User::admin()).max_connections(LIMIT);
    let server = builder.start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let address = listener.address();
    // One that is used, some that have sent half a head, some nothing at all; one has not even shaken hands.
    let mut watch = connect(address, &authority).await.unwrap();
    assert_eq!(ask(&mut watch, "/api/v1/namespaces?watch=true").await, "HTTP/1.1 200 OK\r\n");
    let silent = TcpStream::connect(address).await.unwrap();
    let mut idle = Vec::new();
    for n in 2..LIMIT {
        let mut connection = connect(address, &authority).await.unwrap();
        if n % 2 == 0 {
            connection.write_all(b"GET /version HT").await.unwrap();
        }
        idle.push(connection);
    }
    let mut new = Vec::new();
    for _ in 0..LIMIT - 1 {
        let mut connection = connect(address, &authority).await.unwrap();
        assert_eq!(ask(&mut connection, "/version").await, "HTTP/1.1 200 OK\r\n");
        new.push(connection);
    }
    for connection in &mut idle {
        assert!(is_closed(connection).await);
    }
    drop(silent);
    // The watch is none of those.
    create(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "new"}})).await;
    let mut seen = String::new();
    while !seen.contains("\"name\":\"new\"") {
        let mut bytes = [0; 1 << 12];
        let count = watch.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0);
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn connections_are_refused_while_all_are_in_use() {
    let builder = Server::builder().token("secret", User::admin()).max_connections(2);
    let server = builder.start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..2 {
        let mut watch = connect(listener.address(), &authority).await.unwrap();
        assert_eq!(ask(&mut watch, "/api/v1/namespaces?watch=true").await, "HTTP/1.1 200 OK\r\n");
        watches.push(watch);
    }
    assert!(connect(listener.address(), &authority).await.is_err());
    watches.pop();
    // The place is free once the server has seen that the client is gone.
    let mut new = loop {
        if let Ok(new) = connect(listener.address(), &authority).await {
            break new;
        }
    };
    assert_eq!(ask(&mut new, "/version").await, "HTTP/1.1 200 OK\r\n");
    listener.stop().await;
    server.stop().await.unwrap();
}
