//! Which files of a project change.
//!
//! Directories that hold no sources, above all `target`, are not watched: cargo changes thousands of files there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// How many changes may wait to be read.
const CHANGES: usize = 1024;
/// By then the directories in a new one are watched; what was written into them before is read from the disk.
const WATCH_DELAY: Duration = Duration::from_millis(50);

/// What changed at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// Relative to the project.
    pub sources: Vec<String>,
    pub samples: Vec<PathBuf>,
    /// Samples, or directories with samples, that are not there any more.
    pub gone: Vec<PathBuf>,
}

/// Directories at the top of a project that no source is in.
const NO_SOURCES: [&str; 6] = ["target", "tests", "docs", "dist", "bundle", "node_modules"];

/// Watches until it is dropped.
pub(super) struct Sources {
    places: Places,
    send: mpsc::Sender<Changes>,
    changes: mpsc::Receiver<Changes>,
    _watcher: RecommendedWatcher,
    /// For each directory that has come to the top of the project. The first watcher cannot be given another directory: its
    /// thread may be waiting until changes are read.
    later: BTreeMap<PathBuf, RecommendedWatcher>,
}

/// What a watcher reports at once.
#[derive(Default)]
struct Changes {
    saved: Saved,
    /// New directories.
    directories: Vec<PathBuf>,
}

/// What is looked at. Watchers report names as they were given.
#[derive(Clone)]
struct Places {
    root: PathBuf,
    samples: PathBuf,
}

impl Sources {
    pub(super) fn watch(root: &Path, samples: &Path) -> Result<Self> {
        let places = Places { root: root.to_owned(), samples: samples.to_owned() };
        let (send, changes) = mpsc::channel(CHANGES);
        let mut watcher = watcher(&places, &send)?;
        watch(&mut watcher, root, RecursiveMode::NonRecursive)?;
        for entry in std::fs::read_dir(root)?.flatten() {
            if entry.path().is_dir() && has_sources(&entry.file_name()) {
                watch(&mut watcher, &entry.path(), RecursiveMode::Recursive)?;
            }
        }
        if !samples.starts_with(root) && samples.exists() {
            watch(&mut watcher, samples, RecursiveMode::Recursive)?;
        }
        Ok(Self { places, send, changes, _watcher: watcher, later: BTreeMap::new() })
    }

    /// The next files that changed, and those of directories that are new.
    pub(super) async fn next(&mut self) -> Result<Saved> {
        loop {
            let changes = self.changes.recv().await.context("invariant: this has a sender itself")?;
            let Changes { mut saved, directories } = changes;
            for directory in &directories {
                if directory.parent() == Some(self.places.root.as_path()) {
                    let mut watcher = watcher(&self.places, &self.send)?;
                    // It may be gone again.
                    let _ = watch(&mut watcher, directory, RecursiveMode::Recursive);
                    self.later.insert(directory.clone(), watcher);
                }
            }
            if !directories.is_empty() {
                tokio::time::sleep(WATCH_DELAY).await;
            }
            for directory in &directories {
                self.places.classify(&files(directory), &mut saved);
            }
            if saved != Saved::default() {
                return Ok(saved);
            }
        }
    }
}

fn watcher(places: &Places, changes: &mpsc::Sender<Changes>) -> Result<RecommendedWatcher> {
    let (places, changes) = (places.clone(), changes.clone());
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        if matches!(event.kind, EventKind::Access(_) | EventKind::Other) {
            return;
        }
        let mut found = Changes::default();
        places.classify(&event.paths, &mut found.saved);
        if matches!(event.kind, EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_))) {
            found.directories =
                event.paths.into_iter().filter(|path| places.is_watched(path) && path.is_dir()).collect();
        }
        if found.saved != Saved::default() || !found.directories.is_empty() {
            // On a thread of the watcher's own, which waits while its channel is full.
            let _ = changes.blocking_send(found);
        }
    });
    watcher.context("cannot watch files")
}

fn watch(watcher: &mut RecommendedWatcher, path: &Path, mode: RecursiveMode) -> Result<()> {
    watcher.watch(path, mode).with_context(|| format!("cannot watch {}", path.display()))
}

/// All files below a directory. What cannot be read is left out: it may be gone again.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                _ => files.push(entry.path()),
            }
        }
    }
    files
}

fn has_sources(directory: &OsStr) -> bool {
    let name = directory.to_string_lossy();
    !name.starts_with('.') && !NO_SOURCES.contains(&&*name)
}

impl Places {
    /// Whether files in a directory are of interest.
    fn is_watched(&self, directory: &Path) -> bool {
        let of_project = directory.strip_prefix(&self.root).ok().and_then(|relative| relative.iter().next());
        directory.starts_with(&self.samples) || of_project.is_some_and(has_sources)
    }

    fn classify(&self, paths: &[PathBuf], saved: &mut Saved) {
        for path in paths {
            if path.starts_with(&self.samples) {
                if path.is_file() {
                    saved.samples.extend(is_manifest(path).then(|| path.clone()));
                } else if !path.exists() && (is_manifest(path) || path.extension().is_none()) {
                    saved.gone.push(path.clone());
                }
                continue;
            }
            let Ok(relative) = path.strip_prefix(&self.root) else { continue };
            if is_source(relative) && !path.is_dir() {
                saved.sources.push(relative.display().to_string());
            }
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|e| extension == *e));
    extension && path.file_stem().is_some_and(|stem| stem != "kustomization")
}

/// Whether cargo may build something else after a change of the file. Cargo itself writes `Cargo.lock`.
fn is_source(relative: &Path) -> bool {
    let mut components = relative.components().map(std::path::Component::as_os_str);
    let Some(first) = components.next() else { return false };
    let name = relative.file_name().unwrap_or_default().to_string_lossy();
    // What editors write beside a file, or to see whether they can.
    let of_sed = |rest: &str| rest.len() == 6 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let temporary = name.starts_with(['.', '#'])
        || name.ends_with('~')
        || name == "4913"
        || name.strip_prefix("sed").is_some_and(of_sed)
        || [".swp", ".swx", ".tmp", "___jb_tmp___", "___jb_old___"].iter().any(|suffix| name.ends_with(suffix));
    if temporary {
        return false;
    }
    if components.next().is_none() {
        return name == "Cargo.toml" || name == "build.rs" || name == "rust-toolchain.toml";
    }
    // Manifests are written from the code, not the other way round.
    has_sources(first) && first != "config" && relative.extension().is_none_or(|extension| extension != "md")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sources_are_told_from_other_files() {
        for (path, expected) in [
            ("src/main.rs", true),
            ("src/controller/guestbook.rs", true),
            ("src/page.html", true),
            ("api/src/v1/guestbook.rs", true),
            ("api/Cargo.toml", true),
            ("Cargo.toml", true),
            ("Cargo.lock", false),
            ("PROJECT", false),
            ("README.md", false),
            ("src/.main.rs.swp", false),
            ("src/4913", false),
            ("src/main.rs~", false),
            ("src/#main.rs#", false),
            ("src/sedOMaO86", false),
            ("src/sediment.rs", true),
            ("src/main.rs___jb_tmp___", false),
            ("target/debug/x", false),
            (".git/index", false),
            ("tests/it/main.rs", false),
            ("config/crd/bases/x.yaml", false),
        ] {
            assert_eq!(is_source(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn samples_are_files_of_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        let samples = dir.path().join("config/samples");
        std::fs::create_dir_all(&samples).unwrap();
        let file = |name: &str| {
            std::fs::write(samples.join(name), "").unwrap();
            samples.join(name)
        };
        let gone = ["gone.yaml", "directory", "gone.yaml~"].map(|name| samples.join(name));
        let [mut paths, gone] = [vec![file("a.yaml"), file("kustomization.yaml"), file("b.yaml.tmp")], gone.to_vec()];
        paths.extend(gone.clone());
        let mut saved = Saved::default();
        Places { root: dir.path().to_owned(), samples: samples.clone() }.classify(&paths, &mut saved);
        let expected = Saved { sources: Vec::new(), samples: vec![samples.join("a.yaml")], gone: gone[..2].to_vec() };
        assert_eq!(saved, expected);
    }

    async fn next(sources: &mut Sources) -> Saved {
        let next = tokio::time::timeout(Duration::from_secs(60), sources.next());
        next.await.expect("something is reported").unwrap()
    }

    /// Waits until these files are reported, in any order and together with any others.
    async fn reported(sources: &mut Sources, mut wanted: Vec<&str>) {
        while !wanted.is_empty() {
            let saved = next(sources).await;
            let samples = saved.samples.iter().map(|path| path.display().to_string());
            let all: Vec<String> = saved.sources.into_iter().chain(samples).collect();
            wanted.retain(|name| !all.iter().any(|path| path.ends_with(name)));
        }
    }

    #[tokio::test]
    async fn files_of_new_directories_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        write("src/lib.rs");
        let mut sources = Sources::watch(&root, &root.join("config/samples")).unwrap();
        // At once with its directories, of which the first is at the top.
        write("api/src/v1/hen.rs");
        write("target/debug/build.rs");
        write("src/controller/hen/egg.rs");
        write("config/samples/more/hen.yaml");
        reported(&mut sources, vec!["api/src/v1/hen.rs", "src/controller/hen/egg.rs", "more/hen.yaml"]).await;
        // From now on they are watched.
        write("api/src/lib.rs");
        reported(&mut sources, vec!["api/src/lib.rs"]).await;
        write("api/src/v2/hen.rs");
        reported(&mut sources, vec!["api/src/v2/hen.rs"]).await;
        // A directory that comes back is another one.
        std::fs::remove_dir_all(root.join("api")).unwrap();
        write("api/build.rs");
        reported(&mut sources, vec!["api/build.rs"]).await;
        write("api/src/new.rs");
        reported(&mut sources, vec!["api/src/new.rs"]).await;

        std::fs::remove_dir_all(root.join("config/samples/more")).unwrap();
        loop {
            let gone = next(&mut sources).await.gone;
            if gone.iter().any(|path| path.ends_with("config/samples/more/hen.yaml")) {
                break;
            }
        }
    }
}
