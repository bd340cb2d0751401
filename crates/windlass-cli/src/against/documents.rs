//! Manifests as they are read: files, directories and standard input become a list of objects.
//!
//! YAML is read as kubectl and the API server read it. A List stands for its items.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use windlass_api::codec::yaml;
use windlass_scaffold::kustomize::{self, KustomizeError};

/// What files in a directory are called that hold manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The objects of files and directories, in their order; the files of a directory are sorted by name.
pub(crate) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            objects.extend(parse(&text).context("standard input")?);
            continue;
        }
        for file in files(path, recursive)? {
            objects.extend(read_file(&file)?);
        }
    }
    Ok(objects)
}

/// The objects of a file.
pub(crate) fn read_file(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| file.display().to_string())
}

/// Renders the kustomization in `directory`, a path below `root`.
pub(crate) fn render(root: &Path, directory: &str) -> Result<Vec<Value>> {
    kustomize::build(root, directory).map_err(|error| match &error {
        KustomizeError::Missing { path, .. } if is_from_code(path) => {
            anyhow::anyhow!("{error}, which is made from the operator's code: run `windlass manifests --write` first")
        }
        _ => error.into(),
    })
}

/// Whether `windlass manifests` writes a file of this path in a project, or in a directory of its `config`.
fn is_from_code(path: &str) -> bool {
    let known = ["role.yaml", "role_binding.yaml", "manifests.yaml"];
    path.rsplit('/').nth(1) == Some("bases") || path.rsplit('/').next().is_some_and(|name| known.contains(&name))
}

/// The files that a path stands for.
pub(crate) fn files(path: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = || format!("cannot read {}", path.display());
    let entries = std::fs::read_dir(path).with_context(unreadable)?.collect::<Result<Vec<_>, _>>();
    let mut entries: Vec<PathBuf> = entries.with_context(unreadable)?.into_iter().map(|entry| entry.path()).collect();
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            if recursive {
                found.extend(files(&entry, true)?);
            }
            continue;
        }
        let extension = entry.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        // A kustomization says how objects are built; it is none.
        let is_kustomization = entry.file_stem().is_some_and(|stem| stem == "kustomization");
        if EXTENSIONS.contains(&extension) && !is_kustomization {
            found.push(entry);
        }
    }
    Ok(found)
}

/// The objects of a text with any number of documents.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for (number, document) in documents(text).into_iter().enumerate() {
        let parsed = yaml::parse(document.as_bytes());
        let parsed = parsed.map_err(|error| anyhow::anyhow!("document {}: {error}", number + 1))?;
        if let Some(duplicates) = parsed.duplicates {
            bail!("document {}: {duplicates}", number + 1);
        }
        flatten(parsed.value, &mut objects).with_context(|| format!("document {}", number + 1))?;
    }
    Ok(objects)
}

/// The parts of a text between lines that separate documents (`YAMLReader` in apimachinery's `util/yaml`).
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let rest = line.strip_prefix("---").map(str::trim);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#')) {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
        }
    }
    documents
}

fn flatten(value: Value, objects: &mut Vec<Value>) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    if kind.is_empty() || version.is_empty() {
        bail!("not an object: apiVersion and kind are needed");
    }
    if let (true, Value::Array(items)) = (kind.ends_with("List"), &value["items"]) {
        for item in items {
            let mut item = item.clone();
            // The items of a typed list, such as ConfigMapList, may leave out what they are.
            if let (Some(of), Some(item)) =
                (kind.strip_suffix("List").filter(|of| !of.is_empty()), item.as_object_mut())
            {
                item.entry("kind").or_insert_with(|| of.into());
                item.entry("apiVersion").or_insert_with(|| version.as_str().into());
            }
            flatten(item, objects)?;
        }
        return Ok(());
    }
    if value["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
        bail!("{kind} without metadata.name");
    }
    objects.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let objects = parse(text).unwrap();
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn documents_and_lists_become_objects() {
        let map = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let text = format!("# first\n---\n{}--- # more\n{}---\n\n---\n", map("a"), map("b"));
        assert_eq!(names(&text), ["a", "b"]);
        let list = r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}]}"#;
        assert_eq!(names(list), ["c"]);
        assert_eq!(names("").len(), 0);
        let typed =
            "apiVersion: apps/v1\nkind: DeploymentList\nitems: [{metadata: {name: d}}, {metadata: {name: e}}]\n";
        let objects = parse(typed).unwrap();
        assert_eq!(objects.len(), 2);
        assert_eq!((&objects[0]["kind"], &objects[0]["apiVersion"]), (&"Deployment".into(), &"apps/v1".into()));
    }

    #[test]
    fn dashes_inside_of_texts_separate_nothing() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  text: |\n    ---\n    x\n";
        assert_eq!(parse(text).unwrap()[0]["data"]["text"], "---\nx\n");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (text, says) in [
            ("a: 1\n", "apiVersion and kind are needed"),
            ("apiVersion: v1\nkind: ConfigMap\n", "ConfigMap without metadata.name"),
            ("apiVersion: v1\nkind: ConfigMap\nkind: Secret\nmetadata: {name: a}\n", "kind"),
            ("a: [\n", "document 1"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
