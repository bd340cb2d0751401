//! Merges YAML files whose lists the scaffold and the user have both changed, such as the `resources` of a kustomization.
//!
//! Lines that contradict each other to a merge by lines, because both sides have changed the end of one list, do not if all
//! that the scaffold adds and takes away are entries of one line: an entry is added behind the entry that it has in front of
//! it in the generated file, and the user's own stay where they are.

use std::collections::HashSet;

/// The merged file; `None` if the scaffold changes anything but entries of one line, or has no place for one.
pub(super) fn merge(base: &str, target: &str, disk: &str) -> Option<String> {
    let [old, new] = [base, target].map(|text| text.lines().collect::<Vec<_>>());
    let gone = entries_without(&old, &new)?;
    let added = entries_without(&new, &old)?;
    let rest = |lines: &[&str], without: &HashSet<&str>| -> Vec<String> {
        lines.iter().filter(|line| !without.contains(line.trim())).map(|line| (*line).to_owned()).collect()
    };
    if rest(&old, &gone) != rest(&new, &added) {
        return None;
    }
    let mut lines: Vec<String> = disk.lines().filter(|line| !gone.contains(line.trim())).map(str::to_owned).collect();
    for (at, entry) in new.iter().enumerate().filter(|(_, line)| added.contains(line.trim())) {
        if place(&lines, entry).is_some() {
            continue;
        }
        // What begins the list is in front of its first entry.
        let (above, before) = new[..at].iter().rev().find_map(|line| Some((*line, place(&lines, line)?)))?;
        let is_entry = above.trim_start().starts_with("- ");
        let next = lines.get(before + 1).filter(|line| !is_entry && line.trim_start().starts_with("- "));
        let neighbour = if is_entry { Some(&lines[before]) } else { next };
        let indent = neighbour.map_or_else(|| indent(entry), |line| indent(line)).to_owned();
        lines.insert(before + 1, format!("{indent}{}", entry.trim()));
    }
    let mut text = lines.join("\n");
    if disk.ends_with('\n') {
        text.push('\n');
    }
    Some(text)
}

/// The lines that `other` does not have, if each is an entry that is there once.
fn entries_without<'a>(lines: &[&'a str], other: &[&str]) -> Option<HashSet<&'a str>> {
    let mut found = HashSet::new();
    for line in lines.iter().map(|line| line.trim()) {
        if other.iter().any(|other| other.trim() == line) {
            continue;
        }
        // An entry with fields goes on in the next line.
        let is_whole = line.strip_prefix("- ").is_some_and(|value| !value.contains(": ") && !value.ends_with(':'));
        if !is_whole || !found.insert(line) {
            return None;
        }
    }
    Some(found)
}

/// Where a line is, if it is there once.
fn place(lines: &[String], wanted: &str) -> Option<usize> {
    let mut places = (0..lines.len()).filter(|at| !wanted.trim().is_empty() && lines[*at].trim() == wanted.trim());
    places.next().filter(|_| places.next().is_none())
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "resources:\n  - role.yaml\n  - cat.yaml\n\nnamePrefix: zoo-\n";
    const TWO: &str = "resources:\n  - role.yaml\n  - cat.yaml\n  - dog.yaml\n  - emu.yaml\n\nnamePrefix: zoo-\n";

    #[test]
    fn entries_of_both_are_kept() {
        for (mine, merged) in [
            ("  - cat.yaml\n  - mine.yaml\n", "  - cat.yaml\n  - dog.yaml\n  - emu.yaml\n  - mine.yaml\n"),
            ("  - mine.yaml\n  - cat.yaml\n", "  - mine.yaml\n  - cat.yaml\n  - dog.yaml\n  - emu.yaml\n"),
            ("  - cat.yaml # the cat\n", "  - dog.yaml\n  - emu.yaml\n  - cat.yaml # the cat\n"),
            ("", "  - dog.yaml\n  - emu.yaml\n"),
        ] {
            let (before, after) = (ONE.replace("  - cat.yaml\n", mine), ONE.replace("  - cat.yaml\n", merged));
            assert_eq!(merge(ONE, TWO, &before).as_ref(), Some(&after));
            assert_eq!(merge(TWO, ONE, &after).as_ref(), Some(&before));
        }
    }

    #[test]
    fn entries_are_indented_as_the_users() {
        let flat = |text: &str| text.replace("  - ", "- ");
        let mine = |text: &str| flat(text).replace("\n\n", "\n- mine.yaml\n\n");
        assert_eq!(merge(ONE, TWO, &mine(ONE)), Some(mine(TWO)));
        let first = "resources:\n  - mine.yaml\n\nnamePrefix: zoo-\n";
        let merged = merge(&ONE.replace("  - role.yaml\n  - cat.yaml\n", ""), ONE, &flat(first)).unwrap();
        assert_eq!(merged, "resources:\n- role.yaml\n- cat.yaml\n- mine.yaml\n\nnamePrefix: zoo-\n");
    }

    #[test]
    fn anything_else_is_left_to_the_user() {
        for target in [
            TWO.replace("zoo-", "park-"),
            TWO.replace("  - emu.yaml\n", "  - path: emu.yaml\n    target: x\n"),
            TWO.replace("  - emu.yaml\n", "  - dog.yaml\n"),
            TWO.replace("  - role.yaml\n  - cat.yaml\n", "  - cat.yaml\n  - role.yaml\n"),
        ] {
            assert_eq!(merge(ONE, &target, ONE), None, "{target}");
        }
        // There is no place for the entries.
        assert_eq!(merge(ONE, TWO, "namePrefix: zoo-\n"), None);
    }
}
