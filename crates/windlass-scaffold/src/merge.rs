//! Merges a change of the scaffold into a file that the user has changed too.
//!
//! Rust files are merged by what they mean: items and statements that the scaffold adds are put beside the
//! neighbours that they have in the generated file, and those that it takes away are found by their tokens,
//! however the user has formatted or moved them ([`rust`]). All other files, and Rust files that do not parse,
//! are merged line by line.

mod rust;
mod toml;

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

/// Merges what a newer version of the scaffold changes, which may be any line of a file. Fails with the merged file in
/// which both versions of each contradiction stand, between the markers of git.
///
/// Lines come first: a newer version changes texts and comments too, which have no meaning in Rust. Items are compared
/// where lines contradict each other, and only if the user has left those alone that change.
pub(crate) fn merge_versions(path: &str, base: &str, target: &str, disk: &str) -> Result<String, String> {
    let extension = Path::new(path).extension().and_then(std::ffi::OsStr::to_str);
    if extension == Some("toml")
        && let Some(merged) = toml::merge(base, target, disk)
    {
        return Ok(merged);
    }
    let lines = diffy::merge(base, disk, target);
    if extension != Some("rs") {
        return lines;
    }
    match lines {
        Ok(merged) if syn::parse_file(&merged).is_ok() || syn::parse_file(disk).is_err() => Ok(merged),
        lines => match rust::merge_untouched(base, target, disk) {
            Some(Ok(merged)) => Ok(merged),
            // Lines that merge into something that is not Rust are a contradiction too: all of the file is.
            _ => lines.map_or_else(Err, |_| Err(whole_file(disk, target))),
        },
    }
}

fn whole_file(disk: &str, target: &str) -> String {
    format!("<<<<<<< ours\n{disk}=======\n{target}>>>>>>> theirs\n")
}
