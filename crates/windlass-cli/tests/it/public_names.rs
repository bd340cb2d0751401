//! No two public types of the published crates have the same name, so that users can import them side by side.
//!
//! The lint `unreachable_pub` makes sure that a type marked `pub` is reachable; of the server, only the documented
//! modules count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PUBLISHED: [&str; 8] = [
    "windlass/src",
    "windlass-cluster/src",
    "windlass-testing/src",
    "windlass-store/src",
    "windlass-server/src/server.rs",
    "windlass-server/src/server",
    "windlass-server/src/authn.rs",
    "windlass-server/src/pki.rs",
];
/// Types of `kube` and `k8s-openapi` that nearly every operator imports.
const TAKEN: [&str; 6] = ["Api", "Client", "Condition", "Config", "Error", "Resource"];
/// Traits that only close others against implementations elsewhere; users cannot name them.
const UNNAMED: &str = "Sealed";

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_file() {
        found.push(path.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).unwrap() {
        sources(&entry.unwrap().path(), found);
    }
}

/// The name of the type that a line declares as public.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    rest.split(|letter: char| !letter.is_alphanumeric()).next().filter(|name| *name != UNNAMED)
}

#[test]
fn public_types_have_different_names() {
    let mut places: BTreeMap<String, Vec<String>> =
        TAKEN.iter().map(|name| ((*name).to_owned(), vec!["kube or k8s-openapi".to_owned()])).collect();
    for published in PUBLISHED {
        let mut files = Vec::new();
        sources(&Path::new(CRATES).join(published), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            for name in text.lines().filter_map(declared) {
                places.entry(name.to_owned()).or_default().push(file.display().to_string());
            }
        }
    }
    assert!(places.len() > 100, "types are found: {}", places.len());
    let twice: Vec<_> = places.into_iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
}
