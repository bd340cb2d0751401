//! The image that another one is built on, read from an OCI layout: a directory, a tar file of one, or what a registry
//! has.
//!
//! Layers are taken as they are. They are looked into only to learn which files they bring along, so that a program's
//! libraries are not added twice.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use windlass_image::digest::{self, blob_path};
use windlass_image::manifest::choose;
use windlass_image::tar::{EntryKind, Reader};
use windlass_image::{Name, Store, registry};

use super::layout::{self, Blob};
use crate::{against, output};

/// How many bytes a base may have.
const LARGEST: u64 = 4 << 30;
/// How many links are followed, as Linux does.
const MOST_LINKS: usize = 40;
/// How deeply an index may lead to other indexes.
const NESTED: usize = 4;

/// What an image is built on.
pub(super) struct Base {
    /// The configuration of the image, with its `rootfs` and `history`.
    pub config: Value,
    pub layers: Vec<Blob>,
    /// What is at a path, without a slash at its beginning: the target of a link, or nothing of interest.
    files: HashMap<String, Option<String>>,
}

/// Reads the image for an architecture.
pub(super) fn read(path: &Path, architecture: &str) -> Result<Base> {
    let name = path.display();
    let source = if path.exists() {
        Source::open(path)?
    } else if let Some(remote) = path.to_str().and_then(remote) {
        let remote =
            remote.with_context(|| format!("there is no file {name}, and it is not an image of a registry"))?;
        fetch(&remote, architecture)?
    } else {
        bail!(
            "there is no {name}: a base is an OCI layout on this machine, as a directory or as a tar file, or an image \
             with its registry, such as gcr.io/distroless/cc-debian12:nonroot or docker.io/library/debian:12"
        );
    };
    let base = source.image(architecture).with_context(|| format!("{name} cannot be a base"))?;
    Ok(base)
}

/// Reads a name with its registry, such as `gcr.io/distroless/static:nonroot`. `None` for what may be a path.
fn remote(text: &str) -> Option<Result<Name>> {
    let (host, _) = text.split_once('/')?;
    let is_host = host == "localhost" || (host.contains(['.', ':']) && !host.starts_with('.'));
    is_host.then(|| Ok(text.parse()?))
}

/// Fetches what is not in the store of this machine.
fn fetch(name: &Name, architecture: &str) -> Result<Source<'static>> {
    let store = Store::of_user()?;
    let mut digest = String::new();
    let code = against::block_on(async {
        let progress = |digest: &str, size: u64| output::note(format_args!("fetching {digest} ({} KiB)", size / 1024));
        let pulled = registry::pull(&store, name, architecture, None, &progress).await;
        digest = pulled.with_context(|| format!("cannot fetch {name}"))?.stored.digest;
        Ok(ExitCode::SUCCESS)
    })?;
    ensure!(code == ExitCode::SUCCESS, "{name} was not fetched");
    Ok(Source::Stored(store, digest))
}

impl Base {
    /// Whether there is a file, also behind links.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(&self.resolve(path))
    }

    /// The path with all links followed.
    pub(super) fn resolve(&self, path: &str) -> String {
        let mut open: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut found: Vec<String> = Vec::new();
        let mut followed = 0;
        while let Some(part) = open.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    found.pop();
                    continue;
                }
                _ => found.push(part),
            }
            let Some(Some(link)) = self.files.get(&found.join("/")) else { continue };
            followed += 1;
            // Links that lead to each other lead nowhere.
            if followed > MOST_LINKS {
                found.extend(open.into_iter().rev());
                break;
            }
            found.pop();
            if link.starts_with('/') {
                found.clear();
            }
            open.extend(link.split('/').rev().map(str::to_owned));
        }
        found.join("/")
    }
}

/// The files of a layout.
enum Source<'a> {
    Directory(&'a Path),
    /// Those of a tar file.
    Files(HashMap<String, Vec<u8>>),
    /// An image of the store, by the digest of its manifest.
    Stored(Store, String),
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        if path.is_dir() {
            return Ok(Self::Directory(path));
        }
        let size = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
        ensure!(size <= LARGEST, "{} is larger than {} GiB", path.display(), LARGEST >> 30);
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut reader = Reader::new(BufReader::new(file));
        let mut files = HashMap::new();
        let no_tar = || format!("{} is not a tar file", path.display());
        while let Some(entry) = reader.next_entry().with_context(no_tar)? {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).with_context(no_tar)?;
            files.insert(entry.path.trim_start_matches("./").to_owned(), bytes);
        }
        Ok(Self::Files(files))
    }

    fn file(&self, path: &str) -> Result<Vec<u8>> {
        match self {
            Self::Directory(root) => {
                let file = root.join(path);
                let size = std::fs::metadata(&file).with_context(|| format!("it has no {path}"))?.len();
                ensure!(size <= LARGEST, "{path} is larger than {} GiB", LARGEST >> 30);
                std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
            }
            Self::Files(files) => files.get(path).cloned().with_context(|| format!("it has no {path}")),
            Self::Stored(_, digest) if path == "index.json" => {
                Ok(json!({"schemaVersion": 2, "manifests": [{"digest": digest}]}).to_string().into_bytes())
            }
            Self::Stored(store, _) => {
                let digest = path.trim_start_matches("blobs/").replace('/', ":");
                std::fs::read(store.blob_path(&digest)).with_context(|| format!("it has no {path}"))
            }
        }
    }

    /// What a descriptor names, if that is what it says.
    fn blob(&self, descriptor: &Value) -> Result<Blob> {
        let digest = descriptor["digest"].as_str().context("a descriptor without a digest")?;
        digest::check(digest)?;
        let path = blob_path(digest);
        let blob = Blob::new(self.file(&path)?);
        ensure!(blob.digest == digest, "{path} is damaged: its digest is {}", blob.digest);
        Ok(blob)
    }

    fn document(&self, descriptor: &Value) -> Result<Value> {
        serde_json::from_slice(&self.blob(descriptor)?.bytes).context("a blob that is not JSON")
    }

    fn image(&self, architecture: &str) -> Result<Base> {
        let index = self.file("index.json").context("it is not an OCI layout, which has an index.json")?;
        let index: Value = serde_json::from_slice(&index).context("index.json is not JSON")?;
        let manifest = self.manifest(&index, architecture, NESTED)?;
        let config = self.document(&manifest["config"])?;
        let found = (config["os"].as_str(), config["architecture"].as_str());
        ensure!(
            found == (Some("linux"), Some(architecture)),
            "it is for {}/{}, and the program for linux/{architecture}",
            found.0.unwrap_or("an unknown system"),
            found.1.unwrap_or("an unknown architecture"),
        );
        let mut base = Base { config, layers: Vec::new(), files: HashMap::new() };
        for descriptor in manifest["layers"].as_array().context("it has no layers")? {
            let kind = descriptor["mediaType"].as_str().unwrap_or_default();
            let mut blob = self.blob(descriptor)?;
            let tar = if kind.ends_with("gzip") {
                blob.media_type = layout::LAYER;
                let mut bytes = Vec::new();
                let mut reader = flate2::read::MultiGzDecoder::new(&blob.bytes[..]).take(LARGEST);
                reader.read_to_end(&mut bytes).context("a layer is not compressed with gzip, as it says")?;
                bytes
            } else if kind.ends_with("tar") {
                blob.media_type = layout::PLAIN_LAYER;
                blob.bytes.clone()
            } else {
                bail!("a layer has the type {kind:?}; layers are tar files, as they are or compressed with gzip");
            };
            base.look_into(&tar)?;
            base.layers.push(blob);
        }
        let layers = base.config["rootfs"]["diff_ids"].as_array().map_or(0, Vec::len);
        ensure!(
            layers == base.layers.len(),
            "its configuration names {layers} layers, and it has {}",
            base.layers.len()
        );
        Ok(base)
    }

    /// The manifest for an architecture, which an index may have among others.
    fn manifest(&self, index: &Value, architecture: &str, nested: usize) -> Result<Value> {
        let document = self.document(choose(index, architecture)?)?;
        if document["manifests"].is_array() {
            ensure!(nested > 0, "its indexes nest too deeply");
            return self.manifest(&document, architecture, nested - 1);
        }
        Ok(document)
    }
}

impl Base {
    fn look_into(&mut self, layer: &[u8]) -> Result<()> {
        let mut reader = Reader::new(layer);
        while let Some(entry) = reader.next_entry().context("a layer is not a tar file")? {
            let path = entry.path.trim_start_matches("./").trim_matches('/').to_owned();
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
            if let Some(gone) = name.strip_prefix(".wh.") {
                // A layer takes files of those below it away by names like this.
                let gone = if directory.is_empty() { gone.to_owned() } else { format!("{directory}/{gone}") };
                self.files.remove(&gone);
                continue;
            }
            self.files.insert(path, (entry.kind == EntryKind::Symlink).then_some(entry.link));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_base_are_followed() {
        let mut files = HashMap::new();
        for (path, link) in [
            ("lib64", Some("usr/lib64")),
            ("usr/lib64/ld.so", Some("../lib/ld-1.so")),
            ("usr/lib/ld-1.so", None),
            ("loop", Some("loop")),
        ] {
            files.insert(path.to_owned(), link.map(str::to_owned));
        }
        let base = Base { config: Value::Null, layers: Vec::new(), files };
        assert_eq!(base.resolve("/lib64/ld.so"), "usr/lib/ld-1.so");
        assert!(base.has("/lib64/ld.so") && !base.has("/lib64/other.so"));
        assert_eq!(base.resolve("lib64/new.so"), "usr/lib64/new.so");
        assert!(!base.has("loop/x"));
    }

    #[test]
    fn names_with_a_registry_are_told_from_paths() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, whole) in [
            ("gcr.io/distroless/static:nonroot", "gcr.io/distroless/static:nonroot"),
            ("localhost:5000/base", "localhost:5000/base:latest"),
            (&format!("docker.io/library/debian@{digest}"), &format!("docker.io/library/debian@{digest}")),
            (&format!("docker.io/library/debian:12@{digest}"), &format!("docker.io/library/debian@{digest}")),
        ] {
            let name = remote(text).and_then(Result::ok).expect("a name");
            assert_eq!(name.to_string(), whole);
        }
        for text in ["base", "./base", "../base", "/a/b.c", "out/base.tar", "debian:12"] {
            assert!(remote(text).is_none(), "{text}");
        }
        for text in ["gcr.io/Base", "gcr.io/a@sha256:0", "gcr.io/"] {
            assert!(remote(text).is_some_and(|parsed| parsed.is_err()), "{text}");
        }
    }
}
