//! `windlass doctor` in healthy and in broken places.

use serde_json::{Value, json};

use crate::windlass::{Cluster, Sandbox};

/// Whether nothing is broken, and the findings.
fn doctor(sandbox: &Sandbox, args: &str) -> (bool, Vec<Value>) {
    let mut command = sandbox.command(&format!("doctor -o json {args}"));
    // The tool chain is found in the real home.
    command.env("HOME", std::env::var_os("HOME").unwrap_or_default());
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), report["findings"].as_array().unwrap().clone())
}

#[track_caller]
fn find<'a>(findings: &'a [Value], check: &str, says: &str) -> &'a Value {
    let found = findings.iter().find(|finding| {
        finding["check"] == check && finding["message"].as_str().is_some_and(|message| message.contains(says))
    });
    found.unwrap_or_else(|| panic!("no finding of {check} says {says:?}: {findings:#?}"))
}

/// A program that says what an operator needs.
fn operator(sandbox: &Sandbox, manifests: &[Value]) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let file = sandbox.path("operator");
    let lines: Vec<String> =
        manifests.iter().map(|manifest| format!("echo '{manifest}' >> $WINDLASS_MANIFESTS")).collect();
    std::fs::write(&file, format!("#!/bin/sh\n{}\n", lines.join("\n"))).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

fn definition(field: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "hens.farm.my.domain"},
        "spec": {
            "group": "farm.my.domain", "scope": "Namespaced", "names": {"kind": "Hen", "plural": "hens"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[test]
fn findings_are_printed_in_every_format() {
    let sandbox = Sandbox::new();
    let yaml = sandbox.windlass("doctor -o yaml --kubeconfig none").stdout;
    assert!(yaml.contains("check: cluster") && yaml.contains("level: broken"), "{yaml}");
    assert_eq!(
        sandbox.windlass("doctor -o table --kubeconfig none").stdout,
        sandbox.windlass("doctor --kubeconfig none").stdout
    );
}

#[test]
fn a_healthy_place_has_nothing_broken() {
    let (sandbox, cluster) = (Sandbox::new(), Cluster::ephemeral());
    let (healthy, findings) = doctor(&sandbox, &format!("--kubeconfig {}", cluster.kubeconfig.display()));
    assert!(healthy, "{findings:#?}");
    find(&findings, "project", "there is none here");
    assert_eq!(find(&findings, "cluster", "runs Kubernetes v1.")["level"], "ok");
    assert_eq!(find(&findings, "permissions", "you may install")["level"], "ok");
}

#[test]
fn a_rustup_without_a_tool_chain_has_its_remedy() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    for name in ["rustc", "cargo"] {
        let file = sandbox.path("bin").join(name);
        let why =
            format!("error: rustup could not choose a version of {name} to run, because no default is configured.");
        std::fs::write(&file, format!("#!/bin/sh\necho '{why}' >&2\necho 'help: more' >&2\nexit 1\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = sandbox.command("doctor -o json --kubeconfig none");
    let output = command.env("PATH", sandbox.path("bin")).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    for name in ["rustc", "cargo"] {
        let said = format!("does not work: rustup could not choose a version of {name}");
        assert_eq!(find(findings, name, &said)["remedy"], "rustup default stable");
    }
    assert_eq!(find(findings, "rustfmt", "cargo does not work")["level"], "skipped");
    assert_eq!(find(findings, "kubectl", "not found")["level"], "warning");
}

#[test]
fn a_cluster_that_does_not_answer_is_broken() {
    let sandbox = Sandbox::new();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "gone",
        "clusters": [{"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": "me"}}],
        "users": [{"name": "me", "user": {}}],
    });
    std::fs::write(sandbox.user_kubeconfig(), config.to_string()).unwrap();
    let (healthy, findings) = doctor(&sandbox, "");
    assert!(!healthy);
    assert!(find(&findings, "cluster", "cannot be reached")["remedy"].as_str().unwrap().contains("windlass up"));
}

#[test]
fn drift_of_a_project_is_found() {
    let (sandbox, cluster) = (Sandbox::new(), Cluster::ephemeral());
    sandbox.succeeds("init --domain my.domain --name farm");
    let program = operator(&sandbox, &[definition("eggs")]);
    let target = format!("--kubeconfig {} --program {program}", cluster.kubeconfig.display());
    let (healthy, findings) = doctor(&sandbox, &target);
    assert!(!healthy, "config/ was never written: {findings:#?}");
    assert_eq!(find(&findings, "manifests", "config/")["remedy"], "windlass manifests --write");
    assert_eq!(find(&findings, "crd", "is not installed")["remedy"], "windlass install");

    sandbox.succeeds(&format!("install {target}"));
    let (_, findings) = doctor(&sandbox, &target);
    assert_eq!(find(&findings, "crd", "is what the code says")["level"], "ok");
    operator(&sandbox, &[definition("feathers")]);
    let (healthy, findings) = doctor(&sandbox, &target);
    assert!(!healthy);
    assert_eq!(find(&findings, "crd", "differs from what the code says")["level"], "broken");
}

#[test]
fn broken_webhooks_and_roles_are_found() {
    let (sandbox, cluster) = (Sandbox::new(), Cluster::ephemeral());
    sandbox.succeeds("init --domain my.domain --name farm");
    let rules = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    let role = |name: &str, verbs: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": rules(verbs),
        })
    };
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "farm"},
        "webhooks": [{
            "name": "hens.farm.my.domain", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:9/hens", "caBundle": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"},
            "rules": [{"apiGroups": ["farm.my.domain"], "apiVersions": ["v1"], "resources": ["hens"], "operations": ["CREATE"]}],
        }],
    });
    let there = json!({"apiVersion": "v1", "kind": "List", "items": [webhook, role("farm-manager-role", &["get"])]});
    std::fs::write(sandbox.path("there.json"), there.to_string()).unwrap();
    let target = format!("--kubeconfig {}", cluster.kubeconfig.display());
    sandbox.succeeds(&format!("apply -f there.json {target}"));
    let program = operator(&sandbox, &[role("farm", &["get", "watch"])]);
    let (healthy, findings) = doctor(&sandbox, &format!("{target} --program {program}"));
    assert!(!healthy);
    assert_eq!(find(&findings, "webhook", "nothing answers at https://127.0.0.1:9/hens")["level"], "broken");
    assert_eq!(find(&findings, "rbac", "does not allow: watch pods")["level"], "broken");
}
