//! Pushes images to a registry and pulls them, as the OCI's distribution specification says.
//!
//! Credentials are those of docker: `~/.docker/config.json`, or `$DOCKER_CONFIG`, with its credential helpers. A
//! registry on this machine may do without TLS. Trusted are the authorities of the system, or of `$SSL_CERT_FILE`.

mod credentials;
mod pull;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, LOCATION, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;

use super::{Built, Reference};
use crate::output;
use credentials::Credentials;
pub(super) use pull::{Remote, pull};

/// How much of an answer is read.
const ANSWER: usize = 1 << 20;
/// How long a registry may take to answer.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(super) async fn push(image: &Built, reference: &Reference) -> Result<()> {
    let mut registry = Registry::find(reference).await?;
    for blob in image.blobs() {
        let path = format!("/v2/{}/blobs/{}", reference.repository, blob.digest);
        if registry.send(Method::HEAD, &path, None, &[]).await?.status() == StatusCode::OK {
            continue;
        }
        output::note(format_args!("pushing {} ({} KiB)", blob.digest, blob.bytes.len() / 1024));
        let uploads = format!("/v2/{}/blobs/uploads/", reference.repository);
        let started = registry.send(Method::POST, &uploads, None, &[]).await?;
        let location = started.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|_| started.status() == StatusCode::ACCEPTED).map(str::to_owned) else {
            bail!("{} does not take uploads: {}", reference.registry, answer(started).await);
        };
        let location = registry.path_of(&location)?;
        let separator = if location.contains('?') { '&' } else { '?' };
        let path = format!("{location}{separator}digest={}", blob.digest);
        let stored = registry.send(Method::PUT, &path, Some("application/octet-stream"), &blob.bytes).await?;
        if stored.status() != StatusCode::CREATED {
            bail!("{} did not take {}: {}", reference.registry, blob.digest, answer(stored).await);
        }
    }
    let (manifest, media_type) = image.manifest();
    let path = format!("/v2/{}/manifests/{}", reference.repository, reference.tag);
    let stored = registry.send(Method::PUT, &path, Some(media_type), &manifest.bytes).await?;
    if stored.status() != StatusCode::CREATED {
        bail!("{} did not take the manifest: {}", reference.registry, answer(stored).await);
    }
    Ok(())
}

/// A registry, and what it has been shown.
struct Registry {
    base: String,
    client: kube::Client,
    credentials: Option<Credentials>,
    authorization: Option<String>,
}

impl Registry {
    async fn find(reference: &Reference) -> Result<Self> {
        // Docker's own registry has one name for people and one for programs.
        let host = if reference.registry == "docker.io" { "registry-1.docker.io" } else { &reference.registry };
        let is_plain = is_local(host) && is_plain(host).await?;
        let base = format!("{}://{host}", if is_plain { "http" } else { "https" });
        let credentials = Credentials::of(&reference.registry)?;
        Ok(Self { client: client(&base)?, base, credentials, authorization: None })
    }

    /// The path of an address, which may be whole and must be of this registry: credentials go with the request.
    fn path_of(&self, location: &str) -> Result<String> {
        if location.starts_with('/') {
            return Ok(location.to_owned());
        }
        match location.strip_prefix(&self.base) {
            Some(path) if path.starts_with('/') => Ok(path.to_owned()),
            _ => bail!("the registry sends uploads elsewhere: {location}"),
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
            bail!("{} refuses the credentials; log in with `docker login`", self.base);
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
        self.client.send(request).await.map_err(|error| unreachable(&self.base, error))
    }
}

/// The client of the Kubernetes library is one for any server, which is all that is needed here.
fn client(base: &str) -> Result<kube::Client> {
    let mut config = kube::Config::new(base.parse()?);
    config.read_timeout = Some(TIMEOUT);
    config.write_timeout = Some(TIMEOUT);
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// Whether a registry on this machine does without TLS. It is asked for nothing, and shown no credentials.
async fn is_plain(host: &str) -> Result<bool> {
    let ask = async |scheme: &str| {
        let request = Request::builder().uri("/v2/").body(Body::empty())?;
        let sent = client(&format!("{scheme}://{host}"))?.send(request).await;
        anyhow::Ok(sent.map(|response| response.status()).map_err(|error| output::with_causes(&error.into())))
    };
    // This is what servers with TLS say to a request without it, if they say anything.
    if ask("http").await?.is_ok_and(|status| status != StatusCode::BAD_REQUEST) {
        return Ok(true);
    }
    Ok(ask("https").await?.is_err_and(|error| !error.contains(BAD_CERTIFICATE)))
}

/// How the reason begins why a server's certificate is refused.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// Why a registry cannot be reached, and what can be done about it.
fn unreachable(base: &str, error: kube::Error) -> anyhow::Error {
    let reason = output::with_causes(&error.into());
    let remedy = if reason.contains("CaUsedAsEndEntity") {
        "\nIts certificate is one of an authority: make it with `-addext basicConstraints=critical,CA:FALSE`"
    } else if reason.contains(BAD_CERTIFICATE) {
        "\nIts certificate is not trusted: add its authority to those of this system, or to a file that SSL_CERT_FILE names"
    } else if reason.contains("InvalidContentType") {
        "\nIt does not use TLS, which only registries on this machine may do"
    } else {
        ""
    };
    anyhow::anyhow!("cannot reach {base}: {reason}{remedy}")
}

/// Whether a host, perhaps with a port, is this machine: what is sent there is seen by nobody else.
fn is_local(host: &str) -> bool {
    let bare = host.parse::<std::net::IpAddr>().is_ok();
    let name = if bare { host } else { host.rsplit_once(':').map_or(host, |(name, _)| name) };
    let name = name.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What to send along, as the registry asks for it: a password, or a token for one.
async fn authorize(asked: &str, credentials: Option<&Credentials>) -> Result<String> {
    let Some(challenge) = asked.strip_prefix("Bearer ") else {
        let credentials = credentials.context("the registry asks for a password; log in with `docker login`")?;
        return Ok(credentials.basic());
    };
    let parameters = parameters(challenge);
    let value = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let realm: http::Uri = value("realm").context("the registry does not say where tokens are")?.parse()?;
    let (Some(scheme), Some(host)) = (realm.scheme_str(), realm.authority()) else {
        bail!("the registry says that tokens are at {realm}, which is no address");
    };
    if scheme != "https" && !is_local(host.as_str()) {
        bail!("the registry says that tokens are at {realm}, and credentials are not sent there without encryption");
    }
    let encode = |text: &str| text.replace('%', "%25").replace(' ', "%20").replace('&', "%26").replace('+', "%2B");
    let query: Vec<String> =
        ["service", "scope"].iter().filter_map(|name| Some(format!("{name}={}", encode(value(name)?)))).collect();
    let mut request = Request::builder().uri(format!("{}?{}", realm.path(), query.join("&")));
    if let Some(credentials) = credentials {
        request = request.header(AUTHORIZATION, credentials.basic());
    }
    let sent = client(&format!("{scheme}://{host}"))?.send(request.body(Body::empty())?).await;
    let sent = sent.with_context(|| format!("cannot get a token at {realm}"))?;
    if sent.status() != StatusCode::OK {
        bail!("no token at {realm}: {}; log in with `docker login`", answer(sent).await);
    }
    let body = Limited::new(sent.into_body(), ANSWER).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("cannot read the token: {error}"))?.to_bytes();
    let body: Value = serde_json::from_slice(&body).context("the token is not JSON")?;
    let token = body["token"].as_str().or_else(|| body["access_token"].as_str());
    Ok(format!("Bearer {}", token.context("the registry gave no token")?))
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
