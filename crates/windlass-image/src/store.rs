//! The images of this machine's user, shared by all clusters.
//!
//! ```text
//! blobs/sha256/HEX   manifests, configurations and layers, as registries have them
//! roots/HEX/         the files of an image, unpacked; HEX is that of its configuration
//! roots/HEX-users/   the same with owners, unpacked in a user namespace of several users
//! names.json         which names stand for which manifests
//! lock               shared while images are added, exclusive while what nothing names is deleted
//! ```
//!
//! A blob appears under its name when it is complete, so a store has no half of anything after a crash. A process that uses
//! unpacked files holds a shared lock on their directory, which the kernel releases with the process; a directory that is
//! locked is not deleted.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::digest::{self, Hasher, hex};
use crate::manifest::{Config, DOCUMENT, Manifest, ManifestError};
use crate::reference::Name;
use crate::users::Users;

/// How old what a crash left must be before it is deleted.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What the directory of an image's files ends with if their owners exist in a user namespace only. They are not for processes
/// outside of it, and deleted by the next one inside.
const WITH_OWNERS: &str = "-users";

fn has_several_users() -> bool {
    matches!(Users::current(), Users::Several(_))
}

/// Something about the store that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or directory of the store cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no directory for it.
    #[error("HOME is not set; set WINDLASS_IMAGES to a directory for images")]
    NoHome,
    /// It is not there.
    #[error("there is no image {0} on this machine")]
    NotFound(String),
    /// Content has another digest than it should.
    #[error("the content of {wanted} is damaged: its digest is {found}")]
    Damaged {
        /// What it should have been.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// A manifest or configuration cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The list of names is not what this version writes.
    #[error("{} cannot be read: {source}", path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The files of an image cannot be unpacked.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Unpack(#[from] crate::unpack::UnpackError),
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It was built or loaded here. It is used whatever a pod's `imagePullPolicy` says, unless a registry is asked for it.
    Local,
    /// It was pulled from its registry.
    Registry,
}

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Its name, with all its parts.
    pub name: String,
    /// The digest of its manifest.
    pub digest: String,
    /// How many bytes its blobs have.
    pub size: u64,
    /// Where it came from.
    pub origin: Origin,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Names {
    images: Vec<Stored>,
}

/// See the [module documentation](self).
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// Held while an image is added: nothing that it consists of is deleted meanwhile.
#[derive(Debug)]
pub struct Adding {
    _lock: File,
}

/// A blob that is being written.
#[derive(Debug)]
pub struct Writing {
    file: tempfile::NamedTempFile,
    hasher: Hasher,
    size: u64,
    blobs: PathBuf,
}

/// What a collection deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Blobs and directories.
    pub count: usize,
    /// The bytes of the blobs.
    pub bytes: u64,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}

impl Store {
    /// The store of this user: `$WINDLASS_IMAGES`, or `.images` below `$WINDLASS_HOME` or `~/.windlass`.
    pub fn of_user() -> Result<Self, StoreError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let dir = variable("WINDLASS_IMAGES")
            .or_else(|| Some(variable("WINDLASS_HOME")?.join(".images")))
            .or_else(|| Some(variable("HOME")?.join(".windlass/.images")));
        Self::open(&dir.ok_or(StoreError::NoHome)?)
    }

    /// The store in a directory, which is created if it is not there.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        use std::os::unix::fs::DirBuilderExt as _;
        for part in ["", "blobs/sha256", "roots", "tmp"] {
            let path = dir.join(part);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(failed("create", &path))?;
        }
        let dir = dir.canonicalize().map_err(failed("find", dir))?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether there are unpacked files whose owners exist in a user namespace only: they are deleted from within.
    pub fn has_owners(&self) -> bool {
        let roots = fs::read_dir(self.dir.join("roots")).into_iter().flatten().flatten();
        roots.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(WITH_OWNERS))
    }

    /// Has nothing deleted while the result is held.
    pub fn adding(&self) -> Result<Adding, StoreError> {
        Ok(Adding { _lock: self.lock("lock", FlockOperation::LockShared)? })
    }

    fn lock(&self, name: &str, operation: FlockOperation) -> Result<File, StoreError> {
        let path = self.dir.join(name);
        let file = File::options().create(true).append(true).open(&path).map_err(failed("open", &path))?;
        flock(&file, operation).map_err(|error| failed("lock", &path)(error.into()))?;
        Ok(file)
    }

    /// Where a blob is.
    pub fn blob_path(&self, digest: &str) -> PathBuf {
        self.dir.join("blobs/sha256").join(hex(digest))
    }

    /// Whether there is a blob.
    pub fn has(&self, digest: &str) -> bool {
        self.blob_path(digest).is_file()
    }

    /// Begins to write a blob.
    pub fn write(&self, _: &Adding) -> Result<Writing, StoreError> {
        let tmp = self.dir.join("tmp");
        let file = tempfile::Builder::new().tempfile_in(&tmp).map_err(failed("write in", &tmp))?;
        Ok(Writing { file, hasher: Hasher::default(), size: 0, blobs: self.dir.join("blobs/sha256") })
    }

    /// Adds a blob that is in memory.
    pub fn add(&self, adding: &Adding, bytes: &[u8]) -> Result<String, StoreError> {
        let mut writing = self.write(adding)?;
        writing.write(bytes)?;
        writing.finish(None)
    }

    /// A small blob: a manifest or a configuration.
    pub fn document(&self, digest: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.blob_path(digest);
        let file = File::open(&path).map_err(failed("read", &path))?;
        let mut bytes = Vec::new();
        file.take(DOCUMENT).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        let found = digest::of(&bytes);
        if found != digest {
            return Err(StoreError::Damaged { wanted: digest.to_owned(), found });
        }
        Ok(bytes)
    }

    /// The manifest of an image.
    pub fn manifest(&self, digest: &str) -> Result<Manifest, StoreError> {
        Ok(Manifest::read(&self.document(digest)?)?)
    }

    /// The configuration of an image.
    pub fn config(&self, manifest: &Manifest) -> Result<Config, StoreError> {
        Ok(Config::read(&self.document(&manifest.config.digest)?)?)
    }

    /// Gives a name to an image, all of whose blobs are there. What had the name before may be collected.
    pub fn name(&self, _: &Adding, name: &Name, digest: &str, origin: Origin) -> Result<Stored, StoreError> {
        let manifest = self.manifest(digest)?;
        if let Some(missing) = manifest.blobs().find(|one| !self.has(&one.digest)) {
            return Err(StoreError::NotFound(missing.digest.clone()));
        }
        let stored = Stored { name: name.to_string(), digest: digest.to_owned(), size: manifest.size(), origin };
        self.change(|names| {
            names.images.retain(|image| image.name != stored.name);
            names.images.push(stored.clone());
            names.images.sort_by(|one, other| one.name.cmp(&other.name));
        })?;
        Ok(stored)
    }

    /// Takes a name away. What nothing names any more is deleted by [`collect`](Self::collect).
    pub fn remove(&self, name: &Name) -> Result<Stored, StoreError> {
        let wanted = name.to_string();
        let mut removed = None;
        self.change(|names| {
            let at = names.images.iter().position(|image| image.name == wanted);
            removed = at.map(|at| names.images.remove(at));
        })?;
        removed.ok_or(StoreError::NotFound(wanted))
    }

    /// All images by name.
    pub fn list(&self) -> Result<Vec<Stored>, StoreError> {
        Ok(self.names()?.images)
    }

    /// The image of a name.
    pub fn find(&self, name: &Name) -> Result<Option<Stored>, StoreError> {
        let wanted = name.to_string();
        let images = self.names()?.images;
        let named = images.iter().find(|image| image.name == wanted);
        // Content is the same by whatever name it came.
        let named = named.or_else(|| images.iter().find(|image| Some(&image.digest) == name.digest.as_ref()));
        Ok(named.cloned())
    }

    fn names(&self) -> Result<Names, StoreError> {
        let path = self.dir.join("names.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| StoreError::Names { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Names::default()),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Names)) -> Result<(), StoreError> {
        let _lock = self.lock("names.lock", FlockOperation::LockExclusive)?;
        let mut names = self.names()?;
        change(&mut names);
        let path = self.dir.join("names.json");
        let mut file = tempfile::NamedTempFile::new_in(self.dir.join("tmp")).map_err(failed("write", &path))?;
        let text =
            serde_json::to_vec_pretty(&names).map_err(|source| StoreError::Names { path: path.clone(), source })?;
        file.write_all(&text).map_err(failed("write", &path))?;
        file.persist(&path).map_err(|error| failed("write", &path)(error.error))?;
        Ok(())
    }

    /// Deletes what no name leads to and nothing uses. Does nothing while an image is being added.
    pub fn collect(&self) -> Result<Collected, StoreError> {
        let lock = self.dir.join("lock");
        let file = File::options().create(true).append(true).open(&lock).map_err(failed("open", &lock))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Collected::default());
        }
        let mut kept = std::collections::HashSet::new();
        for image in self.list()? {
            kept.insert(hex(&image.digest).to_owned());
            if let Ok(manifest) = self.manifest(&image.digest) {
                kept.extend(manifest.blobs().map(|one| hex(&one.digest).to_owned()));
            }
        }
        let mut collected = Collected::default();
        for (path, name) in entries(&self.dir.join("roots"))? {
            let root = name.strip_suffix(".lock").unwrap_or(&name);
            let image = root.strip_suffix(WITH_OWNERS).unwrap_or(root);
            let is_others = image != root && !has_several_users();
            if kept.contains(image) || is_others || self.is_used(root) {
                kept.insert(image.to_owned());
            } else if path.is_dir() {
                let aside = self.dir.join("tmp").join(&name);
                fs::rename(&path, &aside).map_err(failed("delete", &path))?;
                remove_tree(&aside)?;
                collected.count += 1;
            } else {
                let _ = fs::remove_file(&path);
            }
        }
        for (path, name) in entries(&self.dir.join("blobs/sha256"))? {
            if !kept.contains(&name) {
                collected.bytes += path.metadata().map_or(0, |metadata| metadata.len());
                collected.count += 1;
                fs::remove_file(&path).map_err(failed("delete", &path))?;
            }
        }
        for (path, _) in entries(&self.dir.join("tmp"))? {
            let age = path.symlink_metadata().ok().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
            if age.is_some_and(|age| age > ABANDONED) {
                let _ = remove_tree(&path);
            }
        }
        Ok(collected)
    }

    /// Whether a process holds the lock of unpacked files.
    fn is_used(&self, root: &str) -> bool {
        let Ok(dir) = File::open(self.dir.join("roots").join(root)) else { return false };
        flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

#[cfg(target_os = "linux")]
impl Store {
    /// The files of an image, unpacked. The directory has to be [locked](hold) while it is used.
    pub fn root(&self, digest: &str, limits: crate::unpack::Limits) -> Result<PathBuf, StoreError> {
        let _adding = self.adding()?;
        let manifest = self.manifest(digest)?;
        let mut name = hex(&manifest.config.digest).to_owned();
        if has_several_users() {
            name.push_str(WITH_OWNERS);
        }
        let path = self.dir.join("roots").join(&name);
        if path.is_dir() {
            return Ok(path);
        }
        let _one = self.lock(&format!("roots/{name}.lock"), FlockOperation::LockExclusive)?;
        if path.is_dir() {
            return Ok(path);
        }
        let config = self.config(&manifest)?;
        if config.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(ManifestError::Invalid("its configuration names another number of layers").into());
        }
        let tmp = self.dir.join("tmp");
        let unpacked = tempfile::Builder::new().tempdir_in(&tmp).map_err(failed("write in", &tmp))?;
        let root = unpacked.path().join("root");
        let mut unpacker = crate::unpack::Unpacker::new(&root, limits)?;
        for (layer, diff) in manifest.layers.iter().zip(&config.rootfs.diff_ids) {
            let blob = self.blob_path(&layer.digest);
            let file = File::open(&blob).map_err(failed("read", &blob))?;
            unpacker.layer(file, diff)?;
        }
        fs::rename(&root, &path).map_err(failed("create", &path))?;
        Ok(path)
    }
}

/// Keeps unpacked files from being deleted while the result is held.
pub fn hold(root: &Path) -> Result<File, StoreError> {
    let dir = File::open(root).map_err(failed("open", root))?;
    flock(&dir, FlockOperation::LockShared).map_err(|error| failed("lock", root)(error.into()))?;
    Ok(dir)
}

/// What is in a directory, with names.
fn entries(dir: &Path) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let read = fs::read_dir(dir).map_err(failed("read", dir))?;
    let named = read.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.path(), entry.file_name().into_string().ok()?))
    });
    Ok(named.collect())
}

/// Deletes a directory with all that is in it, also what its modes forbid to delete.
fn remove_tree(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt as _;
    let is_dir = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    if !is_dir {
        return fs::remove_file(path).map_err(failed("delete", path));
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(failed("delete", path))?.flatten() {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(path).map_err(failed("delete", path))
}

impl Writing {
    /// Writes more.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.hasher.add(bytes);
        self.size += bytes.len() as u64;
        self.file.write_all(bytes).map_err(failed("write", self.file.path()))
    }

    /// How many bytes were written.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts the blob into the store, if it is the one that is wanted. Returns its digest.
    pub fn finish(self, wanted: Option<&str>) -> Result<String, StoreError> {
        let digest = self.hasher.finish();
        if let Some(wanted) = wanted.filter(|wanted| *wanted != digest) {
            return Err(StoreError::Damaged { wanted: wanted.to_owned(), found: digest });
        }
        let path = self.blobs.join(hex(&digest));
        if !path.is_file() {
            self.file.persist(&path).map_err(|error| failed("write", &path)(error.error))?;
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::tar::Tar;

    /// An image with one file, under a name.
    fn image(store: &Store, name: &str, content: &[u8]) -> Stored {
        let adding = store.adding().unwrap();
        let mut layer = Tar::new(Vec::new());
        layer.file("f", 0o644, content).unwrap();
        let layer = layer.finish().unwrap();
        let layer_digest = store.add(&adding, &layer).unwrap();
        let config = serde_json::json!({"rootfs": {"type": "layers", "diff_ids": [layer_digest]}}).to_string();
        let config_digest = store.add(&adding, config.as_bytes()).unwrap();
        let manifest = serde_json::json!({
            "config": {"digest": config_digest, "size": config.len()},
            "layers": [{"digest": layer_digest, "size": layer.len(), "mediaType": "application/vnd.oci.image.layer.v1.tar"}],
        });
        let digest = store.add(&adding, manifest.to_string().as_bytes()).unwrap();
        store.name(&adding, &name.parse().unwrap(), &digest, Origin::Local).unwrap()
    }

    #[test]
    fn names_lead_to_images_until_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let one = image(&store, "one", b"1");
        image(&store, "two", b"2");
        assert_eq!(store.list().unwrap().len(), 2);
        assert_eq!(store.find(&"one:latest".parse().unwrap()).unwrap(), Some(one.clone()));
        let by_digest = format!("elsewhere.example.com/x@{}", one.digest).parse().unwrap();
        assert_eq!(store.find(&by_digest).unwrap(), Some(one.clone()));
        assert_eq!(store.collect().unwrap(), Collected::default());
        store.remove(&"one".parse().unwrap()).unwrap();
        assert!(matches!(store.remove(&"one".parse().unwrap()), Err(StoreError::NotFound(_))));
        assert_eq!(store.collect().unwrap().count, 3);
        assert!(!store.has(&one.digest));
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_in_use_are_not_collected() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let stored = image(&store, "one", b"1");
        let root = store.root(&stored.digest, crate::unpack::Limits::default()).unwrap();
        assert_eq!(fs::read(root.join("f")).unwrap(), b"1");
        let held = hold(&root).unwrap();
        store.remove(&"one".parse().unwrap()).unwrap();
        store.collect().unwrap();
        assert!(root.join("f").exists());
        drop(held);
        store.collect().unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn damaged_content_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let adding = store.adding().unwrap();
        let mut writing = store.write(&adding).unwrap();
        writing.write(b"x").unwrap();
        let wanted = digest::of(b"y");
        assert!(matches!(writing.finish(Some(&wanted)), Err(StoreError::Damaged { .. })));
        let stored = store.add(&adding, b"{}").unwrap();
        fs::write(store.blob_path(&stored), b"{ }").unwrap();
        assert!(matches!(store.document(&stored), Err(StoreError::Damaged { .. })));
        // Nothing is collected while something is added.
        assert_eq!(store.collect().unwrap(), Collected::default());
    }
}
