//! Unpacks the layers of an image, one above the other, into one directory.
//!
//! A layer is an archive that anybody may have written. Every path is resolved by the kernel with the directory as its root
//! (`openat2`, `RESOLVE_IN_ROOT`), so neither `..` nor links of an earlier layer lead out of it. Devices are left out:
//! containers have their own. Names that begin with `.wh.` take files of lower layers away, as the OCI's image
//! specification says. [`Limits`] bound what is written.

mod zstd;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod,
    fchown, fsetxattr, linkat, mkdirat, mkfifoat, openat, openat2, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::digest::Hasher;
use crate::tar::{Entry, EntryKind, Reader};
use crate::users::Users;
use zstd::Zstd;

/// What a name begins with that takes a file of lower layers away.
const WHITEOUT: &str = ".wh.";
/// The name that takes everything of lower layers in its directory away.
const OPAQUE: &str = ".wh..wh..opq";
/// How long a path may be, as Linux has it.
const LONGEST_PATH: usize = 4096;

/// How much an image may unpack to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files.
    pub bytes: u64,
    /// Entries of all layers.
    pub entries: u64,
}

impl Default for Limits {
    /// 16 GiB in two million entries.
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 2_000_000 }
    }
}

/// Why a layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The archive cannot be read.
    #[error("a layer of the image cannot be read: {0}")]
    Read(#[source] io::Error),
    /// Its content is not what the image's configuration says.
    #[error("a layer of the image is damaged: its digest is {found}, not {wanted}")]
    Damaged {
        /// What it should have been.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// A path leads nowhere that it may.
    #[error("the image has an entry that cannot be unpacked: {path:?}: {why}")]
    Entry {
        /// The path as the layer has it.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is more than an image may have.
    #[error("the image is larger than allowed: more than {0}")]
    Limit(String),
    /// The directory cannot be made.
    #[error("cannot create {}: {source}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Unpacks layers, the lowest first.
#[derive(Debug)]
pub struct Unpacker {
    root: OwnedFd,
    limits: Limits,
    /// Whether files get the owners that layers give them, which only root may do.
    owners: bool,
}

/// What is known while one layer is unpacked.
struct Layer<'a> {
    unpacker: &'a mut Unpacker,
    /// What this layer has brought, which its own whiteouts do not take away.
    brought: HashSet<PathBuf>,
    /// When directories were changed; set last, because what is put into them changes that.
    times: Vec<(OwnedFd, i64)>,
}

impl Unpacker {
    /// Unpacks into a directory that is created.
    pub fn new(root: &Path, limits: Limits) -> Result<Self, UnpackError> {
        let create = |source| UnpackError::Create { path: root.to_owned(), source };
        std::fs::create_dir(root).map_err(create)?;
        std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(create)?;
        let fd: OwnedFd = File::open(root).map_err(create)?.into();
        // Where there is only one user, everything is that user's.
        let owners = rustix::process::geteuid().is_root() && Users::current() != Users::One;
        Ok(Self { root: fd, limits, owners })
    }

    /// Unpacks a layer, which must have this digest when it is not compressed.
    pub fn layer(&mut self, blob: impl Read, wanted: &str) -> Result<(), UnpackError> {
        let mut blob = io::BufReader::with_capacity(1 << 16, blob);
        let start = io::BufRead::fill_buf(&mut blob).map_err(UnpackError::Read)?;
        let plain: Box<dyn Read + '_> = match start {
            [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(blob)),
            // A frame, or one to skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd::new(blob)),
            _ => Box::new(blob),
        };
        // Everything is bounded, also what is between and behind the entries.
        let most = self.limits.bytes.saturating_add(self.limits.entries.saturating_mul(2048)).saturating_add(1 << 20);
        let mut reader = Reader::new(Hashed { inner: plain.take(most), hasher: Hasher::default() });
        let mut layer = Layer { unpacker: self, brought: HashSet::new(), times: Vec::new() };
        while let Some(entry) = reader.next_entry().map_err(UnpackError::Read)? {
            layer.entry(&entry, &mut reader)?;
        }
        layer.finish();
        let mut rest = reader.into_inner();
        io::copy(&mut rest, &mut io::sink()).map_err(UnpackError::Read)?;
        if rest.inner.limit() == 0 {
            return Err(UnpackError::Limit(format!("{most} bytes in a layer")));
        }
        let found = rest.hasher.finish();
        if found != wanted {
            return Err(UnpackError::Damaged { wanted: wanted.to_owned(), found });
        }
        Ok(())
    }

    /// Opens a directory below the root, and makes what is missing on the way.
    fn directory(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let whole = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match openat2(&self.root, whole, flags, Mode::empty(), resolve) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let parent = self.directory(parent)?;
        match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
            // A link that leads nowhere: what it leads to is not made.
            Ok(()) | Err(Errno::EXIST) => openat2(&self.root, whole, flags, Mode::empty(), resolve),
            Err(error) => Err(error),
        }
    }
}

impl Layer<'_> {
    fn entry(&mut self, entry: &Entry, content: &mut impl Read) -> Result<(), UnpackError> {
        let limits = &mut self.unpacker.limits;
        limits.entries = limits.entries.checked_sub(1).ok_or_else(|| UnpackError::Limit("its entries".to_owned()))?;
        limits.bytes =
            limits.bytes.checked_sub(entry.size).ok_or_else(|| UnpackError::Limit("its bytes".to_owned()))?;
        let refused = |why: &str| UnpackError::Entry { path: entry.path.clone(), why: why.to_owned() };
        let failed = |error: Errno| refused(&io::Error::from(error).to_string());
        let path = cleaned(&entry.path).ok_or_else(|| refused("it is not a path of a file"))?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            // The root itself: only its mode and owner are of interest.
            if entry.kind == EntryKind::Directory {
                let root = self.unpacker.directory(Path::new("")).map_err(failed)?;
                self.unpacker.own(&root, entry).map_err(failed)?;
            }
            return Ok(());
        };
        let directory = self.unpacker.directory(parent).map_err(failed)?;
        if name == OPAQUE {
            return self.clear(&directory, parent).map_err(failed);
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            let is_name = !hidden.is_empty() && hidden != "." && hidden != "..";
            if is_name && !self.brought.contains(&parent.join(hidden)) {
                remove(&directory, hidden).map_err(failed)?;
            }
            return Ok(());
        }
        self.place(&directory, name, entry, content, &refused)?;
        self.note(&path);
        Ok(())
    }

    fn place(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        entry: &Entry,
        content: &mut impl Read,
        refused: &dyn Fn(&str) -> UnpackError,
    ) -> Result<(), UnpackError> {
        let failed = |error: Errno| refused(&io::Error::from(error).to_string());
        let existing = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failed(error)),
        };
        let stays = entry.kind == EntryKind::Directory && existing == Some(FileType::Directory);
        if existing.is_some() && !stays && entry.kind != EntryKind::Other {
            remove(directory, name).map_err(failed)?;
        }
        match entry.kind {
            EntryKind::Directory => {
                if !stays {
                    mkdirat(directory, name, Mode::from_raw_mode(0o755)).map_err(failed)?;
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = openat(directory, name, flags, Mode::empty()).map_err(failed)?;
                self.unpacker.own(&made, entry).map_err(failed)?;
                // Open files are limited; the times of directories matter little.
                if self.times.len() < 128 {
                    self.times.push((made, entry.mtime));
                }
            }
            EntryKind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(directory, name, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
                let mut file = File::from(file);
                let written = io::copy(content, &mut file).map_err(UnpackError::Read)?;
                if written != entry.size {
                    return Err(refused("its content is cut off"));
                }
                let file = OwnedFd::from(file);
                self.unpacker.own(&file, entry).map_err(failed)?;
                if let Some(capability) = entry.xattrs.get("security.capability").filter(|_| self.unpacker.owners) {
                    // Not every file system has them; the program then runs without.
                    let _ = fsetxattr(&file, "security.capability", capability, XattrFlags::empty());
                }
                let _ = rustix::fs::futimens(&file, &times(entry.mtime));
            }
            EntryKind::Symlink => {
                if entry.link.is_empty() || entry.link.len() >= LONGEST_PATH {
                    return Err(refused("it leads nowhere"));
                }
                symlinkat(&entry.link, directory, name).map_err(failed)?;
                if self.unpacker.owners {
                    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
                    exists(chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
                        .map_err(failed)?;
                }
                let _ = utimensat(directory, name, &times(entry.mtime), AtFlags::SYMLINK_NOFOLLOW);
            }
            EntryKind::HardLink => {
                let target = cleaned(&entry.link).ok_or_else(|| refused("it leads nowhere"))?;
                let (Some(parent), Some(target)) = (target.parent(), target.file_name()) else {
                    return Err(refused("it leads to a directory"));
                };
                let parent = self.unpacker.directory(parent).map_err(failed)?;
                linkat(&parent, target, directory, name, AtFlags::empty()).map_err(failed)?;
            }
            EntryKind::Fifo => {
                mkfifoat(directory, name, Mode::from_raw_mode(entry.mode & 0o777)).map_err(failed)?;
            }
            EntryKind::Other => {}
        }
        Ok(())
    }

    /// Remembers that this layer has brought something, and the directories that it is in.
    fn note(&mut self, path: &Path) {
        for path in path.ancestors() {
            if !self.brought.insert(path.to_owned()) {
                break;
            }
        }
    }

    /// Takes away what lower layers have in a directory.
    fn clear(&mut self, directory: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
        for name in names(directory)? {
            let below = path.join(&name);
            if !self.brought.contains(&below) {
                remove(directory, &name)?;
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(inner) = openat(directory, &name, flags, Mode::empty()) {
                self.clear(&inner, &below)?;
            }
        }
        Ok(())
    }

    fn finish(self) {
        for (directory, mtime) in self.times.into_iter().rev() {
            let _ = rustix::fs::futimens(&directory, &times(mtime));
        }
    }
}

impl Unpacker {
    fn own(&self, file: &OwnedFd, entry: &Entry) -> rustix::io::Result<()> {
        if self.owners {
            exists(fchown(file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid))))?;
            return fchmod(file, Mode::from_raw_mode(entry.mode));
        }
        // The store must be able to read and to delete what it has, and there is no other user to set an owner for.
        let more = if entry.kind == EntryKind::Directory { 0o700 } else { 0o400 };
        fchmod(file, Mode::from_raw_mode(entry.mode & 0o777 | more))
    }
}

/// The result of giving a file an owner. One that the user namespace does not have is not given: the file stays root's.
fn exists(given: rustix::io::Result<()>) -> rustix::io::Result<()> {
    if given == Err(Errno::INVAL) { Ok(()) } else { given }
}

fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// A path of a layer relative to its root. `None` for one that leads above it, or that no file can have.
fn cleaned(path: &str) -> Option<PathBuf> {
    if path.len() >= LONGEST_PATH || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part if part.len() > 255 => return None,
            part => parts.push(part),
        }
    }
    Some(parts.iter().collect())
}

/// The names in a directory.
fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        // What is not text was not unpacked from a layer.
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => found.push(name.to_owned()),
        }
    }
    Ok(found)
}

/// Removes a file or a directory with all that is in it. Links are removed, never followed.
fn remove(directory: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = openat(directory, name, flags, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    drop(inner);
    unlinkat(directory.as_fd(), name, AtFlags::REMOVEDIR)
}

struct Hashed<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.add(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
