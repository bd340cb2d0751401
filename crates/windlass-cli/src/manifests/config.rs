//! The manifests that come from the code, in `config/` of a project.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use windlass_scaffold::plan::Change;
use windlass_scaffold::{Plan, scaffold, write};

use super::{HOME, is_definition};
use crate::args::Manifests;
use crate::{output, project};

/// The namespace that kustomize replaces with that of the installation.
const SYSTEM: &str = "system";
const HEADER: &str = "# Written by `windlass manifests --write`, from the code.\n";

pub(super) fn run(manifests: &[Value], args: &Manifests) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    scaffold::open(&root)?;
    let plan = compare(&root, &files(manifests)?);
    let text: Vec<String> = plan.changes.iter().map(|change| format!("{} {}", change.verb(), change.path)).collect();
    if args.check {
        if text.is_empty() {
            output::line("config/ is up to date");
            return Ok(ExitCode::SUCCESS);
        }
        bail!("config/ is not what the code says; run `windlass manifests --write` to:\n  {}", text.join("\n  "));
    }
    write::write(&root, &plan)?;
    for line in &text {
        output::line(line);
    }
    if text.is_empty() {
        output::line("config/ is up to date");
    }
    Ok(ExitCode::SUCCESS)
}

/// The files by their path in the project.
fn files(manifests: &[Value]) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let (definitions, roles): (Vec<&Value>, Vec<&Value>) =
        manifests.iter().partition(|manifest| is_definition(manifest));
    for definition in definitions {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let name = group.as_str().zip(plural.as_str()).map(|(group, plural)| format!("{group}_{plural}"));
        let name = name.context("the operator gave a definition without a group or plural")?;
        files.push((format!("config/crd/bases/{name}.yaml"), documents(std::slice::from_ref(definition))?));
    }
    let roles: Vec<Value> = roles.into_iter().map(role).collect();
    let bindings: Vec<Value> = roles.iter().map(binding).collect();
    files.push(("config/rbac/role.yaml".into(), documents(&roles)?));
    files.push(("config/rbac/role_binding.yaml".into(), documents(&bindings)?));
    Ok(files)
}

/// A role under the name that the bindings use, in the namespace that kustomize replaces.
fn role(role: &Value) -> Value {
    let mut role = role.clone();
    role["metadata"]["name"] = "manager-role".into();
    if role["metadata"]["namespace"] == HOME {
        role["metadata"]["namespace"] = SYSTEM.into();
    }
    role
}

fn binding(role: &Value) -> Value {
    let kind = role["kind"].as_str().unwrap_or_default();
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": {"name": "manager-rolebinding"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "manager-role"},
        "subjects": [{"kind": "ServiceAccount", "name": "controller-manager", "namespace": SYSTEM}],
    });
    if let Some(namespace) = role["metadata"].get("namespace") {
        binding["metadata"]["namespace"] = namespace.clone();
    }
    binding
}

fn documents(manifests: &[Value]) -> Result<String> {
    let mut text = String::from(HEADER);
    for (number, manifest) in manifests.iter().enumerate() {
        if number > 0 {
            text.push_str("---\n");
        }
        text.push_str(serde_saphyr::to_string(manifest)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// What has to change. Definitions that are not the code's any more go.
fn compare(root: &Path, files: &[(String, String)]) -> Plan {
    let mut changes = Vec::new();
    for (path, text) in files {
        let before = std::fs::read_to_string(root.join(path)).ok();
        if before.as_ref() != Some(text) {
            changes.push(Change { path: path.clone(), before, after: Some(text.clone()) });
        }
    }
    let bases = std::fs::read_dir(root.join("config/crd/bases")).into_iter().flatten().flatten();
    for file in bases {
        let path = format!("config/crd/bases/{}", file.file_name().to_string_lossy());
        let before = std::fs::read_to_string(file.path()).unwrap_or_default();
        if before.starts_with(HEADER) && !files.iter().any(|(known, _)| *known == path) {
            changes.push(Change { path, before: Some(before), after: None });
        }
    }
    Plan { changes, conflicts: Vec::new() }
}
