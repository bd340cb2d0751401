//! The server behind an APIService: where it is, how it is trusted, and connections to it.
//!
//! Each request has a connection of its own, as requests may be watches or upgrades.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, IF_NONE_MATCH};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::Value;
use tokio_rustls::TlsConnector;
use windlass_store::Store;

use super::FrontProxy;
use crate::dialer::Dial;
use crate::field::quote;
use crate::streams::Connection;
use crate::streams::proxy::{self, Proxied};
use crate::user::User;
use crate::validation::access::Access as _;
use crate::webhook::{dial, service, tls};

/// Documents that are larger are not read.
const DOCUMENT_LIMIT: usize = 64 << 20;

/// Where a group version is served.
pub(crate) struct Backend {
    reference: service::Reference,
    /// Why there can be no TLS is told to clients.
    tls: Result<TlsConnector, String>,
    store: Arc<dyn Store>,
    dial: Dial,
}

/// What a document was answered with.
pub(crate) type Fetched = (Parts, Bytes);

/// An open connection.
pub(super) struct Opened {
    pub(super) connection: Box<dyn Connection>,
    /// `address:port` of the other end.
    pub(super) host: String,
}

impl Backend {
    /// The server that the spec of an APIService names.
    pub(crate) fn new(store: Arc<dyn Store>, dial: Dial, spec: &Value, front_proxy: &FrontProxy) -> Self {
        let is_insecure = spec.flag("insecureSkipTLSVerify");
        let tls = tls::client(spec.text("caBundle"), is_insecure, Some(&front_proxy.identity));
        Self { reference: service::Reference::new(spec.at("service")), tls, store, dial }
    }

    /// Namespace and name of the Service.
    pub(crate) fn service(&self) -> (&str, &str) {
        (&self.reference.namespace, &self.reference.name)
    }

    /// The port of the Service.
    pub(crate) fn port(&self) -> u16 {
        self.reference.port
    }

    /// Why there can be no TLS, if so.
    pub(super) fn tls_problem(&self) -> Option<&str> {
        self.tls.as_ref().err().map(String::as_str)
    }

    /// An address of the Service at this moment, or why there is none.
    pub(crate) async fn resolve(&self) -> Result<(String, u16), String> {
        service::resolve(&*self.store, &self.reference).await
    }

    /// Connects to an address, with TLS.
    pub(super) async fn connect(&self, (address, port): (String, u16)) -> Result<Opened, String> {
        let tls = self.tls.as_ref().map_err(Clone::clone)?;
        let stream = dial::dial(&self.dial, &address, port).await?;
        let ends = dial::ends(&stream);
        let name = self.reference.server_name().try_into().map_err(|_| {
            "tls: either ServerName or InsecureSkipVerify must be specified in the tls.Config".to_owned()
        })?;
        let (stream, speaks_http) = dial::Sniffed::new(stream);
        let stream = tls.connect(name, stream).await.map_err(|error| {
            if speaks_http.load(Ordering::Relaxed) {
                "http: server gave HTTP response to HTTPS client".to_owned()
            } else {
                tls::explain(&error, &ends)
            }
        })?;
        Ok(Opened { connection: Box::new(stream), host: host_port(&address, port) })
    }

    /// Asks the server for a document in the name of `user`, for no longer than `limit`. The error is worded as Go's.
    pub(crate) async fn fetch(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&str>,
        user: &User,
        limit: Duration,
    ) -> Result<Fetched, String> {
        let at = self.resolve().await?;
        self.fetch_from(at, path, accept, tag, user, limit).await
    }

    /// [`fetch`](Self::fetch) from an address that was resolved before.
    pub(crate) async fn fetch_from(
        &self,
        at: (String, u16),
        path: &str,
        accept: &str,
        tag: Option<&str>,
        user: &User,
        limit: Duration,
    ) -> Result<Fetched, String> {
        let failed = |why: &str| format!("Get {}: {why}", quote(&url(&at, path)));
        let mut headers = HeaderMap::new();
        for (name, value) in [(ACCEPT, Some(accept)), (IF_NONE_MATCH, tag)] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        identify(&mut headers, user);
        let exchange = async {
            let Opened { connection, host } = self.connect(at.clone()).await?;
            let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
            let target = path.to_owned();
            let request = Proxied { method: Method::GET, target, headers, body, host, takeover: None };
            let answer = proxy::forward(connection, request).await.map_err(|error| broken(&error))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, DOCUMENT_LIMIT).collect().await;
            Ok((parts, body.map_err(|_| "http: response body too large".to_owned())?.to_bytes()))
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(fetched) => fetched.map_err(|why: String| failed(&why)),
            Err(_) => Err(failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")),
        }
    }
}

/// Why a request got no answer, in Go's words.
pub(super) fn broken(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return "EOF".to_owned();
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.map_or_else(
        || "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned(),
        crate::dialer::system,
    )
}

/// The address of a path at a server.
pub(crate) fn url((address, port): &(String, u16), path: &str) -> String {
    format!("https://{}{path}", host_port(address, *port))
}

fn host_port(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Says in whose name a request is made, whatever the client said. Mirrors `SetAuthProxyHeaders` of
/// `client-go/transport/round_trippers.go`.
pub(super) fn identify(headers: &mut HeaderMap, user: &User) {
    let claims: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            matches!(name, "x-remote-user" | "x-remote-uid" | "x-remote-group") || name.starts_with("x-remote-extra-")
        })
        .cloned()
        .collect();
    for name in claims {
        headers.remove(name);
    }
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.append(name, value);
        }
    };
    add(HeaderName::from_static("x-remote-user"), &user.name);
    if !user.uid.is_empty() {
        add(HeaderName::from_static("x-remote-uid"), &user.uid);
    }
    for group in &user.groups {
        add(HeaderName::from_static("x-remote-group"), group);
    }
    for (key, values) in &user.extra {
        let Ok(name) = HeaderName::from_bytes(format!("x-remote-extra-{}", escaped(key)).as_bytes()) else { continue };
        for value in values {
            add(name.clone(), value);
        }
    }
}

/// A key as part of a header's name: bytes that a name cannot have are percent-encoded.
fn escaped(key: &str) -> String {
    key.bytes().fold(String::with_capacity(key.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_claim_to_be_another_user() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-uid", "x-remote-group", "x-remote-extra-scopes"] {
            headers.insert(name, HeaderValue::from_static("forged"));
        }
        let mut user = User::new("jane", ["devs".to_owned()]);
        user.extra.insert("example.com/a".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        identify(&mut headers, &user);
        let all = |name: &str| headers.get_all(name).iter().map(|v| v.to_str().expect("text")).collect::<Vec<_>>();
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["devs", "system:authenticated"]);
        assert_eq!(all("x-remote-extra-example.com%2fa"), ["1", "2"]);
        assert!(all("x-remote-uid").is_empty() && all("x-remote-extra-scopes").is_empty());
    }
}
