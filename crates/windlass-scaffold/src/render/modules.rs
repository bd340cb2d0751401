//! The files that only list modules.

use std::cmp::Ordering;
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

/// The order of imports, in which rustfmt counts: `v2` comes before `v10`, and `_` before digits and letters.
pub(super) fn import_order(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (left, right) = (digits(one), digits(other));
        if left > 0 && right > 0 {
            let number = |text: &str| text.parse::<u128>().unwrap_or(u128::MAX);
            match number(&one[..left]).cmp(&number(&other[..right])) {
                Ordering::Equal => (one, other) = (&one[left..], &other[right..]),
                unequal => return unequal,
            }
            continue;
        }
        let key = |text: &str| text.chars().next().map(|c| if c == '_' { '\0' } else { c });
        match key(one).cmp(&key(other)) {
            Ordering::Equal if one.is_empty() => return Ordering::Equal,
            // Names of modules are ASCII.
            Ordering::Equal => (one, other) = (&one[1..], &other[1..]),
            unequal => return unequal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_ordered_by_their_numbers() {
        let mut names = ["foobaz", "v10", "foo10", "foo_bar", "foo2", "v2", "foo", "v2beta1"];
        names.sort_by(|one, other| import_order(one, other));
        assert_eq!(names, ["foo", "foo_bar", "foo2", "foo10", "foobaz", "v2", "v2beta1", "v10"]);
    }

    #[test]
    fn a_module_may_have_the_name_of_its_parent() {
        assert_eq!(declaration("cat", "cat"), "#[allow(clippy::module_inception)]\npub mod cat;\n");
        assert_eq!(declaration("cat", "dog"), "pub mod dog;\n");
    }
}
