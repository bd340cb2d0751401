//! Merges a change of the scaffold into a file that the user has changed too.
//!
//! Rust files are merged by what they mean: items and statements that the scaffold adds are put beside the
//! neighbours that they have in the generated file, and those that it takes away are found by their tokens,
//! however the user has formatted or moved them ([`rust`]). All other files, and Rust files that do not parse,
//! are merged line by line, and lists in YAML entry by entry where lines contradict each other ([`list`]).

mod list;
mod rust;
mod toml;

use std::path::Path;

/// The merged file; `None` if the changes contradict each other.
pub(crate) fn merge(path: &str, base: &str, target: &str, disk: &str) -> Option<String> {
    if Path::new(path).extension().is_none_or(|extension| extension != "rs") {
        return merge_lines(path, base, target, disk).ok();
    }
    // Comments have no meaning in Rust, but those at the top name the license.
    let [(base_head, base), (target_head, target), (disk_head, disk)] = [base, target, disk].map(split_head);
    let head = merge_heads(base_head, target_head, disk_head);
    let rest = if base == target {
        disk.to_owned()
    } else if let Some(result) = rust::merge(base, target, disk) {
        result.ok()?
    } else {
        diffy::merge(base, disk, target).ok()?
    };
    Some(head + &rest)
}

/// Merges lines; in YAML, entries of lists where lines contradict each other.
fn merge_lines(path: &str, base: &str, target: &str, disk: &str) -> Result<String, String> {
    let is_yaml = Path::new(path).extension().is_some_and(|extension| extension == "yaml");
    diffy::merge(base, disk, target).or_else(|marked| {
        let merged = if is_yaml { list::merge(base, target, disk) } else { None };
        merged.ok_or(marked)
    })
}

/// The comment at the top of a Rust file, before its documentation, and the rest.
fn split_head(text: &str) -> (&str, &str) {
    let is_comment = |line: &&str| {
        let is_doc = line.starts_with("///") || line.starts_with("//!");
        line.trim().is_empty() || (line.starts_with("//") && !is_doc)
    };
    let length = text.split_inclusive('\n').take_while(is_comment).map(str::len).sum();
    text.split_at(length)
}

/// Lines of the user's own stay, and all of them do if the generated ones are no longer there.
fn merge_heads(base: &str, target: &str, disk: &str) -> String {
    if base.is_empty() || base == disk {
        return format!("{target}{}", if base.is_empty() { disk } else { "" });
    }
    let generated: Vec<&str> = base.lines().filter(|line| !line.is_empty()).collect();
    if base == target || !generated.iter().all(|line| disk.lines().any(|other| other == *line)) {
        return disk.to_owned();
    }
    let mut new = Some(target.trim_end());
    let mut head = String::new();
    for line in disk.lines() {
        let line = if generated.contains(&line) { new.take().filter(|new| !new.is_empty()) } else { Some(line) };
        head.extend(line.into_iter().flat_map(|line| [line, "\n"]));
    }
    head
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
    let lines = merge_lines(path, base, target, disk);
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
