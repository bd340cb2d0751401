//! What an operator is shipped as: one file, a [chart](crate::chart) or a [bundle](crate::bundle), all made of `config/`.
//!
//! Charts and bundles are edited by their owners. What was generated is kept beside the project's own record, so that
//! the next chart is merged with the edits as every other generated file is.

use std::path::Path;

use serde_json::{Value, json};

use crate::chart::Part;
use crate::kustomize::{self, Directory, Files, KustomizeError};
use crate::plan::{self, Plan, ReadError};
use crate::record;
use crate::tree::Tree;

/// What an installation consists of.
pub const DEFAULT: &str = "config/default";
/// The examples of the project's kinds.
pub const SAMPLES: &str = "config/samples";
/// Directories that are not a part of an installation unless a chart's value says so.
const OPTIONAL: [(Part, &str); 2] =
    [(Part::NetworkPolicy, "config/network-policy"), (Part::Prometheus, "config/prometheus")];

/// The objects of an installation with an image for the operator.
///
/// # Errors
/// If `config/default` cannot be rendered.
pub fn installation(root: &Path, image: Option<&str>) -> Result<Vec<Value>, KustomizeError> {
    let mut objects = kustomize::build(root, DEFAULT)?;
    if let Some(image) = image {
        for container in managers(&mut objects) {
            container["image"] = image.into();
        }
    }
    Ok(objects)
}

/// The containers of the operator itself.
fn managers(objects: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    let deployments = objects.iter_mut().filter(|object| object["kind"] == "Deployment");
    let containers = deployments
        .filter_map(|object| object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut));
    containers.flatten().filter(|container| container["name"] == "manager")
}

/// The image that an installation has.
pub fn image(objects: &[Value]) -> Option<String> {
    let mut objects = objects.to_vec();
    managers(&mut objects).next().and_then(|container| container["image"].as_str().map(str::to_owned))
}

/// Objects that can be added to an installation, with its names and its namespace.
///
/// # Errors
/// If a directory cannot be rendered.
pub fn optional(root: &Path, objects: &[Value]) -> Result<Vec<(Part, Vec<Value>)>, KustomizeError> {
    let mut all = Vec::new();
    for (part, directory) in OPTIONAL {
        let included = objects.iter().any(|object| Part::of(object) == Some(part));
        if included || !root.join(directory).join("kustomization.yaml").exists() {
            continue;
        }
        let files = Overlay { files: Directory::new(root), directory };
        all.push((part, kustomize::build_files(&files, OVERLAY)?));
    }
    Ok(all)
}

const OVERLAY: &str = "config/windlass-overlay";

/// A project with a directory that gives another one the names of the installation.
struct Overlay {
    files: Directory,
    directory: &'static str,
}

impl Files for Overlay {
    fn read(&self, path: &str) -> std::io::Result<Option<Vec<u8>>> {
        if path != format!("{OVERLAY}/kustomization.yaml") {
            return self.files.read(path);
        }
        let default = self.files.read(&format!("{DEFAULT}/kustomization.yaml"))?.unwrap_or_default();
        let default: Value = serde_saphyr::from_slice(&default).unwrap_or_default();
        let mut kustomization = json!({"resources": [self.directory.replace("config/", "../")]});
        for field in ["namespace", "namePrefix", "nameSuffix"] {
            if let Some(value) = default.get(field) {
                kustomization[field] = value.clone();
            }
        }
        Ok(Some(kustomization.to_string().into_bytes()))
    }
}

/// What was generated the last time, as `name` is recorded.
pub fn recorded(root: &Path, name: &str) -> Option<Tree> {
    record::named(root, name)
}

/// The image that the values of a chart say.
pub fn chart_image(values: &Value) -> Option<String> {
    let image = &values["manager"]["image"];
    let repository = image["repository"].as_str()?;
    let tag = match &image["tag"] {
        Value::String(tag) => tag.clone(),
        Value::Number(tag) => tag.to_string(),
        _ => return None,
    };
    Some(format!("{repository}{}{tag}", if tag.starts_with("sha256:") { '@' } else { ':' }))
}

/// Compares generated files with those on disk and with what was generated the last time, as `name` is recorded.
///
/// # Errors
/// If a file cannot be read.
pub fn plan(root: &Path, name: &str, target: &Tree, force: bool) -> Result<Plan, ReadError> {
    let path = record::path(name);
    let before = plan::read(root, &path)?;
    let base = before.as_deref().and_then(record::parse).unwrap_or_default();
    // A directory that was deleted is written again: nothing of it is left to merge with.
    let is_there = base.paths().any(|path| root.join(path).exists());
    let base = if is_there { base } else { Tree::default() };
    let mut plan = Plan::new(root, &base, target, force)?;
    plan.change(&path, before, Some(record::to_text(target)));
    Ok(plan)
}
