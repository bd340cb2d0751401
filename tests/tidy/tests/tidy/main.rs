//! The structure of the source: modules of a crate do not form cycles, crates depend on each other in one direction, and
//! no crate is too large to be understood and compiled as a whole. The map in ARCHITECTURE.md names every module, and names
//! of tests are short.
//!
//! Sources are read as text. What a module uses are the paths in it that start with `crate::`, `super::` or `self::`, in
//! `use` declarations and elsewhere; a name that the root re-exports leads to its module, and tests do not count. Only the top-level modules of a crate are compared: what is below
//! one of them is one unit.
#![allow(clippy::unwrap_used)]

mod cycles;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines that the sources of a crate may have.
const LARGEST_CRATE: usize = 40_000;

/// Which crates of the API server a crate of it may use.
const LAYERS: &[(&str, &[&str])] = &[
    ("windlass-store", &[]),
    ("windlass-cel", &[]),
    ("windlass-api", &["windlass-cel"]),
    ("windlass-kinds", &["windlass-api", "windlass-cel"]),
    ("windlass-server", &["windlass-api", "windlass-cel", "windlass-kinds", "windlass-store"]),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").canonicalize().unwrap()
}

/// The crates of the workspace, by name.
fn names() -> BTreeSet<String> {
    fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn modules_of_a_crate_form_no_cycle() {
    for name in names() {
        let found = module_cycles(&crates().join(&name).join("src"));
        assert!(found.is_empty(), "modules of {name} use each other in a circle: {found:#?}");
    }
}

/// The cycles of the modules below a directory, and what makes each of them.
fn module_cycles(directory: &Path) -> Vec<(BTreeSet<String>, String)> {
    let graph = source::graph(directory);
    let edges = |cycle: &BTreeSet<String>| {
        let edges = cycle.iter().flat_map(|from| graph[from].iter().map(move |to| (from, to)));
        let edges = edges.filter(|(_, to)| cycle.contains(*to)).map(|(from, to)| format!("{from} -> {to}"));
        edges.collect::<Vec<_>>().join(", ")
    };
    cycles::cycles(&graph).into_iter().map(|cycle| (cycle.clone(), edges(&cycle))).collect()
}

#[test]
fn a_planted_cycle_is_found() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted");
    let check = |name: &str, files: &[(&str, &str)], expected: &[&str]| {
        let directory = root.join(name);
        drop(fs::remove_dir_all(&directory));
        for (path, text) in files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found: Vec<String> = module_cycles(&directory).into_iter().map(|(_, edges)| edges).collect();
        assert_eq!(found, expected, "{name}");
    };
    let lib = ("lib.rs", "mod a;\nmod b;\npub use b::{Made, inner::Deep as Renamed};\n");
    check("no cycle", &[lib, ("a.rs", "use crate::b::Made;"), ("b.rs", "use std::fs;")], &[]);
    check(
        "direct",
        &[lib, ("a.rs", "use crate::b::Made;"), ("b/inner.rs", "fn f() { super::super::a::g() }")],
        &["a -> b, b -> a"],
    );
    check("through the root", &[lib, ("a.rs", "use crate::Renamed;"), ("b.rs", "use crate::a;")], &["a -> b, b -> a"]);
    let tests = ("b.rs", "pub struct Made;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n");
    check("only tests", &[lib, ("a.rs", "use crate::Made;"), tests], &[]);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn crates_of_the_server_depend_downwards() {
    for (name, allowed) in LAYERS {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let used = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        for used in used.filter(|used| used.starts_with("windlass")) {
            assert!(allowed.contains(&used), "{name} must not depend on {used}");
        }
    }
}

#[test]
fn no_crate_is_too_large() {
    for name in names() {
        let lines: usize =
            source::files(&crates().join(&name).join("src")).values().map(|text| text.lines().count()).sum();
        assert!(lines <= LARGEST_CRATE, "{name} has {lines} lines");
    }
}

/// Modules are named in the section of their crate. Commands are not: each is a file of its name.
#[test]
fn architecture_names_every_module() {
    let page = fs::read_to_string(crates().join("../ARCHITECTURE.md")).unwrap();
    let mut missing = Vec::new();
    for name in names() {
        let heading = format!("`crates/{name}`");
        let section = page.split("\n### ").find(|section| section.lines().next().unwrap().contains(&heading));
        let section = section.unwrap_or_else(|| panic!("ARCHITECTURE.md has no section about {name}"));
        let mentions = section.split('`').skip(1).step_by(2);
        let named: BTreeSet<&str> = mentions.filter_map(|mention| mention.split(['/', '.', ':']).next()).collect();
        for (module, text) in source::files(&crates().join(&name).join("src")) {
            let [module] = module.as_slice() else { continue };
            let is_command = text.starts_with("//! `windlass ");
            if !is_command && module != "tests" && !named.contains(module.as_str()) {
                missing.push(format!("{name}: {module}"));
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name these modules: {missing:#?}");
}

#[test]
fn names_of_tests_are_short() {
    for name in names() {
        for directory in ["src", "tests"].map(|part| crates().join(&name).join(part)) {
            let files = if directory.is_dir() { source::files(&directory) } else { BTreeMap::new() };
            for text in files.values() {
                let functions = text.split("fn ").skip(1).map(|after| after.split(['(', '<']).next().unwrap());
                let is_long = |function: &&str| {
                    !function.contains(' ') && (function.len() > 60 || function.split('_').count() > 10)
                };
                let long: Vec<&str> = functions.filter(is_long).collect();
                assert!(
                    long.is_empty(),
                    "names of more than 60 characters or 10 words in {}: {long:?}",
                    directory.display()
                );
            }
        }
    }
}
