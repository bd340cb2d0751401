//! What HTTP/1 leaves to the server, as Go's server does it.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use windlass_server::pki::Authority;

use crate::client::start;

async fn connect(address: std::net::SocketAddr, authority: &Authority) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    let certificate = rustls::pki_types::CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    connector.connect("localhost".try_into().unwrap(), stream).await.unwrap()
}

/// The head of the answer to a request.
async fn ask(connection: &mut TlsStream<TcpStream>, request: &[u8]) -> String {
    connection.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut buffer = [0; 4096];
        let read = connection.read(&mut buffer).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test]
async fn a_request_names_one_host_and_has_many_headers() {
    let server = start().await;
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let version = "GET /version HTTP/1.1\r\n";
    for (hosts, expected) in [
        ("", "400 bad request: missing required host header"),
        ("Host: a\r\nHost: b\r\n", "400 bad request: too many host headers"),
    ] {
        let mut connection = connect(listener.address(), &authority).await;
        let answer = ask(&mut connection, format!("{version}{hosts}\r\n").as_bytes()).await;
        assert!(answer.starts_with("http/1.1 400"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        let mut rest = String::new();
        let _ = connection.read_to_string(&mut rest).await;
        assert!(format!("{answer}{}", rest.to_lowercase()).ends_with(expected), "{answer}{rest}");
    }
    let headers: String = (0..500).map(|n| format!("X-{n}: {n}\r\n")).collect::<Vec<_>>().concat();
    let mut connection = connect(listener.address(), &authority).await;
    let answer = ask(&mut connection, format!("{version}Host: a\r\n{headers}\r\n").as_bytes()).await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    listener.stop().await;
    server.stop().await.unwrap();
}

/// Go bounds the whole head only.
#[tokio::test]
async fn a_url_may_have_65534_bytes() {
    let server = start().await;
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    for (length, expected) in [(65_534, "http/1.1 200"), (65_535, "http/1.1 414")] {
        let mut connection = connect(listener.address(), &authority).await;
        let query = "x".repeat(length - "/version?".len());
        let answer = ask(&mut connection, format!("GET /version?{query} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(expected), "{length}: {answer}");
    }
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn large_unread_bodies_close_the_connection() {
    let server = start().await;
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    // An anonymous user may not create, whatever the body says.
    let post = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\n";
    let mut connection = connect(listener.address(), &authority).await;
    let body = "x".repeat(100_000);
    for _ in 0..2 {
        let request = format!("{post}Content-Length: {}\r\n\r\n{body}", body.len());
        let answer = ask(&mut connection, request.as_bytes()).await;
        assert!(answer.starts_with("http/1.1 403"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
        // The rest of the answer, so that the next one begins where it is looked for.
        let length = answer.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let read = answer.split_once("\r\n\r\n").unwrap().1.len();
        let mut rest = vec![0; length.parse::<usize>().unwrap() - read];
        connection.read_exact(&mut rest).await.unwrap();
    }
    for head in ["Content-Length: 10000000\r\n", "Content-Length: 10\r\nExpect: 100-continue\r\n"] {
        let mut connection = connect(listener.address(), &authority).await;
        let answer = ask(&mut connection, format!("{post}{head}\r\n").as_bytes()).await;
        assert!(answer.starts_with("http/1.1 403"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    listener.stop().await;
    server.stop().await.unwrap();
}
