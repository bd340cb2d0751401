//! Where the files of a kustomization come from, and paths between them.

use std::path::{Path, PathBuf};

use super::KustomizeError;
use crate::tree::Tree;

/// A tree of files.
pub trait Files {
    /// The content of a file; `None` if there is no file of that path. Paths are relative and separated by `/`.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>>;
}

impl Files for Tree {
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.get(path).map(|text| text.as_bytes().to_vec()))
    }
}

/// The files below a directory of this machine.
#[derive(Debug, Clone)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// The files below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Files for Directory {
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        let path = self.root.join(path);
        if path.is_dir() {
            return Ok(None);
        }
        match std::fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The text of a file, without the mark at its beginning that some editors write.
pub(super) fn text(files: &dyn Files, path: &str) -> Result<Option<String>, KustomizeError> {
    let read = files.read(path).map_err(|source| KustomizeError::Read { path: path.to_owned(), source })?;
    let Some(bytes) = read else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| KustomizeError::invalid(path, "is not UTF-8"))?;
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)))
}

/// The path that `relative` leads to from a directory; `None` if that is outside of the tree.
pub(super) fn join(directory: &str, relative: &str) -> Option<String> {
    if Path::new(relative).is_absolute() {
        return None;
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a file is in a directory or below it. As in kustomize, a kustomization uses no other files.
pub(super) fn is_below(directory: &str, path: &str) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn outside(file: &str, path: &str) -> KustomizeError {
    KustomizeError::invalid(file, format!("{path} is not below the directory of this file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_the_tree() {
        assert_eq!(join("config/default", "../crd").as_deref(), Some("config/crd"));
        assert_eq!(join("config", "./a/../b.yaml").as_deref(), Some("config/b.yaml"));
        assert_eq!(join("config", "..").as_deref(), Some(""));
        assert_eq!(join("config", "../.."), None);
        assert_eq!(join("config", "/etc"), None);
        assert!(is_below("config", "config/a") && is_below("", "a") && !is_below("config", "configuration/a"));
    }
}
