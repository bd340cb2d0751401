//! Kustomizations are rendered as kustomize renders them.
//!
//! `tests/kustomize/CASE/expected.yaml` is what `kustomize build CASE/default` (v5) printed. Where a kustomize of that
//! major version is installed, it is asked again.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use windlass_scaffold::Tree;
use windlass_scaffold::kustomize::{self, KustomizeError};

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kustomize");
    let mut cases: Vec<PathBuf> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort_unstable();
    cases
}

fn documents(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options).unwrap()
}

/// Compares object by object, and shows the first that differs.
fn assert_same(own: &[Value], expected: &[Value], of: &Path) {
    let names = |objects: &[Value]| -> Vec<String> {
        objects.iter().map(|object| format!("{} {}", object["kind"], object["metadata"]["name"])).collect()
    };
    assert_eq!(names(own), names(expected), "{}", of.display());
    for (own, expected) in own.iter().zip(expected) {
        let text = |object: &Value| serde_json::to_string_pretty(object).unwrap();
        assert!(own == expected, "{}\n{}", of.display(), diffy::create_patch(&text(expected), &text(own)));
    }
}

#[test]
fn objects_are_those_that_kustomize_makes() {
    for case in cases() {
        let expected = std::fs::read_to_string(case.join("expected.yaml")).unwrap();
        let objects = kustomize::build(&case, "default").unwrap();
        assert_same(&objects, &documents(&expected), &case);
        // What is printed is read again as the same.
        assert_same(&documents(&kustomize::to_yaml(&objects)), &objects, &case);
    }
}

/// The command that renders a directory, if there is one of version 5.
fn installed() -> Option<Vec<String>> {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let kustomize = std::env::var("KUSTOMIZE").unwrap_or_else(|_| "kustomize".to_owned());
    if said(&kustomize, &["version"]).is_some_and(|version| version.contains("v5.")) {
        return Some(vec![kustomize, "build".to_owned()]);
    }
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let version = said(&kubectl, &["version", "--client"])?;
    version.contains("Kustomize Version: v5.").then(|| vec![kubectl, "kustomize".to_owned()])
}

#[test]
fn the_installed_kustomize_makes_the_same() {
    let Some(command) = installed() else {
        eprintln!("SKIPPED: neither kustomize v5 nor a kubectl with it is installed");
        return;
    };
    let mut directories: Vec<(PathBuf, &str)> = cases().into_iter().map(|case| (case, "default")).collect();
    let scratch = tempfile::tempdir().unwrap();
    for (name, project) in crate::projects() {
        let root = scratch.path().join(name);
        crate::written(&project, &root);
        for overlay in ["config/default", "config/crd", "config/samples", "config/network-policy", "config/prometheus"]
        {
            if root.join(overlay).exists() {
                directories.push((root.clone(), overlay));
            }
        }
        // What is written for those who want it.
        let all = scratch.path().join(format!("{name}-all"));
        crate::written(&project, &all);
        let default = std::fs::read_to_string(all.join("config/default/kustomization.yaml")).unwrap();
        std::fs::write(all.join("config/default/kustomization.yaml"), default.replace("# - ../", "- ../")).unwrap();
        directories.push((all, "config/default"));
    }
    for (root, directory) in directories {
        let output = Command::new(&command[0]).arg(&command[1]).arg(root.join(directory)).output().unwrap();
        assert!(output.status.success(), "{}: {}", root.display(), String::from_utf8_lossy(&output.stderr));
        let expected = documents(&String::from_utf8(output.stdout).unwrap());
        assert_same(&kustomize::build(&root, directory).unwrap(), &expected, &root.join(directory));
    }
}

fn error_of(kustomization: &str) -> KustomizeError {
    let mut tree = Tree::default();
    tree.add("a/kustomization.yaml", kustomization);
    tree.add("a/secret.txt", "x");
    kustomize::build_files(&tree, "a").unwrap_err()
}

#[test]
fn fields_that_are_not_rendered_are_named() {
    for (kustomization, expected) in [
        (
            "vars: [{name: A}]",
            "a/kustomization.yaml: the field `vars` is not supported by windlass: render it with `kubectl kustomize`",
        ),
        ("helmCharts: [{name: a}]", "the field `helmCharts` is not supported"),
        ("resources: ['https://example.com/a.yaml']", "https://example.com/a.yaml` is not supported"),
        ("resources: [b.yaml]", "a/kustomization.yaml: there is no a/b.yaml"),
        ("resources: [../../b]", "outside of the project"),
        ("resources: [.]", "in a circle"),
        ("labels: [{pair: {a: b}}]", "a/kustomization.yaml: the field `labels`: unknown field `pair`"),
        ("replicas: [{name: a, count: 1}]", "`replicas` names a, which is not there"),
        ("configMapGenerator: [{name: a, files: [../b]}]", "../b is not below the directory"),
        ("patches: [{patch: '[]'}]", "a JSON patch needs a target"),
    ] {
        let error = error_of(kustomization).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
