//! Asks webhooks as an API server would, or as one never would.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass_server::pki::Identity;

use crate::bench::Pet;

/// Whom to ask, and whom to trust.
#[derive(Clone)]
pub struct Caller {
    pub address: SocketAddr,
    name: ServerName<'static>,
    roots: Arc<rustls::RootCertStore>,
    identity: Option<Identity>,
}

impl Caller {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            name: ServerName::from(address.ip()),
            roots: Arc::new(rustls::RootCertStore::empty()),
            identity: None,
        }
    }

    /// Expects a certificate for this name instead of the address.
    pub fn named(mut self, name: &str) -> Self {
        self.name = ServerName::try_from(name.to_owned()).expect("a name");
        self
    }

    pub fn trusting(&self, bundle: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok));
        Self { roots: Arc::new(roots), ..self.clone() }
    }

    /// Shows a client certificate.
    pub fn with_identity(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Whether a connection is good for anything: a client that is not welcome learns so after its
    /// handshake.
    pub async fn is_answered(&self) -> bool {
        let Ok((mut stream, _)) = self.connect().await else { return false };
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let mut answer = Vec::new();
        sent.is_ok() && stream.read_to_end(&mut answer).await.is_ok() && answer.starts_with(b"HTTP/1.1 ")
    }

    /// A connection, if its certificate is trusted, and that certificate.
    pub async fn connect(&self) -> std::io::Result<(tokio_rustls::client::TlsStream<TcpStream>, Vec<u8>)> {
        self.connect_as("http/1.1").await
    }

    async fn connect_as(
        &self,
        protocol: &str,
    ) -> std::io::Result<(tokio_rustls::client::TlsStream<TcpStream>, Vec<u8>)> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain =
                    vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("a certificate")];
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("they belong together")
            }
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(self.name.clone(), stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().expect("certificates")[0].to_vec();
        Ok((stream, certificate))
    }

    pub async fn certificate(&self) -> Option<Vec<u8>> {
        self.connect().await.ok().map(|(_, certificate)| certificate)
    }

    /// Sends a body and returns the status and what came back.
    pub async fn send(&self, path: &str, content_type: &str, body: impl Into<Bytes>) -> (u16, String) {
        let (stream, _) = self.connect().await.expect("connected");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let request = Request::post(path)
            .header("host", "hook")
            .header("content-type", content_type)
            .body(Full::new(body.into()))
            .expect("a request");
        let response = sender.send_request(request).await.expect("a response");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        drop(sender);
        connection.abort();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    /// Asks many times at once on one HTTP/2 connection, and returns the statuses.
    pub async fn send_many(&self, path: &str, pet: &Pet, times: usize) -> Vec<u16> {
        let (stream, _) = self.connect_as("h2").await.expect("connected");
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let executor = hyper_util::rt::TokioExecutor::new();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(executor, TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        let asking = (0..times).map(|_| {
            let mut sender = sender.clone();
            let request = Request::post(format!("https://hook{path}"))
                .header("content-type", "application/json")
                .body(Full::<Bytes>::from(review(pet).to_string()))
                .expect("a request");
            async move { sender.send_request(request).await.expect("a response").status().as_u16() }
        });
        futures::future::join_all(asking).await
    }

    /// The `response` to a review of a pet to be created.
    pub async fn ask(&self, path: &str, pet: &Pet) -> Value {
        let (status, body) = self.send(path, "application/json", review(pet).to_string()).await;
        assert_eq!(status, 200, "{body}");
        let review: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(
            (&review["kind"], &review["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        assert_eq!(review["response"]["uid"], "7");
        review["response"].clone()
    }
}

pub fn review(pet: &Pet) -> Value {
    let kind = json!({"group": "petstore.example.com", "version": "v1", "kind": "Pet"});
    let resource = json!({"group": "petstore.example.com", "version": "v1", "resource": "pets"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "7", "kind": kind, "resource": resource, "name": pet.metadata.name, "namespace": "default",
        "operation": "CREATE", "userInfo": {"username": "somebody"}, "object": pet, "oldObject": null, "dryRun": false,
    }})
}
