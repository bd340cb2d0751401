//! Certificates of clients, over TLS: what they prove, beside tokens and without them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SignatureScheme, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use windlass_server::authn::User;
use windlass_server::pki::{Authority, Identity};
use windlass_server::{Listener, Server};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A server whose token `secret` is jane's.
async fn listen(builder: windlass_server::ServerBuilder) -> (Server, Authority, Listener) {
    let server = builder.token("secret", User::new("jane", ["devs".to_owned()])).start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    (server, authority, listener)
}

/// Shows the same certificate to every server.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// TLS of a client that trusts `authority` and shows a certificate, with whatever key, if it has one.
fn client(
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
    shown: Option<&Identity>,
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let builder = builder.with_root_certificates(roots);
    let Some(identity) = shown else { return Arc::new(builder.with_no_client_auth()) };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let shown = Shown(Arc::new(CertifiedKey::new(vec![certificate], key)));
    Arc::new(builder.with_client_cert_resolver(Arc::new(shown)))
}

async fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> anyhow::Result<(SendRequest<Full<Bytes>>, Option<HandshakeKind>)> {
    let stream = TcpStream::connect(address).await?;
    let stream = tokio_rustls::TlsConnector::from(Arc::clone(config)).connect("localhost".try_into()?, stream).await?;
    let kind = stream.get_ref().1.handshake_kind();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok((sender, kind))
}

/// Asks the server for the user that it sees.
async fn review(sender: &mut SendRequest<Full<Bytes>>, token: Option<&str>) -> anyhow::Result<(u16, Value)> {
    let mut request = Request::post(REVIEWS).header("host", "localhost").header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let response = sender.send_request(request.body(body.into())?).await?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((code, serde_json::from_slice(&body)?))
}

/// The name of the user, or the code of a refusal.
fn name((code, body): (u16, Value)) -> Result<String, u16> {
    match code {
        201 => Ok(body["status"]["userInfo"]["username"].as_str().unwrap().to_owned()),
        401 => {
            let expected = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
            assert_eq!(body, expected);
            Err(code)
        }
        _ => Err(code),
    }
}

/// The certificate and the token that a client shows, and the user that it is or the code of its refusal.
type Case<'a> = (Option<&'a Identity>, Option<&'a str>, Result<&'a str, u16>);

/// As with upstream's `RequestClientCert` and its union of authenticators.
#[tokio::test]
async fn a_wrong_certificate_does_no_harm_beside_a_token() {
    let (server, authority, listener) = listen(Server::builder()).await;
    let own = authority.client("ann", "devs").unwrap();
    let forged = Authority::generate().unwrap().client("admin", "system:masters").unwrap();
    // Of the right authority, but not for clients.
    let serving = authority.server(&["localhost".to_owned()]).unwrap();
    let nameless = authority.client("", "system:masters").unwrap();
    let cases: [Case<'_>; 13] = [
        (None, None, Err(403)),
        (None, Some("secret"), Ok("jane")),
        (None, Some("wrong"), Err(401)),
        (Some(&own), None, Ok("ann")),
        (Some(&own), Some("secret"), Ok("ann")),
        (Some(&own), Some("wrong"), Ok("ann")),
        (Some(&forged), None, Err(401)),
        (Some(&forged), Some("secret"), Ok("jane")),
        (Some(&forged), Some("wrong"), Err(401)),
        (Some(&serving), None, Err(401)),
        (Some(&serving), Some("secret"), Ok("jane")),
        (Some(&nameless), None, Err(403)),
        (Some(&nameless), Some("wrong"), Err(401)),
    ];
    for (version, (shown, token, expected)) in [&TLS12, &TLS13].into_iter().flat_map(|v| cases.map(|case| (v, case))) {
        let client = client(&authority, version, shown);
        // The second connection resumes the session of the first.
        for wanted in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let (mut sender, kind) = connect(listener.address(), &client).await.unwrap();
            let found = name(review(&mut sender, token).await.unwrap());
            let shown = shown.map(|identity| &identity.certificate);
            assert_eq!(found.as_deref(), expected.as_ref().copied(), "{version:?} {wanted:?} {token:?} {shown:?}");
            assert_eq!(kind, Some(wanted), "{version:?}");
        }
    }
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_needs_its_key() {
    let (server, authority, listener) = listen(Server::builder()).await;
    let victim = authority.client("admin", "system:masters").unwrap();
    let stolen = Identity { key: authority.client("eve", "").unwrap().key, ..victim };
    for version in [&TLS12, &TLS13] {
        let client = client(&authority, version, Some(&stolen));
        // With TLS 1.3 the client hears of it after its handshake.
        let answer = match connect(listener.address(), &client).await {
            Ok((mut sender, _)) => review(&mut sender, Some("secret")).await,
            Err(error) => Err(error),
        };
        assert!(answer.is_err(), "{answer:?}");
    }
    listener.stop().await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_certificate_counts_until_it_expires() {
    let ahead = Arc::new(AtomicI64::new(0));
    let hours = Arc::clone(&ahead);
    let clock = move || Timestamp::now() + SignedDuration::from_hours(hours.load(Ordering::Relaxed));
    let (server, authority, listener) = listen(Server::builder().clock(clock)).await;
    let client = client(&authority, &TLS13, Some(&authority.client("ann", "devs").unwrap()));
    let (mut sender, _) = connect(listener.address(), &client).await.unwrap();
    assert_eq!(name(review(&mut sender, None).await.unwrap()).as_deref(), Ok("ann"));
    ahead.store(11 * 366 * 24, Ordering::Relaxed);
    assert_eq!(name(review(&mut sender, None).await.unwrap()), Err(401));
    let (mut sender, kind) = connect(listener.address(), &client).await.unwrap();
    assert_eq!(kind, Some(HandshakeKind::Resumed));
    assert_eq!(name(review(&mut sender, None).await.unwrap()), Err(401));
    assert_eq!(name(review(&mut sender, Some("secret")).await.unwrap()).as_deref(), Ok("jane"));
    listener.stop().await;
    server.stop().await.unwrap();
}
