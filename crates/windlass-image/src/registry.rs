//! Pushes images to a registry and pulls them, as the OCI's distribution specification says.
//!
//! Credentials are those of docker: `~/.docker/config.json`, or `$DOCKER_CONFIG`, with its credential helpers. A
//! registry on this machine may do without TLS. Trusted are the authorities of the system, or of `$SSL_CERT_FILE`. Images are
//! pulled from the mirrors of their registry first, if containerd's files say so: see `hosts.rs`.

mod credentials;
mod hosts;
mod pull;

use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;

use crate::digest::DigestError;
use crate::manifest::ManifestError;
use crate::reference::Reference;
use crate::store::StoreError;
pub use credentials::{Credentials, CredentialsError};
use hosts::Host;
pub use pull::{Pulled, pull, resolve};

/// How much of an answer is read.
const ANSWER: usize = 1 << 20;
/// How long a registry may take to answer.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Why a registry did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// It cannot be reached.
    #[error("cannot reach {base}: {}{}", causes(source), remedy(&causes(source)))]
    Unreachable {
        /// Where it should be.
        base: String,
        /// What went wrong.
        source: Box<kube::Error>,
    },
    /// It answered that it will not.
    #[error("{what}: {answer}")]
    Refused {
        /// What it did not do.
        what: String,
        /// What it said.
        answer: String,
        /// As a status of HTTP.
        status: StatusCode,
    },
    /// It refuses the credentials, or asks for some.
    #[error("{0}")]
    Unauthorized(String),
    /// A file about the mirrors of registries has a mistake.
    #[error("{}, line {line}: {why}", file.display())]
    Misconfigured {
        /// Which file.
        file: std::path::PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Neither the registry nor any of its mirrors does what it was asked for.
    #[error("{registry}; before that, {}", mirrors.join("; "))]
    Mirrored {
        /// What the registry said.
        registry: Box<RegistryError>,
        /// What each mirror said.
        mirrors: Vec<String>,
    },
    /// Credentials cannot be read.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It said something that makes no sense, or that is not followed.
    #[error("{0}")]
    Misbehaves(String),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A digest is not one.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// Content is not what it was asked for by, or cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A request cannot be made.
    #[error("a request cannot be made: {0}")]
    Request(#[from] http::Error),
}

impl RegistryError {
    /// Whether the registry refuses the credentials, or asks for some.
    pub fn is_unauthorized(&self) -> bool {
        match self {
            Self::Unauthorized(_) => true,
            Self::Mirrored { registry, .. } => registry.is_unauthorized(),
            _ => false,
        }
    }
}

/// An error with what caused it, for people.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

type Result<T> = std::result::Result<T, RegistryError>;

fn misbehaves<T>(what: impl Into<String>) -> Result<T> {
    Err(RegistryError::Misbehaves(what.into()))
}

/// A blob to push.
#[derive(Debug, Clone, Copy)]
pub struct Blob<'a> {
    /// Its digest.
    pub digest: &'a str,
    /// Its content.
    pub bytes: &'a [u8],
}

/// Pushes an image: what its manifest names, then the manifest. `progress` is told what is sent, with its size.
pub async fn push(
    reference: &Reference,
    blobs: &[Blob<'_>],
    manifest: Blob<'_>,
    media_type: &str,
    progress: &(dyn Fn(&str, u64) + Sync),
) -> Result<()> {
    let mut registry = Registry::find(reference, None).await?;
    for blob in blobs {
        let path = format!("/v2/{}/blobs/{}", reference.repository, blob.digest);
        if registry.send(Method::HEAD, &path, None, &[]).await?.status() == StatusCode::OK {
            continue;
        }
        progress(blob.digest, blob.bytes.len() as u64);
        let uploads = format!("/v2/{}/blobs/uploads/", reference.repository);
        let started = registry.send(Method::POST, &uploads, None, &[]).await?;
        let location = started.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|_| started.status() == StatusCode::ACCEPTED).map(str::to_owned) else {
            return refused(format!("{} does not take uploads", reference.registry), started).await;
        };
        let location = registry.path_of(&location)?;
        let separator = if location.contains('?') { '&' } else { '?' };
        let path = format!("{location}{separator}digest={}", blob.digest);
        let stored = registry.send(Method::PUT, &path, Some("application/octet-stream"), blob.bytes).await?;
        if stored.status() != StatusCode::CREATED {
            return refused(format!("{} did not take {}", reference.registry, blob.digest), stored).await;
        }
    }
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.tag);
    let stored = registry.send(Method::PUT, &path, Some(media_type), manifest.bytes).await?;
    if stored.status() != StatusCode::CREATED {
        return refused(format!("{} did not take the manifest", reference.registry), stored).await;
    }
    Ok(())
}

/// A registry, and what it has been shown.
struct Registry {
    base: String,
    /// The path below which its interface is.
    root: String,
    /// What the query of each request is, for a mirror: which registry it stands for.
    query: String,
    client: kube::Client,
    credentials: Option<Credentials>,
    authorization: Option<String>,
}

impl Registry {
    async fn find(reference: &Reference, credentials: Option<Credentials>) -> Result<Self> {
        // Docker's own registry has one name for people and one for programs.
        let host = if reference.registry == "docker.io" { "registry-1.docker.io" } else { &reference.registry };
        let is_plain = is_local(host) && is_plain(host).await?;
        let base = format!("{}://{host}", if is_plain { "http" } else { "https" });
        let credentials = match credentials {
            Some(credentials) => Some(credentials),
            None => Credentials::of(&reference.registry)?,
        };
        Ok(Self {
            client: client(&base)?,
            base,
            root: "/v2".to_owned(),
            query: String::new(),
            credentials,
            authorization: None,
        })
    }

    /// A mirror. It gets the credentials that docker has for the mirror itself, and never those of the registry.
    fn mirror(host: &Host, registry: &str) -> Result<Self> {
        let mut config = config(&host.base)?;
        config.root_cert_file.clone_from(&host.authorities);
        config.accept_invalid_certs = host.skips_verification;
        config.headers.clone_from(&host.headers);
        let client = kube::Client::try_from(config).map_err(|source| unreachable(&host.base, source))?;
        Ok(Self {
            base: host.base.clone(),
            root: host.path.clone(),
            query: format!("?ns={registry}"),
            client,
            credentials: Credentials::of(host.authority())?,
            authorization: None,
        })
    }

    /// The path of an address, which may be whole and must be of this registry: credentials go with the request.
    fn path_of(&self, location: &str) -> Result<String> {
        if location.starts_with('/') {
            return Ok(location.to_owned());
        }
        match location.strip_prefix(&self.base) {
            Some(path) if path.starts_with('/') => Ok(path.to_owned()),
            _ => misbehaves(format!("the registry sends uploads elsewhere: {location}")),
        }
    }

    /// Sends a request, again with credentials if the registry asks for them.
    async fn send(&mut self, method: Method, path: &str, kind: Option<&str>, body: &[u8]) -> Result<Response<Body>> {
        let headers: Vec<(HeaderName, &str)> = kind.into_iter().map(|kind| (CONTENT_TYPE, kind)).collect();
        self.send_with(method, path, &headers, body).await
    }

    async fn send_with(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: &[u8],
    ) -> Result<Response<Body>> {
        let first = self.once(method.clone(), path, headers, body).await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        let asked = first.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.authorization = Some(authorize(asked, self.credentials.as_ref()).await?);
        let second = self.once(method, path, headers, body).await?;
        if second.status() == StatusCode::UNAUTHORIZED {
            let message = format!("{} refuses the credentials; log in with `docker login`", self.base);
            return Err(RegistryError::Unauthorized(message));
        }
        Ok(second)
    }

    async fn once(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: &[u8],
    ) -> Result<Response<Body>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Body::from(body.to_vec()))?;
        self.client.send(request).await.map_err(|source| unreachable(&self.base, source))
    }
}

/// The client of the Kubernetes library is one for any server, which is all that is needed here.
fn client(base: &str) -> Result<kube::Client> {
    kube::Client::try_from(config(base)?).map_err(|source| unreachable(base, source))
}

fn config(base: &str) -> Result<kube::Config> {
    let address = base.parse().map_err(|_| RegistryError::Misbehaves(format!("{base} is no address")))?;
    let mut config = kube::Config::new(address);
    config.read_timeout = Some(TIMEOUT);
    config.write_timeout = Some(TIMEOUT);
    config.default_retry = false;
    Ok(config)
}

fn unreachable(base: &str, source: kube::Error) -> RegistryError {
    RegistryError::Unreachable { base: base.to_owned(), source: Box::new(source) }
}

async fn refused<T>(what: String, response: Response<Body>) -> Result<T> {
    let status = response.status();
    Err(RegistryError::Refused { what, answer: answer(response).await, status })
}

/// Whether a registry on this machine does without TLS. It is asked for nothing, and shown no credentials.
async fn is_plain(host: &str) -> Result<bool> {
    let ask = async |scheme: &str| {
        let request = Request::builder().uri("/v2/").body(Body::empty())?;
        let sent = client(&format!("{scheme}://{host}"))?.send(request).await;
        Result::Ok(sent.map(|response| response.status()).map_err(|error| causes(&error)))
    };
    // This is what servers with TLS say to a request without it, if they say anything.
    if ask("http").await?.is_ok_and(|status| status != StatusCode::BAD_REQUEST) {
        return Ok(true);
    }
    Ok(ask("https").await?.is_err_and(|error| !error.contains(BAD_CERTIFICATE)))
}

/// How the reason begins why a server's certificate is refused.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// What can be done about a registry that cannot be reached.
fn remedy(reason: &str) -> &'static str {
    if reason.contains("CaUsedAsEndEntity") {
        "\nIts certificate is one of an authority: make it with `-addext basicConstraints=critical,CA:FALSE`"
    } else if reason.contains(BAD_CERTIFICATE) {
        "\nIts certificate is not trusted: add its authority to those of this system, or to a file that SSL_CERT_FILE names"
    } else if reason.contains("InvalidContentType") {
        "\nIt does not use TLS, which only registries on this machine may do"
    } else {
        ""
    }
}

/// Whether a host, perhaps with a port, is this machine: what is sent there is seen by no other machine.
fn is_local(host: &str) -> bool {
    let bare = host.parse::<std::net::IpAddr>().is_ok();
    let name = if bare { host } else { host.rsplit_once(':').map_or(host, |(name, _)| name) };
    let name = name.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What to send along, as the registry asks for it: a password, or a token for one.
async fn authorize(asked: &str, credentials: Option<&Credentials>) -> Result<String> {
    let Some(challenge) = asked.strip_prefix("Bearer ") else {
        let asks =
            || RegistryError::Unauthorized("the registry asks for a password; log in with `docker login`".into());
        return Ok(credentials.ok_or_else(asks)?.basic());
    };
    let parameters = parameters(challenge);
    let value = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let Some(realm) = value("realm").and_then(|realm| realm.parse::<http::Uri>().ok()) else {
        return misbehaves("the registry does not say where tokens are");
    };
    let (Some(scheme), Some(host)) = (realm.scheme_str(), realm.authority()) else {
        return misbehaves(format!("the registry says that tokens are at {realm}, which is no address"));
    };
    if scheme != "https" && !is_local(host.as_str()) {
        return misbehaves(format!(
            "the registry says that tokens are at {realm}, and credentials are not sent there without encryption"
        ));
    }
    let encode = |text: &str| text.replace('%', "%25").replace(' ', "%20").replace('&', "%26").replace('+', "%2B");
    let query: Vec<String> =
        ["service", "scope"].iter().filter_map(|name| Some(format!("{name}={}", encode(value(name)?)))).collect();
    let mut request = Request::builder().uri(format!("{}?{}", realm.path(), query.join("&")));
    if let Some(credentials) = credentials {
        request = request.header(AUTHORIZATION, credentials.basic());
    }
    let base = format!("{scheme}://{host}");
    let sent = client(&base)?.send(request.body(Body::empty())?).await;
    let sent = sent.map_err(|source| unreachable(&base, source))?;
    if sent.status() != StatusCode::OK {
        let said = answer(sent).await;
        let message = format!("no token at {realm}: {said}; log in with `docker login`");
        return Err(RegistryError::Unauthorized(message));
    }
    let body = Limited::new(sent.into_body(), ANSWER).collect().await;
    let body: Option<Value> = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
    let token = |name: &str| body.as_ref().and_then(|body| body[name].as_str());
    match token("token").or_else(|| token("access_token")) {
        Some(token) => Ok(format!("Bearer {token}")),
        None => misbehaves("the registry gave no token"),
    }
}

/// `name="value"` between commas, which may be inside of values.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some((value, after)) = after.split_once('"') else { break };
        found.push((name.trim_matches([' ', ',']).to_owned(), value.to_owned()));
        rest = after;
    }
    found
}

/// What a registry said, for people.
async fn answer(response: Response<Body>) -> String {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER).collect().await;
    let text = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_owned()).unwrap_or_default();
    let errors = serde_json::from_str::<Value>(&text).ok();
    let messages = errors.as_ref().and_then(|value| value["errors"].as_array()).into_iter().flatten();
    let messages: Vec<&str> = messages.filter_map(|error| error["message"].as_str()).collect();
    if messages.is_empty() { status.to_string() } else { format!("{status}: {}", messages.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn challenges_are_read() {
        let text = r#"realm="https://auth.example.com/token",service="registry",scope="repository:a/b:pull,push""#;
        let expected = [
            ("realm", "https://auth.example.com/token"),
            ("service", "registry"),
            ("scope", "repository:a/b:pull,push"),
        ];
        assert_eq!(parameters(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[tokio::test]
    async fn uploads_stay_with_the_registry() {
        let registry = Registry {
            base: "http://127.0.0.1:5000".into(),
            root: "/v2".into(),
            query: String::new(),
            client: client("http://127.0.0.1:5000").unwrap(),
            credentials: None,
            authorization: None,
        };
        assert_eq!(registry.path_of("/v2/a").unwrap(), "/v2/a");
        assert_eq!(registry.path_of("http://127.0.0.1:5000/v2/a?b").unwrap(), "/v2/a?b");
        registry.path_of("http://127.0.0.1:50001/v2/a").unwrap_err();
        registry.path_of("https://elsewhere.example.com/v2").unwrap_err();
    }
}
