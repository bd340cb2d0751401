//! The files of an image: a program with what it needs to be started, or a directory.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use windlass_image::manifest::host_architecture;
use windlass_image::tar::Tar;

use super::base::Base;
use super::elf;

/// What is at a path.
enum Entry {
    Directory,
    File { mode: u32, bytes: Vec<u8> },
    Link(String),
}

/// Files by their path, which has no slash at its beginning.
pub(super) struct Layer {
    entries: BTreeMap<String, Entry>,
    /// The program, if the image is made of one.
    pub program: Option<String>,
    pub architecture: &'static str,
}

/// The files of a program or of a directory, and the image that they are put on, which is read for the architecture of
/// the program.
pub(super) fn of(path: &Path, base: impl FnOnce(&str) -> Result<Option<Base>>) -> Result<(Layer, Option<Base>)> {
    let mut layer = Layer { entries: BTreeMap::new(), program: None, architecture: host_architecture() };
    if path.is_dir() {
        layer.add_directory(path, "")?;
        let base = base(layer.architecture)?;
        layer.follow(base.as_ref());
        return Ok((layer, base));
    }
    let name = path.file_name().and_then(|name| name.to_str()).context("the program has no name")?;
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(metadata.is_file(), "{} is neither a file nor a directory", path.display());
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let elf = elf::program(&bytes).map_err(|what| {
        anyhow::anyhow!(
            "{} is {what}, and an image is made of an ELF executable for Linux (amd64, arm64 or riscv64): name the file \
             that `cargo build --release` writes. For a script, name a directory that has all it needs, with --entrypoint",
            path.display()
        )
    })?;
    layer.architecture = elf.architecture;
    let base = base(elf.architecture)?;
    // A base with the program's loader has its libraries too, and they fit that loader.
    let brought = |base: &Base| elf.interpreter.as_ref().is_none_or(|loader| base.has(loader));
    if !base.as_ref().is_some_and(brought) {
        for file in elf::closure(&elf)? {
            // A link of the system stands for what it leads to: the name is what the loader looks for.
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            layer.add(&file.to_string_lossy(), Entry::File { mode: 0o755, bytes });
        }
    }
    layer.add(name, Entry::File { mode: 0o755, bytes });
    layer.program = Some(format!("/{name}"));
    layer.follow(base.as_ref());
    Ok((layer, base))
}

impl Layer {
    /// Whether there is a file.
    pub(super) fn has(&self, path: &str) -> bool {
        matches!(self.entries.get(path.trim_start_matches('/')), Some(Entry::File { .. } | Entry::Link(_)))
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Puts files where links of the base lead to: a directory in the place of such a link would hide what is behind it.
    fn follow(&mut self, base: Option<&Base>) {
        let Some(base) = base else { return };
        for (path, entry) in std::mem::take(&mut self.entries) {
            if matches!(entry, Entry::Directory) && base.resolve(&path) != path {
                continue;
            }
            let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let directory = base.resolve(directory);
            let path = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
            self.add(&path, entry);
        }
    }

    fn add_directory(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        let unreadable = || format!("cannot read {}", directory.display());
        for entry in std::fs::read_dir(directory).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name().into_string();
            let Ok(name) = name else { bail!("a name in {} is not text", directory.display()) };
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let metadata = entry.path().symlink_metadata().with_context(unreadable)?;
            if metadata.is_symlink() {
                let to = std::fs::read_link(entry.path())?;
                self.add(&path, Entry::Link(to.to_string_lossy().into_owned()));
            } else if metadata.is_dir() {
                self.add(&path, Entry::Directory);
                self.add_directory(&entry.path(), &path)?;
            } else if !metadata.is_file() {
                bail!("{} is neither a file nor a directory nor a link", entry.path().display());
            } else {
                // Who may run it matters, who may change it is the image's matter.
                let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
                let bytes = std::fs::read(entry.path()).with_context(|| format!("cannot read {path}"))?;
                self.add(&path, Entry::File { mode, bytes });
            }
        }
        Ok(())
    }

    /// The files as a tar, sorted by path.
    pub(super) fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = Tar::new(Vec::new());
        for (path, entry) in &self.entries {
            match entry {
                Entry::Directory => tar.directory(path)?,
                Entry::File { mode, bytes } => tar.file(path, *mode, bytes)?,
                Entry::Link(to) => tar.link(path, to)?,
            }
        }
        Ok(tar.finish()?)
    }
}

/// The bytes compressed, with nothing about when and where.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
