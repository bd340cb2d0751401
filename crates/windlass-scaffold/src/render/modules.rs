//! The files that only list modules.

use std::collections::BTreeMap;

use crate::tree::Tree;

/// Adds a file with `pub mod` lines for every module above the leaves, except for those at the top, which have more
/// in them. `leaves` are paths below `root`, such as `["v1", "guestbook"]`; `docs` says what a module is for.
pub(super) fn add(
    tree: &mut Tree,
    root: &str,
    header: &str,
    leaves: &[Vec<String>],
    docs: impl Fn(&[String]) -> String,
) {
    let mut children: BTreeMap<&[String], Vec<&str>> = BTreeMap::new();
    for leaf in leaves {
        for depth in 1..leaf.len() {
            let known = children.entry(&leaf[..depth]).or_default();
            if !known.contains(&leaf[depth].as_str()) {
                known.push(&leaf[depth]);
            }
        }
    }
    for (path, names) in children {
        let parent = path.last().map_or("", String::as_str);
        let lines: String = sorted(names).into_iter().map(|name| declaration(parent, name)).collect();
        tree.add_once(format!("{root}/{}.rs", path.join("/")), format!("{header}//! {}\n\n{lines}", docs(path)));
    }
}

/// The line of a module. A kind may have the name of its group.
fn declaration(parent: &str, name: &str) -> String {
    let allowed = if parent == name { "#[allow(clippy::module_inception)]\n" } else { "" };
    format!("{allowed}pub mod {name};\n")
}

/// The modules directly below the root.
pub(super) fn top(leaves: &[Vec<String>]) -> Vec<&str> {
    let mut names: Vec<&str> = leaves.iter().filter_map(|leaf| leaf.first().map(String::as_str)).collect();
    names.dedup();
    sorted(names)
}

/// In the order of rustfmt, each once.
fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_may_have_the_name_of_its_parent() {
        assert_eq!(declaration("cat", "cat"), "#[allow(clippy::module_inception)]\npub mod cat;\n");
        assert_eq!(declaration("cat", "dog"), "pub mod dog;\n");
    }
}
