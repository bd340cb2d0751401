//! Fetches an image from its registry, as the files of an OCI layout.
//!
//! Nothing is trusted that a registry says: sizes are bounded before anything is read, and what is read must have the
//! digest that it was asked for by.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use http::header::{ACCEPT, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::{Value, json};

use super::{Registry, answer, client, is_local};
use crate::image::Reference;
use crate::image::base::{self, LARGEST, NESTED};
use crate::image::layout::digest;
use crate::output;

/// The types of manifests that are understood: of one image, and of images for several platforms.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
/// How many bytes a manifest may have, as registries limit them.
const MANIFEST: u64 = 4 << 20;
/// How often a registry may send elsewhere for a blob.
const REDIRECTS: usize = 5;

/// An image of a registry: by its tag, or by its digest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    reference: Reference,
    digest: Option<String>,
}

impl Remote {
    /// Reads a name with its registry, such as `gcr.io/distroless/static:nonroot`. `None` for what may be a path.
    pub(crate) fn parse(text: &str) -> Option<Result<Self>> {
        let (host, _) = text.split_once('/')?;
        let is_host = host == "localhost" || (host.contains(['.', ':']) && !host.starts_with('.'));
        is_host.then(|| {
            let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
            if let Some(digest) = digest {
                base::check_digest(digest)?;
            }
            Ok(Self { reference: name.parse()?, digest: digest.map(str::to_owned) })
        })
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.digest {
            Some(digest) => write!(f, "{}/{}@{digest}", self.reference.registry, self.reference.repository),
            None => self.reference.fmt(f),
        }
    }
}

/// Fetches the image for an architecture.
pub(crate) async fn pull(remote: &Remote, architecture: &str) -> Result<HashMap<String, Vec<u8>>> {
    let mut pull = Pull { registry: Registry::find(&remote.reference).await?, remote, files: HashMap::new(), total: 0 };
    let (top, mut document) = pull.manifest(remote.digest.as_deref(), MANIFEST).await?;
    for nested in 0.. {
        if !document["manifests"].is_array() {
            break;
        }
        ensure!(nested < NESTED, "its indexes nest too deeply");
        let chosen = base::choose(&document, architecture)?;
        let (digest, size) = descriptor(chosen)?;
        document = pull.manifest(Some(&digest), size.min(MANIFEST)).await?.1;
    }
    let layers = document["layers"].as_array().context("it has no layers")?;
    for one in std::iter::once(&document["config"]).chain(layers) {
        pull.blob(one).await?;
    }
    let index = json!({"schemaVersion": 2, "manifests": [{"digest": top}]});
    pull.files.insert("index.json".to_owned(), index.to_string().into_bytes());
    Ok(pull.files)
}

fn descriptor(value: &Value) -> Result<(String, u64)> {
    let digest = value["digest"].as_str().context("a descriptor without a digest")?;
    base::check_digest(digest)?;
    let size = value["size"].as_u64().context("a descriptor without a size")?;
    Ok((digest.to_owned(), size))
}

struct Pull<'a> {
    registry: Registry,
    remote: &'a Remote,
    files: HashMap<String, Vec<u8>>,
    /// How many bytes all blobs have.
    total: u64,
}

impl Pull<'_> {
    /// Fetches a manifest by its digest, or that of the tag. Returns its digest and what it says.
    async fn manifest(&mut self, wanted: Option<&str>, most: u64) -> Result<(String, Value)> {
        let reference = &self.remote.reference;
        let path = format!("/v2/{}/manifests/{}", reference.repository, wanted.unwrap_or(&reference.tag));
        let found = self.registry.get(&path, MANIFESTS).await?;
        if found.status() != StatusCode::OK {
            bail!("{} does not give the manifest: {}", reference.registry, answer(found).await);
        }
        let bytes = read(found, most).await?;
        let document = serde_json::from_slice(&bytes).context("its manifest is not JSON")?;
        let digest = self.keep(bytes, wanted)?;
        Ok((digest, document))
    }

    async fn blob(&mut self, value: &Value) -> Result<()> {
        let (digest, size) = descriptor(value)?;
        self.total = self.total.saturating_add(size);
        ensure!(self.total <= LARGEST, "it is larger than {} GiB", LARGEST >> 30);
        if self.files.contains_key(&base::blob_path(&digest)) {
            return Ok(());
        }
        output::note(format_args!("fetching {digest} ({} KiB)", size / 1024));
        let reference = &self.remote.reference;
        let path = format!("/v2/{}/blobs/{digest}", reference.repository);
        let mut found = self.registry.get(&path, "*/*").await?;
        for _ in 0..REDIRECTS {
            if !found.status().is_redirection() {
                break;
            }
            found = elsewhere(&self.registry.base, &found).await?;
        }
        if found.status() != StatusCode::OK {
            bail!("{} does not give {digest}: {}", reference.registry, answer(found).await);
        }
        let bytes = read(found, size).await?;
        ensure!(bytes.len() as u64 == size, "{digest} has {} bytes, and the manifest says {size}", bytes.len());
        self.keep(bytes, Some(&digest)).map(|_| ())
    }

    fn keep(&mut self, bytes: Vec<u8>, wanted: Option<&str>) -> Result<String> {
        let digest = digest(&bytes);
        if let Some(wanted) = wanted {
            ensure!(digest == wanted, "the registry gave something else for {wanted}: its digest is {digest}");
        }
        self.files.insert(base::blob_path(&digest), bytes);
        Ok(digest)
    }
}

impl Registry {
    async fn get(&mut self, path: &str, accept: &str) -> Result<Response<Body>> {
        self.send_with(Method::GET, path, &[(ACCEPT, accept)], &[]).await
    }
}

/// Follows a redirection, without the credentials of the registry: the address has its own.
async fn elsewhere(base: &str, found: &Response<Body>) -> Result<Response<Body>> {
    let location = found.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let location = location.context("the registry sends elsewhere, and does not say where")?;
    let whole = if location.starts_with('/') { format!("{base}{location}") } else { location.to_owned() };
    let address: http::Uri = whole.parse().with_context(|| format!("the registry sends to {whole:?}"))?;
    let (Some(scheme), Some(authority)) = (address.scheme_str(), address.authority()) else {
        bail!("the registry sends to {whole:?}, which is no address");
    };
    ensure!(
        scheme == "https" || (scheme == "http" && is_local(authority.as_str())),
        "the registry sends to {whole:?}, which is not encrypted"
    );
    let path = address.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::builder().uri(path).body(Body::empty())?;
    let sent = client(&format!("{scheme}://{authority}"))?.send(request).await;
    sent.with_context(|| format!("cannot reach {authority}"))
}

async fn read(response: Response<Body>, most: u64) -> Result<Vec<u8>> {
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    let body = Limited::new(response.into_body(), limit).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("cannot read what the registry sends: {error}"))?;
    Ok(body.to_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_registry_are_told_from_paths() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, whole) in [
            ("gcr.io/distroless/static:nonroot", "gcr.io/distroless/static:nonroot"),
            ("localhost:5000/base", "localhost:5000/base:latest"),
            (&format!("docker.io/library/debian@{digest}"), &format!("docker.io/library/debian@{digest}")),
            (&format!("docker.io/library/debian:12@{digest}"), &format!("docker.io/library/debian@{digest}")),
        ] {
            let remote = Remote::parse(text).and_then(Result::ok).expect("a name");
            assert_eq!(remote.to_string(), whole);
        }
        for text in ["base", "./base", "../base", "/a/b.c", "out/base.tar", "debian:12"] {
            assert!(Remote::parse(text).is_none(), "{text}");
        }
        for text in ["gcr.io/Base", "gcr.io/a@sha256:0", "gcr.io/"] {
            assert!(Remote::parse(text).is_some_and(|parsed| parsed.is_err()), "{text}");
        }
    }

    #[tokio::test]
    async fn redirections_are_not_followed_without_encryption() {
        for location in ["http://example.com/blob", "ftp://127.0.0.1/blob", "http:///"] {
            let found = Response::builder().status(307).header(LOCATION, location).body(Body::empty());
            let found = found.expect("a response");
            assert!(elsewhere("https://gcr.io", &found).await.is_err(), "{location}");
        }
    }
}
