//! Completion, manual pages, the version, and lists in every format.

use std::collections::BTreeSet;

use crate::windlass::Sandbox;

#[test]
fn every_shell_gets_a_script_with_all_commands() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = sandbox.succeeds(&format!("completion {shell}"));
        for command in ["kubeconfig", "manifests", "completion"] {
            assert!(script.contains(command), "{command} is not in the script for {shell}");
        }
        // What `--help` does not show.
        for hidden in ["guard", "watched", "skip-go-version-check"] {
            assert!(!script.contains(hidden), "{hidden} is in the script for {shell}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::new();
    assert!(sandbox.succeeds("man").contains(".TH windlass 1"));
    sandbox.succeeds("man --output pages");
    let pages = std::fs::read_dir(sandbox.path("pages")).unwrap();
    let pages: BTreeSet<String> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["windlass.1", "windlass-up.1", "windlass-create.1", "windlass-create-api.1"] {
        assert!(pages.contains(page), "{page} is not among {pages:?}");
    }
}

#[test]
fn the_version_is_told_in_every_format() {
    let sandbox = Sandbox::new();
    let text = sandbox.succeeds("version");
    assert!(text.starts_with("windlass ") && text.contains("Kubernetes v1."), "{text}");
    let json: serde_json::Value = serde_json::from_str(&sandbox.succeeds("version -o json")).unwrap();
    assert!(json["version"].is_string() && json["kubernetesVersion"].is_string(), "{json}");
    let yaml = sandbox.succeeds("version -o yaml");
    assert!(yaml.contains("kubernetesVersion: v1."), "{yaml}");
}

#[test]
fn lists_are_printed_in_every_format() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.succeeds("list -o yaml"), "[]\n");
    assert_eq!(sandbox.succeeds("list -o text"), sandbox.succeeds("list -o table"));
    let said = sandbox.windlass("status -o yaml");
    assert!(!said.status.success());
    assert_eq!(said.stdout, "name: default\nrunning: false\n");
}
