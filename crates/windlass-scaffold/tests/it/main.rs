//! Projects on disk: made, changed, edited by a user, and taken back.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod checkouts;
mod conflicts;
mod format;
mod golden;
mod kustomize;
mod moves;
mod packages;
mod reversal;
mod types;
mod upgrade;
mod walks;

use std::collections::BTreeMap;
use std::path::Path;

use windlass_scaffold::Project;
use windlass_scaffold::command::{self, CommandError, NewApi, Selector, Webhooks};
use windlass_scaffold::name::{ControllerName, Domain, Group, Kind, ProjectName, Version};
use windlass_scaffold::project::Settings;
use windlass_scaffold::scaffold::{self, Mode};

fn project() -> Project {
    Project::new(ProjectName::new("shop").unwrap(), Domain::new("my.domain").unwrap(), Settings::default())
}

fn api(group: &str, version: &str, kind: &str) -> NewApi {
    NewApi {
        group: Some(Group::new(group).unwrap()),
        version: Version::new(version).unwrap(),
        kind: Kind::new(kind).unwrap(),
        plural: None,
        short_names: Vec::new(),
        namespaced: true,
        resource: true,
        controller: true,
        controller_name: None,
        external: None,
        builtin_name: false,
    }
}

/// Projects with every part that `config/` can have.
fn projects() -> Vec<(&'static str, Project)> {
    let mut full = project();
    full.multigroup = true;
    command::create_api(&mut full, api("sales", "v1", "Order")).unwrap();
    command::create_api(&mut full, NewApi { controller: false, ..api("sales", "v1beta1", "Order") }).unwrap();
    command::create_api(&mut full, NewApi { namespaced: false, ..api("net", "v1", "Pool") }).unwrap();
    let all = Webhooks { defaulting: true, validation: true, conversion: true, ..Webhooks::default() };
    command::create_webhook(&mut full, &selector("v1", "Order"), &all).unwrap();
    let mut namespaced = project();
    namespaced.namespaced = true;
    command::create_api(&mut namespaced, api("sales", "v1", "Order")).unwrap();
    vec![("full", full), ("namespaced", namespaced), ("empty", project())]
}

/// What the code of a project says, about: the definitions without schemas, a role of each kind, and webhooks.
fn said(project: &Project) -> Vec<serde_json::Value> {
    use serde_json::json;
    let mut said = Vec::new();
    for resource in project.resources.iter().filter(|resource| resource.api.is_some()) {
        let (group, plural) = (resource.qualified_group(), resource.plural().to_string());
        let name = format!("{plural}.{group}");
        if said.iter().any(|other: &serde_json::Value| other["metadata"]["name"] == name) {
            continue;
        }
        let versions: Vec<_> = project.versions_of(resource).iter().enumerate().map(|(at, version)| json!({
            "name": version.version.as_str(), "served": true, "storage": at == 0,
            "schema": {"openAPIV3Schema": {
                "type": "object", "description": format!("A {}, with {{{{ braces }}}}.", resource.kind),
                "properties": {"spec": {"type": "object", "properties": {"foo": {"type": "string", "description": "An example."}}}},
            }},
            "subresources": {"status": {}},
        })).collect();
        said.push(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": group, "scope": "Namespaced", "versions": versions, "names": {
                "kind": resource.kind.as_str(), "plural": plural, "singular": resource.kind.lower(),
                "listKind": format!("{}List", resource.kind),
            }},
        }));
    }
    let rules = json!([{"apiGroups": ["sales.my.domain"], "resources": ["orders"], "verbs": ["get", "list"]}]);
    let role = |kind: &str, namespace: Option<&str>| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": "shop", "namespace": namespace}, "rules": rules,
        })
    };
    if !project.namespaced {
        let mut cluster = role("ClusterRole", None);
        cluster["metadata"].as_object_mut().unwrap().remove("namespace");
        said.push(cluster);
    }
    said.push(role("Role", Some(windlass_scaffold::manifests::HOME)));
    if project.has_admission() {
        for (kind, path) in
            [("MutatingWebhookConfiguration", "/mutate"), ("ValidatingWebhookConfiguration", "/validate")]
        {
            said.push(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "shop"},
                "webhooks": [{
                    "name": "order.my.domain", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "failurePolicy": "Fail", "timeoutSeconds": 10,
                    "clientConfig": {"service": {"name": "any", "namespace": "any", "path": path}},
                    "rules": [{"apiGroups": ["sales.my.domain"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["orders"]}],
                }],
            }));
        }
    }
    said
}

/// A project with all its files, also those from the code.
fn written(project: &Project, root: &Path) {
    let tree = windlass_scaffold::render::render(project);
    let code = windlass_scaffold::manifests::config(project, &said(project)).unwrap();
    let from_code = code.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    for (path, content) in tree.iter().chain(from_code) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

fn selector(version: &str, kind: &str) -> Selector {
    Selector { group: None, version: Some(Version::new(version).unwrap()), kind: Kind::new(kind).unwrap() }
}

/// A project on disk.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new(project: &Project) -> Self {
        let dir = tempfile::tempdir().unwrap();
        scaffold::init(dir.path(), project, Mode::default()).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, change: impl FnOnce(&mut Project) -> Result<(), CommandError>) {
        scaffold::change(self.path(), Mode::default(), change).unwrap_or_else(|error| panic!("{error}"));
    }

    fn create(&self, new: NewApi) {
        self.run(|project| command::create_api(project, new));
    }

    fn webhook(&self, selector: &Selector, new: &Webhooks) {
        self.run(|project| command::create_webhook(project, selector, new));
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap()
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{from:?} is not in {path}: {text}");
        std::fs::write(self.path().join(path), text.replacen(from, to, 1)).unwrap();
    }

    /// All files with their contents.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.path().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let name = path.strip_prefix(self.path()).unwrap().display().to_string();
                    files.insert(name, std::fs::read_to_string(path).unwrap());
                }
            }
        }
        files
    }
}
