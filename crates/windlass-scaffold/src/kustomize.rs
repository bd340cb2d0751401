//! Renders a kustomization: from `kustomization.yaml` and the files that it names to objects.
//!
//! This is the part of kustomize that operators' projects use, so that no other tool is needed to install one: the
//! result is the same, object by object and in the same order, as that of `kubectl kustomize`. A field that is not
//! implemented is an error that names it, never a field that is passed over.
//!
//! A directory is rendered in kustomize's order: resources (other directories first rendered by themselves), generated
//! ConfigMaps and Secrets, components, then the transformers of a layer. Names that other objects refer to change on
//! the way, and the references follow at the very end.

mod fields;
mod files;
mod generate;
mod image;
mod kustomization;
mod layer;
mod merge;
mod order;
mod patch;
mod references;
mod replace;
mod resource;
mod select;
mod transform;

use std::path::Path;

use serde_json::Value;

pub use files::{Directory, Files};

use layer::Build;

/// Why a kustomization cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KustomizeError {
    /// A field of kustomize that windlass does not render.
    #[error("{file}: the field `{field}` is not supported by windlass: render it with `kubectl kustomize`")]
    Unsupported {
        /// The file with the field.
        file: String,
        /// The field.
        field: String,
    },
    /// A file that says something impossible.
    #[error("{file}: {reason}")]
    Invalid {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that is named and does not exist.
    #[error("{file}: there is no {path}")]
    Missing {
        /// The file that names it.
        file: String,
        /// The path in the project.
        path: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path in the project.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl KustomizeError {
    fn invalid(file: &str, reason: impl Into<String>) -> Self {
        Self::Invalid { file: file.to_owned(), reason: reason.into() }
    }
}

/// Renders `directory`, a path below `root` such as `config/default`.
///
/// ```no_run
/// let objects = windlass_scaffold::kustomize::build(std::path::Path::new("."), "config/default")?;
/// # Ok::<(), windlass_scaffold::kustomize::KustomizeError>(())
/// ```
///
/// # Errors
/// If a file is missing, cannot be understood, or has a field that windlass does not render.
pub fn build(root: &Path, directory: &str) -> Result<Vec<Value>, KustomizeError> {
    build_files(&Directory::new(root), directory)
}

/// Renders a directory of a tree of files.
///
/// # Errors
/// Like [`build`].
pub fn build_files(files: &dyn Files, directory: &str) -> Result<Vec<Value>, KustomizeError> {
    Build::new(files).run(directory)
}

/// The objects as one YAML text, each a document.
pub fn to_yaml(objects: &[Value]) -> String {
    let mut text = String::new();
    for (number, object) in objects.iter().enumerate() {
        if number > 0 {
            text.push_str("---\n");
        }
        let document = serde_saphyr::to_string(object).expect("invariant: an object is a map with text as keys");
        text.push_str(document.trim_end());
        text.push('\n');
    }
    text
}
