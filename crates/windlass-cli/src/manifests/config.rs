//! The manifests that come from the code, in `config/` of a project.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use windlass_scaffold::kustomize::{self, Directory, Files};
use windlass_scaffold::manifests::{self, FROM_CODE};
use windlass_scaffold::package::DEFAULT;
use windlass_scaffold::plan::{self, Change};
use windlass_scaffold::{Plan, sample, scaffold, write};

use super::{ask_all, package};
use crate::args::Manifests;
use crate::signals::uninterrupted;
use crate::{output, project};

pub(super) fn run(program: &Path, args: &Manifests) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let project = scaffold::open(&root)?;
    let arguments = if args.arguments.is_empty() { installed_arguments(&root) } else { args.arguments.clone() };
    let said = ask_all(program, args, &arguments)?;
    let mut plan = compare(&root, &manifests::config(&project, &said)?)?;
    sample::follow_schemas(&root, &project, &said, &mut plan)?;
    if args.check {
        let made = if plan.changes.is_empty() { package::drift(&root, &project)? } else { Vec::new() };
        return Ok(report_drift(args, plan, made));
    }
    uninterrupted(|| write::write(&root, &plan))?;
    plan.changes.retain(package::is_visible);
    plan.changes.sort_by(|one, other| one.path.cmp(&other.path));
    if package::report(args, &plan) {
        return Ok(ExitCode::SUCCESS);
    }
    if plan.changes.is_empty() {
        output::line("config/ is up to date");
    }
    for change in &plan.changes {
        output::line(format_args!("{} {}", change.verb(), change.path));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what is not as the code has it: files of config/, and files that were made of it.
fn report_drift(args: &Manifests, config: Plan, made: Vec<(&'static str, Plan)>) -> ExitCode {
    let lines = |plan: &Plan| {
        let lines = plan.changes.iter().map(|change| format!("  {} {}", change.verb(), change.path));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut said = Vec::new();
    if !config.changes.is_empty() {
        said.push(format!(
            "config/ is not what the code says; run `windlass manifests --write` to:\n{}",
            lines(&config)
        ));
    }
    for (kind, plan) in &made {
        said.push(format!("config/ has changed since; run `windlass manifests {kind}` to:\n{}", lines(plan)));
    }
    let all = Plan {
        changes: config.changes.into_iter().chain(made.into_iter().flat_map(|(_, plan)| plan.changes)).collect(),
        conflicts: Vec::new(),
    };
    if !package::report(args, &all) && said.is_empty() {
        output::line("config/ is up to date");
    }
    if said.is_empty() {
        return ExitCode::SUCCESS;
    }
    output::error(&anyhow::anyhow!("{}", said.join("\n")));
    ExitCode::FAILURE
}

/// What has to change. Files for what is not in the code any more go.
fn compare(root: &Path, files: &std::collections::BTreeMap<String, String>) -> Result<Plan> {
    let mut changes = Vec::new();
    for (path, text) in files {
        let before = plan::read(root, path)?;
        if before.as_ref() != Some(text) {
            changes.push(Change { path: path.clone(), before, after: Some(text.clone()) });
        }
    }
    for directory in FROM_CODE {
        for file in std::fs::read_dir(root.join(directory)).into_iter().flatten() {
            let file = file.with_context(|| format!("cannot read {directory}"))?;
            let path = format!("{directory}/{}", file.file_name().to_string_lossy());
            let before = plan::read(root, &path).ok().flatten().unwrap_or_default();
            if !files.contains_key(&path) && manifests::is_from_code(&path, &before) {
                changes.push(Change { path, before: Some(before), after: None });
            }
        }
    }
    Ok(Plan { changes, conflicts: Vec::new() })
}

/// The arguments that the operator is installed with: what it needs depends on them.
fn installed_arguments(root: &Path) -> Vec<String> {
    let objects = match kustomize::build_files(&BeforeFirst(Directory::new(root)), DEFAULT) {
        Ok(objects) => objects,
        Err(error) => {
            output::note(format_args!(
                "{error}\nSo the operator is asked without the arguments that it is installed with; give them after `--`."
            ));
            return Vec::new();
        }
    };
    let containers = |object: &Value| object.pointer("/spec/template/spec/containers")?.as_array().cloned();
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    let managers = deployments.filter_map(containers).flatten().filter(|container| container["name"] == "manager");
    let arguments = managers.filter_map(|container| container["args"].as_array().cloned()).flatten();
    arguments.filter_map(|argument| argument.as_str().map(str::to_owned)).collect()
}

/// A project whose files from the code may not have been written yet.
struct BeforeFirst(Directory);

impl Files for BeforeFirst {
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        let found = self.0.read(path)?;
        if found.is_some() {
            return Ok(found);
        }
        // Patches need something to patch.
        let base = path.strip_prefix("config/crd/bases/").and_then(|name| name.strip_suffix(".yaml"));
        if let Some((group, plural)) = base.and_then(|name| name.split_once('_')) {
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")},
            });
            return Ok(Some(definition.to_string().into_bytes()));
        }
        let known = ["config/rbac/role.yaml", "config/rbac/role_binding.yaml", "config/webhook/manifests.yaml"];
        Ok(known.contains(&path).then(Vec::new))
    }
}
