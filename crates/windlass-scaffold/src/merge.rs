//! Merges a change of the scaffold into a file that the user has changed too.
//!
//! Rust files are merged by what they mean: items and statements that the scaffold adds are put beside the
//! neighbours that they have in the generated file, and those that it takes away are found by their tokens,
//! however the user has formatted or moved them ([`rust`]). All other files, and Rust files that do not parse,
//! are merged line by line.

mod rust;

use std::path::Path;

/// The merged file; `None` if the changes contradict each other.
pub(crate) fn merge(path: &str, base: &str, target: &str, disk: &str) -> Option<String> {
    if Path::new(path).extension().is_some_and(|extension| extension == "rs")
        && let Some(result) = rust::merge(base, target, disk)
    {
        return result.ok();
    }
    diffy::merge(base, disk, target).ok()
}
