//! Images in tar files: OCI layouts, and what `docker save` writes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::digest;
use crate::manifest::{self, DOCUMENT, LARGEST, ManifestError, NESTED};
use crate::reference::{Name, NameError};
use crate::store::{Adding, Origin, Store, StoreError, Stored};
use crate::tar::{Entry, EntryKind, Reader};

/// How many files an archive may have.
const MOST_FILES: usize = 100_000;

/// Why an archive cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// It cannot be read.
    #[error("the archive cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It is something else.
    #[error("it is neither an OCI layout (index.json) nor an archive of docker (manifest.json)")]
    Unknown,
    /// A file is missing.
    #[error("the archive has no {0}")]
    Missing(String),
    /// It is larger than an image may be.
    #[error("the archive is larger than 4 GiB")]
    TooLarge,
    /// None of its images has a name, and none was given.
    #[error("the image has no name; give it one with --tag")]
    Unnamed,
    /// It has several images where one was expected.
    #[error("the archive has {0} images, and one name is for one of them")]
    Several(usize),
    /// A name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A document is not what it should be.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What an archive has by its paths: the digests of large files, which are in the store, and the bytes of small ones.
#[derive(Default)]
struct Files {
    documents: HashMap<String, Vec<u8>>,
    blobs: HashMap<String, (String, u64)>,
    links: HashMap<String, String>,
}

/// One image of what `docker save` writes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Loads the images of an archive into the store, under the names that they have there, or under this one.
pub fn load(store: &Store, path: &Path, name: Option<&Name>) -> Result<Vec<Stored>, ArchiveError> {
    let mut file = File::open(path)?;
    let mut magic = [0; 2];
    let read = file.read(&mut magic)?;
    file.rewind()?;
    let adding = store.adding()?;
    let files = if magic[..read] == [0x1f, 0x8b] {
        Files::read(store, &adding, flate2::read::MultiGzDecoder::new(file))?
    } else {
        Files::read(store, &adding, io::BufReader::new(file))?
    };
    let found = match (files.documents.get("index.json"), files.documents.get("manifest.json")) {
        (Some(index), _) => files.layout(index)?,
        (None, Some(docker)) => files.docker(store, &adding, docker)?,
        (None, None) => return Err(ArchiveError::Unknown),
    };
    if found.len() != 1 && name.is_some() {
        return Err(ArchiveError::Several(found.len()));
    }
    let mut loaded = Vec::new();
    for (digest, names) in found {
        let names = name.map_or(names, |name| vec![name.clone()]);
        for name in &names {
            loaded.push(store.name(&adding, name, &digest, Origin::Local)?);
        }
    }
    if loaded.is_empty() { Err(ArchiveError::Unnamed) } else { Ok(loaded) }
}

impl Files {
    fn read(store: &Store, adding: &Adding, archive: impl Read) -> Result<Self, ArchiveError> {
        let mut reader = Reader::new(archive);
        let (mut files, mut total) = (Self::default(), 0_u64);
        while let Some(entry) = reader.next_entry()? {
            let path = entry.path.trim_start_matches("./").to_owned();
            total = total.saturating_add(entry.size);
            if total > LARGEST || files.documents.len() + files.blobs.len() + files.links.len() >= MOST_FILES {
                return Err(ArchiveError::TooLarge);
            }
            match entry.kind {
                EntryKind::File => files.file(store, adding, path, &entry, &mut reader)?,
                // Docker's archives have equal layers once.
                EntryKind::Symlink => _ = files.links.insert(path.clone(), joined(&path, &entry.link)),
                EntryKind::HardLink => _ = files.links.insert(path, entry.link.trim_start_matches("./").to_owned()),
                _ => {}
            }
        }
        Ok(files)
    }

    fn file(
        &mut self,
        store: &Store,
        adding: &Adding,
        path: String,
        entry: &Entry,
        content: &mut impl Read,
    ) -> Result<(), ArchiveError> {
        let mut writing = store.write(adding)?;
        let mut buffer = vec![0; 1 << 16];
        let mut document = (entry.size <= DOCUMENT && looks_like_a_document(&path)).then(Vec::new);
        loop {
            let read = content.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            writing.write(&buffer[..read])?;
            if let Some(document) = &mut document {
                document.extend_from_slice(&buffer[..read]);
            }
        }
        let size = writing.size();
        let digest = writing.finish(None)?;
        if let Some(document) = document {
            self.documents.insert(path.clone(), document);
        }
        self.blobs.insert(path, (digest, size));
        Ok(())
    }

    /// A file by its path, also behind a link.
    fn blob(&self, path: &str) -> Result<&(String, u64), ArchiveError> {
        let path = self.links.get(path).map_or(path, String::as_str);
        self.blobs.get(path).ok_or_else(|| ArchiveError::Missing(path.to_owned()))
    }

    fn document(&self, path: &str) -> Result<Value, ArchiveError> {
        let bytes = self.documents.get(path).ok_or_else(|| ArchiveError::Missing(path.to_owned()))?;
        Ok(serde_json::from_slice(bytes).map_err(ManifestError::from)?)
    }

    /// The images of an OCI layout, with their names.
    fn layout(&self, index: &[u8]) -> Result<Vec<(String, Vec<Name>)>, ArchiveError> {
        let index: Value = serde_json::from_slice(index).map_err(ManifestError::from)?;
        let all = index["manifests"].as_array().ok_or(ManifestError::Invalid("its index names no images"))?;
        let mut found: Vec<(String, Vec<Name>)> = Vec::new();
        for descriptor in all {
            let digest = self.manifest(descriptor, NESTED)?;
            let annotations = &descriptor["annotations"];
            let name = annotations["io.containerd.image.name"].as_str();
            // Only the tag, unless it is a whole name.
            let name = name.or_else(|| {
                annotations["org.opencontainers.image.ref.name"].as_str().filter(|name| name.contains(['/', ':']))
            });
            let name: Option<Name> = name.map(str::parse).transpose()?;
            match found.iter_mut().find(|(known, _)| *known == digest) {
                Some((_, names)) => names.extend(name),
                None => found.push((digest, name.into_iter().collect())),
            }
        }
        Ok(found)
    }

    /// The manifest that a descriptor leads to for this machine.
    fn manifest(&self, descriptor: &Value, nested: usize) -> Result<String, ArchiveError> {
        let digest = descriptor["digest"].as_str().ok_or(ManifestError::Invalid("a descriptor without a digest"))?;
        digest::check(digest).map_err(ManifestError::from)?;
        let path = digest::blob_path(digest);
        let document = self.document(&path)?;
        let (found, _) = self.blob(&path)?;
        if found != digest {
            return Err(StoreError::Damaged { wanted: digest.to_owned(), found: found.clone() }.into());
        }
        if !document["manifests"].is_array() {
            return Ok(digest.to_owned());
        }
        if nested == 0 {
            return Err(ManifestError::Invalid("its indexes nest too deeply").into());
        }
        self.manifest(manifest::choose(&document, manifest::host_architecture())?, nested - 1)
    }

    /// The images of docker's archive, each with a manifest that is made here.
    fn docker(&self, store: &Store, adding: &Adding, list: &[u8]) -> Result<Vec<(String, Vec<Name>)>, ArchiveError> {
        let list: Vec<DockerImage> = serde_json::from_slice(list).map_err(ManifestError::from)?;
        let mut found = Vec::new();
        for image in list {
            let described = |path: &str, kind: &str| -> Result<Value, ArchiveError> {
                let (digest, size) = self.blob(path)?;
                Ok(json!({"mediaType": kind, "digest": digest, "size": size}))
            };
            let layer = |path: &String| described(path, "application/vnd.oci.image.layer.v1.tar");
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": described(&image.config, "application/vnd.oci.image.config.v1+json")?,
                "layers": image.layers.iter().map(layer).collect::<Result<Vec<_>, _>>()?,
            });
            let digest = store.add(adding, manifest.to_string().as_bytes())?;
            let names = image.repo_tags.unwrap_or_default();
            found.push((digest, names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?));
        }
        Ok(found)
    }
}

/// Whether a file may be JSON that leads to others.
fn looks_like_a_document(path: &str) -> bool {
    !Path::new(path).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// Where a link at a path leads.
fn joined(path: &str, link: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::tar::Tar;

    fn archive(files: &[(&str, &[u8])], links: &[(&str, &str)]) -> (tempfile::TempDir, Store, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        let path = dir.path().join("a.tar");
        let mut tar = Tar::new(File::create(&path).unwrap());
        for (path, bytes) in files {
            tar.file(path, 0o644, bytes).unwrap();
        }
        for (path, to) in links {
            tar.link(path, to).unwrap();
        }
        tar.finish().unwrap();
        (dir, store, path)
    }

    fn layer() -> Vec<u8> {
        let mut tar = Tar::new(Vec::new());
        tar.file("hello", 0o644, b"world").unwrap();
        tar.finish().unwrap()
    }

    #[test]
    fn archives_of_docker_are_loaded() {
        let layer = layer();
        let diff = digest::of(&layer);
        let config =
            json!({"rootfs": {"diff_ids": [diff, diff]}, "config": {"Env": null, "Cmd": ["/hello"]}}).to_string();
        let list = json!([{"Config": "c.json", "RepoTags": ["me/app:v1"], "Layers": ["1/layer.tar", "2/layer.tar"]}]);
        let (_dir, store, path) = archive(
            &[("1/layer.tar", &layer), ("c.json", config.as_bytes()), ("manifest.json", list.to_string().as_bytes())],
            &[("2/layer.tar", "../1/layer.tar")],
        );
        let loaded = load(&store, &path, None).unwrap();
        assert_eq!(loaded[0].name, "docker.io/me/app:v1");
        let manifest = store.manifest(&loaded[0].digest).unwrap();
        assert_eq!(manifest.layers.len(), 2);
        assert_eq!(store.config(&manifest).unwrap().config.cmd, ["/hello"]);
        let other: Name = "other".parse().unwrap();
        assert_eq!(load(&store, &path, Some(&other)).unwrap()[0].name, "docker.io/library/other:latest");
        assert_eq!(store.list().unwrap().len(), 2);
    }

    #[test]
    fn layouts_are_loaded() {
        let layer = layer();
        let config = json!({"rootfs": {"diff_ids": [digest::of(&layer)]}}).to_string();
        let manifest = json!({
            "config": {"digest": digest::of(config.as_bytes()), "size": config.len()},
            "layers": [{"digest": digest::of(&layer), "size": layer.len()}],
        })
        .to_string();
        let digest = digest::of(manifest.as_bytes());
        let index = |name: Option<&str>| {
            json!({"manifests": [{"digest": digest, "annotations": {"io.containerd.image.name": name}}]}).to_string()
        };
        let blob = |bytes: &[u8]| digest::blob_path(&digest::of(bytes));
        let files = |index: String| {
            archive(
                &[
                    (&blob(&layer), &layer),
                    (&blob(config.as_bytes()), config.as_bytes()),
                    (&blob(manifest.as_bytes()), manifest.as_bytes()),
                    ("index.json", index.as_bytes()),
                ],
                &[],
            )
        };
        let (_dir, store, path) = files(index(Some("docker.io/library/app:v1")));
        assert_eq!(load(&store, &path, None).unwrap()[0].digest, digest);
        let (_dir, store, path) = files(index(None));
        assert!(matches!(load(&store, &path, None), Err(ArchiveError::Unnamed)));
        assert_eq!(load(&store, &path, Some(&"x".parse().unwrap())).unwrap().len(), 1);
    }

    #[test]
    fn other_files_are_refused() {
        let (_dir, store, path) = archive(&[("x", b"y")], &[]);
        assert!(matches!(load(&store, &path, None), Err(ArchiveError::Unknown)));
        std::fs::write(&path, [1; 1024]).unwrap();
        assert!(matches!(load(&store, &path, None), Err(ArchiveError::Read(_))));
        let list = json!([{"Config": "c.json", "Layers": []}]).to_string();
        let (_dir, store, path) = archive(&[("manifest.json", list.as_bytes())], &[]);
        assert!(matches!(load(&store, &path, None), Err(ArchiveError::Missing(_))));
    }
}
