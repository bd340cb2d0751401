//! Fetches an image from its registry into the store.
//!
//! Nothing is trusted that a registry says: sizes are bounded before anything is read, and what is read must have the
//! digest that it was asked for by.

use http::header::{ACCEPT, HeaderName, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::hosts::{self, Host};
use super::{Credentials, Registry, RegistryError, Result, client, is_local, misbehaves, refused, unreachable};
use crate::digest;
use crate::manifest::{self, DOCUMENT, Descriptor, Manifest, ManifestError, NESTED};
use crate::reference::Name;
use crate::store::{Adding, Origin, Store, StoreError, Stored, Writing};

/// The types of manifests that are understood: of one image, and of images for several platforms.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.docker.distribution.manifest.v2+json";
/// The header that names the digest of a manifest.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// How often a registry may send elsewhere for a blob.
const REDIRECTS: usize = 5;

/// An image that is in the store now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The image.
    pub stored: Stored,
    /// How many bytes were fetched; those of layers that were there before do not count.
    pub fetched: u64,
    /// Whether the name stood for another image before, which may be [collected](Store::collect) now.
    pub replaced: bool,
}

/// The digest that a name has in its registry at this moment: of an index, if it has images for several platforms.
pub async fn resolve(name: &Name, credentials: Option<Credentials>) -> Result<Option<String>> {
    let mut registry = Registry::find(&name.reference, credentials).await?;
    let wanted = name.digest.as_deref().unwrap_or(&name.reference.tag);
    let path = format!("/v2/{}/manifests/{wanted}", name.reference.repository);
    let found = registry.send_with(Method::HEAD, &path, &[(ACCEPT, MANIFESTS)], &[]).await?;
    if found.status() != StatusCode::OK {
        return refused(format!("{} does not give the manifest", name.reference.registry), found).await;
    }
    Ok(found.headers().get(CONTENT_DIGEST).and_then(|digest| digest.to_str().ok()).map(str::to_owned))
}

/// Fetches the image for an architecture. `progress` is told what is fetched, with its size.
pub async fn pull(
    store: &Store,
    name: &Name,
    architecture: &str,
    credentials: Option<Credentials>,
    progress: &(dyn Fn(&str, u64) + Sync),
) -> Result<Pulled> {
    let adding = store.adding()?;
    let sources = Source::of(name, credentials).await?;
    let mut pull = Pull { sources, name, store, adding: &adding, fetched: 0 };
    let (mut digest, mut document) = pull.manifest(name.digest.as_deref(), DOCUMENT).await?;
    for nested in 0.. {
        let Ok(index) = serde_json::from_slice::<Value>(&document) else {
            return misbehaves("its manifest is not JSON");
        };
        if !index["manifests"].is_array() {
            break;
        }
        if nested == NESTED {
            return Err(ManifestError::Invalid("its indexes nest too deeply").into());
        }
        let chosen = manifest::choose(&index, architecture)?;
        let size = chosen["size"].as_u64().ok_or(ManifestError::Invalid("a descriptor without a size"))?;
        let chosen = chosen["digest"].as_str().ok_or(ManifestError::Invalid("a descriptor without a digest"))?;
        digest::check(chosen)?;
        (digest, document) = pull.manifest(Some(chosen), size.min(DOCUMENT)).await?;
    }
    let manifest = Manifest::read(&document)?;
    for one in manifest.blobs() {
        if !store.has(&one.digest) {
            progress(&one.digest, one.size);
            pull.blob(one).await?;
        }
    }
    let fetched = pull.fetched;
    let before = store.find(name)?;
    let stored = store.name(&adding, name, &digest, Origin::Registry)?;
    let replaced = before.is_some_and(|before| before.digest != stored.digest);
    Ok(Pulled { stored, fetched, replaced })
}

struct Pull<'a> {
    sources: Vec<Source>,
    name: &'a Name,
    store: &'a Store,
    adding: &'a Adding,
    fetched: u64,
}

/// A host that has images of a registry, the registry itself or a mirror.
struct Source {
    registry: Registry,
    resolves: bool,
    pulls: bool,
    /// Whether it could not be reached: it is not asked again.
    is_lost: bool,
}

impl Source {
    /// Those of an image, in the order in which they are asked: the registry itself is the last.
    async fn of(name: &Name, credentials: Option<Credentials>) -> Result<Vec<Self>> {
        let (reference, hosts) = (&name.reference, hosts::of(&name.reference.registry)?);
        let mirror = |host: &Host| -> Result<Self> {
            let registry = Registry::mirror(host, &reference.registry)?;
            Ok(Self { registry, resolves: host.resolves, pulls: host.pulls, is_lost: false })
        };
        let mut sources = hosts.mirrors.iter().map(mirror).collect::<Result<Vec<Self>>>()?;
        let is_itself = |host: &Host| {
            let own = if reference.registry == "docker.io" { "registry-1.docker.io" } else { &reference.registry };
            host.authority() == own
        };
        sources.push(if let Some(server) = hosts.server.filter(|server| !is_itself(server)) {
            mirror(&server)?
        } else {
            let registry = Registry::find(reference, credentials).await?;
            Self { registry, resolves: true, pulls: true, is_lost: false }
        });
        Ok(sources)
    }

    /// Fetches a manifest by its digest, or that of the tag. Returns its digest.
    async fn manifest(&mut self, name: &Name, wanted: Option<&str>, writing: Writing, most: u64) -> Result<String> {
        let (reference, registry) = (&name.reference, &mut self.registry);
        let document = wanted.unwrap_or(&reference.tag);
        let path = format!("{}/{}/manifests/{document}{}", registry.root, reference.repository, registry.query);
        let found = registry.get(&path, MANIFESTS).await?;
        if found.status() != StatusCode::OK {
            return refused(format!("{} does not give the manifest", registry.name()), found).await;
        }
        receive(found, writing, most).await?.finish(wanted).map_err(something_else)
    }

    async fn blob(&mut self, name: &Name, wanted: &Descriptor, writing: Writing) -> Result<()> {
        let (reference, registry) = (&name.reference, &mut self.registry);
        let path = format!("{}/{}/blobs/{}{}", registry.root, reference.repository, wanted.digest, registry.query);
        let mut found = registry.get(&path, "*/*").await?;
        for _ in 0..REDIRECTS {
            if !found.status().is_redirection() {
                break;
            }
            let location = location(&registry.base, &found)?;
            found = registry.follow(&location).await?;
        }
        if found.status() != StatusCode::OK {
            return refused(format!("{} does not give {}", registry.name(), wanted.digest), found).await;
        }
        let written = receive(found, writing, wanted.size).await?;
        if written.size() != wanted.size {
            let (has, says) = (written.size(), wanted.size);
            return misbehaves(format!("{} has {has} bytes, and the manifest says {says}", wanted.digest));
        }
        written.finish(Some(&wanted.digest)).map_err(something_else)?;
        Ok(())
    }
}

/// The addresses that did not give what was asked for, each with the reason.
#[derive(Default)]
struct Failures {
    mirrors: Vec<String>,
    last: Option<RegistryError>,
}

impl Failures {
    fn add(&mut self, source: &mut Source, error: RegistryError) {
        source.is_lost = matches!(error, RegistryError::Unreachable { .. });
        self.mirrors.extend(self.last.replace(error).map(|error| error.to_string()));
    }

    fn error(self) -> RegistryError {
        match self.last {
            None => RegistryError::Misbehaves("no host of its hosts.toml may be asked; see `capabilities`".to_owned()),
            Some(last) if self.mirrors.is_empty() => last,
            Some(last) => RegistryError::Mirrored { registry: Box::new(last), mirrors: self.mirrors },
        }
    }
}

impl Pull<'_> {
    /// Fetches a manifest by its digest, or that of the tag. Returns its digest and what it says.
    async fn manifest(&mut self, wanted: Option<&str>, most: u64) -> Result<(String, Vec<u8>)> {
        let mut failures = Failures::default();
        for source in &mut self.sources {
            let may = if wanted.is_some() { source.pulls } else { source.resolves };
            if !may || source.is_lost {
                continue;
            }
            let writing = self.store.write(self.adding)?;
            match source.manifest(self.name, wanted, writing, most).await {
                Ok(digest) => {
                    let bytes = self.store.document(&digest)?;
                    self.fetched += bytes.len() as u64;
                    return Ok((digest, bytes));
                }
                Err(error) => failures.add(source, error),
            }
        }
        Err(failures.error())
    }

    async fn blob(&mut self, wanted: &Descriptor) -> Result<()> {
        let mut failures = Failures::default();
        for source in &mut self.sources {
            if !source.pulls || source.is_lost {
                continue;
            }
            let writing = self.store.write(self.adding)?;
            match source.blob(self.name, wanted, writing).await {
                Ok(()) => {
                    self.fetched += wanted.size;
                    return Ok(());
                }
                Err(error) => failures.add(source, error),
            }
        }
        Err(failures.error())
    }
}

fn something_else(error: StoreError) -> RegistryError {
    match error {
        StoreError::Damaged { wanted, found } => {
            RegistryError::Misbehaves(format!("the registry gave something else for {wanted}: its digest is {found}"))
        }
        other => other.into(),
    }
}

/// Writes what a registry sends, up to this size.
async fn receive(response: Response<Body>, mut writing: Writing, most: u64) -> Result<Writing> {
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| RegistryError::Misbehaves(format!("cannot read what the registry sends: {error}")))?;
        let Some(bytes) = frame.data_ref() else { continue };
        if writing.size() + bytes.len() as u64 > most {
            return misbehaves(format!("cannot read what the registry sends: more than the {most} bytes that it said"));
        }
        writing.write(bytes)?;
    }
    Ok(writing)
}

impl Registry {
    async fn get(&mut self, path: &str, accept: &str) -> Result<Response<Body>> {
        self.send_with(Method::GET, path, &[(ACCEPT, accept)], &[]).await
    }

    /// Its name for people.
    fn name(&self) -> &str {
        self.base.split_once("://").map_or(&self.base, |(_, name)| name)
    }

    /// Follows a redirection, without credentials. One that stays here needs no more encryption than what led to it.
    async fn follow(&self, location: &str) -> Result<Response<Body>> {
        match location.strip_prefix(&self.base) {
            Some(path) if path.starts_with('/') => {
                let request = Request::builder().uri(path).body(Body::empty())?;
                self.client.send(request).await.map_err(|source| unreachable(&self.base, source))
            }
            _ => elsewhere(location).await,
        }
    }
}

/// Where a redirection leads.
fn location(base: &str, found: &Response<Body>) -> Result<String> {
    let location = found.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let Some(location) = location else {
        return misbehaves("the registry sends elsewhere, and does not say where");
    };
    Ok(if location.starts_with('/') { format!("{base}{location}") } else { location.to_owned() })
}

/// Follows a redirection, without the credentials of the registry: the address has its own.
async fn elsewhere(whole: &str) -> Result<Response<Body>> {
    let no_address = || RegistryError::Misbehaves(format!("the registry sends to {whole:?}, which is no address"));
    let address: http::Uri = whole.parse().map_err(|_| no_address())?;
    let (Some(scheme), Some(authority)) = (address.scheme_str(), address.authority()) else {
        return Err(no_address());
    };
    if scheme != "https" && !(scheme == "http" && is_local(authority.as_str())) {
        return misbehaves(format!("the registry sends to {whole:?}, which is not encrypted"));
    }
    let path = address.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let request = Request::builder().uri(path).body(Body::empty())?;
    let base = format!("{scheme}://{authority}");
    client(&base)?.send(request).await.map_err(|source| unreachable(&base, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn redirections_are_not_followed_without_encryption() {
        for location in ["http://example.com/blob", "ftp://127.0.0.1/blob", "http:///"] {
            let found = Response::builder().status(307).header(LOCATION, location).body(Body::empty());
            let found = found.expect("a response");
            let whole = super::location("https://gcr.io", &found).expect("a location");
            assert!(elsewhere(&whole).await.is_err(), "{location}");
        }
    }
}
