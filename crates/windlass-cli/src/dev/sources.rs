//! Which files of a project change.
//!
//! Directories that hold no sources, above all `target`, are not watched: cargo changes thousands of files there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// What changed at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Saved {
    /// Relative to the project.
    pub sources: Vec<String>,
    pub samples: Vec<PathBuf>,
}

/// Directories at the top of a project that no source is in.
const NO_SOURCES: [&str; 6] = ["target", "tests", "docs", "dist", "bundle", "node_modules"];

/// Watches until it is dropped.
pub(super) struct Sources {
    _watcher: notify::RecommendedWatcher,
}

impl Sources {
    pub(super) fn watch(root: &Path, samples: &Path, saved: mpsc::Sender<Saved>) -> Result<Self> {
        // Names come back as they were given.
        let root = root.canonicalize().with_context(|| format!("cannot read {}", root.display()))?;
        let samples = samples.canonicalize().unwrap_or_else(|_| samples.to_owned());
        let (base, own_samples) = (root.clone(), samples.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            if matches!(event.kind, EventKind::Access(_) | EventKind::Other) {
                return;
            }
            let found = classify(&event.paths, &base, &own_samples);
            if found != Saved::default() {
                // On a thread of the watcher's own, which waits while nobody reads.
                let _ = saved.blocking_send(found);
            }
        })
        .context("cannot watch files")?;
        let mut watch =
            |path: &Path, mode| watcher.watch(path, mode).with_context(|| format!("cannot watch {}", path.display()));
        watch(&root, RecursiveMode::NonRecursive)?;
        for entry in std::fs::read_dir(&root)?.flatten() {
            if entry.path().is_dir() && has_sources(&entry.file_name()) {
                watch(&entry.path(), RecursiveMode::Recursive)?;
            }
        }
        if !samples.starts_with(&root) && samples.exists() {
            watch(&samples, RecursiveMode::Recursive)?;
        }
        Ok(Self { _watcher: watcher })
    }
}

fn has_sources(directory: &OsStr) -> bool {
    let name = directory.to_string_lossy();
    !name.starts_with('.') && !NO_SOURCES.contains(&&*name)
}

fn classify(paths: &[PathBuf], root: &Path, samples: &Path) -> Saved {
    let mut saved = Saved::default();
    for path in paths {
        if path.starts_with(samples) {
            let manifest =
                path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|e| extension == *e));
            let kustomization = path.file_stem().is_some_and(|stem| stem == "kustomization");
            if manifest && !kustomization && path.is_file() {
                saved.samples.push(path.clone());
            }
            continue;
        }
        let Ok(relative) = path.strip_prefix(root) else { continue };
        if is_source(relative) && !path.is_dir() {
            saved.sources.push(relative.display().to_string());
        }
    }
    saved
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
        let paths = [file("a.yaml"), file("kustomization.yaml"), file("b.yaml.tmp"), samples.join("gone.yaml")];
        let saved = classify(&paths, dir.path(), &samples);
        assert_eq!(saved, Saved { sources: Vec::new(), samples: vec![samples.join("a.yaml")] });
    }
}
