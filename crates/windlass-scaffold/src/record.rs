//! What windlass has generated for a project, kept in the project as `.windlass/generated`.
//!
//! Another version of windlass generates other files. To merge its changes with the user's, it has to know what the
//! files were that the user has edited, and only the version that wrote them could generate those again. The record is
//! written in the same step as the files. It is text, so that version control can merge it: the path of a file on a line
//! of its own, then its lines, each behind a `|`.

use std::fmt::Write as _;
use std::path::Path;

use crate::line_ends;
use crate::merge;
use crate::tree::Tree;

/// Where the record is.
pub(crate) const FILE: &str = ".windlass/generated";
/// The record of the samples that were made of schemas.
pub(crate) const SAMPLES: &str = "samples";
const HEADER: &str =
    "# What windlass generated, for `windlass upgrade` to tell your changes from its own. Do not edit.\n";

pub(crate) fn to_text(tree: &Tree) -> String {
    let mut text = String::from(HEADER);
    for (path, content) in tree.iter() {
        let _ = writeln!(text, "{path}");
        for line in content.split_inclusive('\n') {
            text.push('|');
            text.push_str(line);
        }
        // A file without a last line end is the one that is followed by an empty line.
        if !content.is_empty() && !content.ends_with('\n') {
            text.push_str("\n\n");
        }
    }
    text
}

/// `None` if it is damaged.
pub(crate) fn parse(text: &str) -> Option<Tree> {
    let mut tree = Tree::default();
    let mut current: Option<(String, String)> = None;
    for line in text.split_inclusive('\n').filter(|line| !line.starts_with('#')) {
        if let Some(content) = line.strip_prefix('|') {
            current.as_mut()?.1.push_str(content);
        } else if line == "\n" {
            let content = &mut current.as_mut()?.1;
            content.truncate(content.trim_end_matches('\n').len());
        } else {
            let path = line.trim_end_matches('\n');
            // What a merge of version control left is no path.
            if path.starts_with(['<', '=', '>']) || path.contains("..") || path.starts_with('/') {
                return None;
            }
            if let Some((path, content)) = current.replace((path.to_owned(), String::new())) {
                tree.set(path, content);
            }
        }
    }
    if let Some((path, content)) = current {
        tree.set(path, content);
    }
    Some(tree)
}

/// The record of a project; `None` if there is none that can be used.
pub(crate) fn read(root: &Path) -> Option<Tree> {
    of_file(&root.join(FILE))
}

/// Where a record of this name is, of something else that is generated.
pub(crate) fn path(name: &str) -> String {
    format!(".windlass/{name}")
}

/// The record of this name; `None` if there is none that can be used.
pub(crate) fn named(root: &Path, name: &str) -> Option<Tree> {
    of_file(&root.join(path(name)))
}

fn of_file(file: &Path) -> Option<Tree> {
    parse(&line_ends::to_lf(std::fs::read_to_string(file).ok()?))
}

/// The record after a change from `base` to `target` in a project whose files another version may have generated: that
/// version's files with the same change.
pub(crate) fn follow(recorded: &Tree, base: &Tree, target: &Tree) -> Tree {
    let mut next = recorded.clone();
    let moves = base.moves(target);
    for path in base.paths().chain(target.paths()) {
        let old = moves.get(path).copied().unwrap_or(path);
        let (before, after) = (base.get(old), target.get(path));
        if before == after && old == path {
            continue;
        }
        match (after, recorded.get(old)) {
            (None, _) => next.remove(path),
            (Some(after), Some(known)) if before.is_some_and(|before| before != known) => {
                let merged = before.and_then(|before| merge::merge(path, before, after, known));
                next.set(path, merged.unwrap_or_else(|| after.to_owned()));
            }
            (Some(after), _) => next.set(path, after),
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut tree = Tree::default();
        for (path, content) in [("a", "one\n\n# two\n"), ("b/c", ""), ("d", "|no end"), ("e", "\n"), ("f", "# x\n")] {
            tree.add(path, content);
        }
        assert_eq!(parse(&to_text(&tree)), Some(tree));
    }

    #[test]
    fn a_record_with_conflicts_is_not_used() {
        assert_eq!(parse("a\n|one\n<<<<<<< ours\n|two\n"), None);
        assert_eq!(parse("../a\n|one\n"), None);
    }
}
