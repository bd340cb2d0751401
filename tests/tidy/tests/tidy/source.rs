//! Reads sources as text: which modules there are, and which others each of them names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::cycles::Graph;

/// The texts of the source files below a directory, by the path of their module.
pub(crate) fn files(directory: &Path) -> BTreeMap<Vec<String>, String> {
    let mut found = BTreeMap::new();
    collect(directory, &[], &mut found);
    found
}

fn collect(directory: &Path, above: &[String], found: &mut BTreeMap<Vec<String>, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut module = above.to_vec();
        if path.is_dir() {
            module.push(name);
            collect(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !(above.is_empty() && matches!(name.as_str(), "lib" | "main")) && name != "mod" {
                module.push(name);
            }
            found.entry(module).or_default().push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Which top-level modules of a crate use which others.
pub(crate) fn graph(directory: &Path) -> Graph {
    let files: BTreeMap<Vec<String>, String> =
        files(directory).into_iter().map(|(module, text)| (module, without_comments(&text))).collect();
    let tests: BTreeSet<Vec<String>> = files
        .iter()
        .flat_map(|(module, text)| test_modules(text).map(move |name| [module.as_slice(), &[name.to_owned()]].concat()))
        .collect();
    let tops: BTreeSet<&String> = files.keys().filter_map(|module| module.first()).collect();
    let mut graph: Graph = tops.iter().map(|top| ((*top).clone(), BTreeSet::new())).collect();
    let exports = files.get(&Vec::new()).map(|root| root_exports(root, &tops)).unwrap_or_default();
    for (module, text) in &files {
        // What the root uses is no edge: it declares everything.
        let Some(top) = module.first() else { continue };
        if tests.iter().any(|test| module.starts_with(test)) {
            continue;
        }
        let used = paths(without_inline_tests(text)).into_iter().filter_map(|path| top_of(&path, module));
        let used = used.filter_map(|used| if tops.contains(&used) { Some(used) } else { exports.get(&used).cloned() });
        let used = used.filter(|used| used != top);
        graph.get_mut(top).unwrap().extend(used);
    }
    graph
}

/// What the root of a crate imports from its modules, by name: any module can say `crate::Name` for it.
fn root_exports(root: &str, tops: &BTreeSet<&String>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in root.split(';') {
        let Some((before, tree)) = statement.rsplit_once("use ") else { continue };
        if !(before.is_empty() || before.ends_with(char::is_whitespace)) {
            continue;
        }
        let mut paths = Vec::new();
        spell_out("", tree.trim(), &mut paths);
        for path in paths {
            let path = path.trim_start_matches("crate::").trim_start_matches("self::");
            let (path, renamed) = path.split_once(" as ").map_or((path, None), |(path, name)| (path, Some(name)));
            let mut parts = path.split("::").map(str::trim);
            let (Some(top), Some(last)) = (parts.next(), parts.last()) else { continue };
            if tops.contains(&top.to_owned()) {
                found.insert(renamed.unwrap_or(last).trim().to_owned(), top.to_owned());
            }
        }
    }
    found
}

/// The names of modules that are compiled for tests only and have files of their own.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]").skip(1).filter_map(|after| {
        let after = after.trim_start();
        let after = after.strip_prefix("pub(crate) ").unwrap_or(after).strip_prefix("mod ")?;
        after.split_once(';').map(|(name, _)| name).filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
    })
}

/// The text before the tests, which come last in a file.
fn without_inline_tests(text: &str) -> &str {
    let is_inline = |at: &usize| {
        let after = text[*at..].trim_start_matches("#[cfg(test)]").trim_start();
        let module = after.strip_prefix("pub(crate) ").unwrap_or(after).strip_prefix("mod ");
        module.is_some_and(|module| module.find('{').is_some_and(|brace| !module[..brace].contains(';')))
    };
    let end = text.match_indices("#[cfg(test)]").map(|(at, _)| at).find(is_inline);
    &text[..end.unwrap_or(text.len())]
}

/// Comments take no part. A line that begins as one inside a string is none that names a module either.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find("//") {
        Some(at) if !line[..at].contains('"') => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// All paths in a text that start with `crate`, `super` or `self`, with those in the braces of `use` spelled out.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = ["crate::", "super::", "self::"].iter().filter_map(|start| rest.find(start)).min() {
        let is_whole = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let length = path_length(&rest[at..]);
        if is_whole {
            spell_out("", &rest[at..at + length], &mut found);
        }
        rest = &rest[at + length..];
    }
    found
}

/// How long a path is, a group in braces at its end included.
fn path_length(text: &str) -> usize {
    let plain = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    if !(text[..plain].ends_with("::") && text[plain..].starts_with('{')) {
        return plain;
    }
    let mut depth = 0;
    for (at, c) in text[plain..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return plain + at + 1;
        }
    }
    text.len()
}

fn spell_out(prefix: &str, path: &str, found: &mut Vec<String>) {
    let Some((before, group)) = path.split_once('{') else {
        found.push(format!("{prefix}{}", path.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", before.trim());
    let group = group.strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    for item in group.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    }) {
        if !item.trim().is_empty() {
            spell_out(&prefix, item.trim(), found);
        }
    }
}

/// The top-level module that a path leads to, seen from a module.
fn top_of(path: &str, module: &[String]) -> Option<String> {
    let mut at = module.to_vec();
    let path = path.split(" as ").next().unwrap_or(path);
    for part in path.split("::") {
        match part {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => at.push(name.to_owned()),
        }
    }
    at.into_iter().next()
}

#[test]
fn paths_are_spelled_out() {
    let found = paths(
        "use crate::a::{self, b::{C, D as E}};\nfn f() { super::g::h(); self::i::<crate::j::K>() } mycrate::x::y",
    );
    let expected =
        ["crate::a::self", "crate::a::b::C", "crate::a::b::D as E", "super::g::h", "self::i::", "crate::j::K"];
    assert_eq!(found, expected);
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(top_of("super::g::h", &module("a::b")).as_deref(), Some("a"));
    assert_eq!(top_of("super::g::h", &module("a")).as_deref(), Some("g"));
    assert_eq!(top_of("crate::j::K", &module("a::b")).as_deref(), Some("j"));
}

#[test]
fn root_exports_lead_to_their_modules() {
    let root = "mod a;\nmod b;\npub use a::{A, deep::{B, C as D}};\npub(crate) use self::b::E as F;\nuse std::fs;\n";
    let (a, b) = ("a".to_owned(), "b".to_owned());
    let found = root_exports(root, &BTreeSet::from([&a, &b]));
    let found: Vec<(&str, &str)> = found.iter().map(|(name, module)| (name.as_str(), module.as_str())).collect();
    assert_eq!(found, [("A", "a"), ("B", "a"), ("D", "a"), ("F", "b")]);
}

#[test]
fn tests_and_comments_take_no_part() {
    let text = "use crate::a::B;\n// crate::c::D\n#[cfg(test)]\nuse crate::e::F;\n#[cfg(test)]\nmod tests {\n    use crate::g::H;\n}\n";
    let text = without_comments(text);
    assert_eq!(paths(without_inline_tests(&text)), ["crate::a::B", "crate::e::F"]);
    assert_eq!(test_modules("#[cfg(test)]\nmod tests;\n#[cfg(test)] mod inline { }").collect::<Vec<_>>(), ["tests"]);
}
