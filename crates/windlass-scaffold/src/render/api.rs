//! The package of the kinds.

use std::fmt::Write as _;

use minijinja::{Value, context};

use super::{group_modules, has_conversion, modules, version_modules};
use crate::project::{Project, Resource};
use crate::template;
use crate::tree::Tree;

pub(super) fn render(project: &Project, common: &Value, tree: &mut Tree) {
    tree.add_once("api/Cargo.toml", template::render("api/cargo.toml.in", common.clone()));
    let declared: Vec<&Resource> = project.resources.iter().filter(|resource| resource.api.is_some()).collect();
    for resource in &declared {
        types(project, resource, common, tree);
    }
    let conversions = conversions(project);
    for (hub, spoke) in &conversions {
        conversion(project, hub, spoke, common, tree);
    }
    versions(project, &declared, &conversions, tree);
    if project.settings().client {
        super::client::render(project, &declared, tree);
    }
    tree.add_once("api/src/lib.rs", library(project, &declared));
}

/// Each spoke with its hub.
pub(super) fn conversions(project: &Project) -> Vec<(&Resource, &Resource)> {
    let mut pairs = Vec::new();
    for hub in project.resources.iter().filter(|resource| has_conversion(resource)) {
        let spokes = hub.webhooks.iter().flat_map(|webhooks| &webhooks.spoke);
        for version in spokes {
            let declared = project.versions_of(hub);
            pairs.extend(declared.into_iter().find(|other| other.version == *version).map(|spoke| (hub, spoke)));
        }
    }
    pairs
}

fn types(project: &Project, resource: &Resource, common: &Value, tree: &mut Tree) {
    let Some(api) = &resource.api else { return };
    let values = context! {
        kind => resource.kind.as_str(),
        article => resource.kind.article(),
        version => resource.version.as_str(),
        plural => resource.plural().as_str(),
        short_names => api.short_names.iter().map(crate::name::Plural::as_str).collect::<Vec<_>>(),
        namespaced => api.namespaced,
        protected => resource.is_protected(),
        group => resource.qualified_group(),
        ..common.clone()
    };
    let path = format!("api/src/{}/{}.rs", version_modules(project, resource).join("/"), resource.kind.module());
    tree.add_part(resource.part("types"), path, template::render("api/types.rs", values));
}

fn conversion(project: &Project, hub: &Resource, spoke: &Resource, common: &Value, tree: &mut Tree) {
    let hub_modules = version_modules(project, hub).join("::");
    let module = spoke.kind.module();
    let kind = &spoke.kind;
    let status = |from: &str, to: &str| {
        let map = format!("map(|status| {to}::{kind}Status {{ conditions: status.conditions }}),");
        super::either(format!("            status: {from}.status.{map}"), || {
            if format!("                .{map}").len() <= super::LINE {
                return format!("            status: {from}\n                .status\n                .{map}");
            }
            let fields = "                conditions: status.conditions,\n            }),";
            format!("            status: {from}.status.map(|status| {to}::{kind}Status {{\n{fields}")
        })
    };
    let values = context! {
        kind => spoke.kind.as_str(),
        head => super::either(format!("impl Convert<hub::{kind}> for spoke::{kind} {{"), || {
            format!("impl Convert<hub::{kind}>\n    for spoke::{kind}\n{{")
        }),
        into_status => status("self", "hub"),
        from_status => status("hub", "spoke"),
        hub => hub.version.as_str(),
        hub_path => format!("crate::{hub_modules}::{module}"),
        variable => module,
        ..common.clone()
    };
    let path = format!("api/src/{}/{module}_conversion.rs", version_modules(project, spoke).join("/"));
    tree.add_part(spoke.part("conversion"), path, template::render("webhook/conversion.rs", values));
}

/// The modules of the versions, each with the types of its kinds.
fn versions(project: &Project, declared: &[&Resource], conversions: &[(&Resource, &Resource)], tree: &mut Tree) {
    let header = super::header(project);
    let mut groups: Vec<Vec<String>> = Vec::new();
    let mut done: Vec<Vec<String>> = Vec::new();
    for resource in declared {
        let modules = version_modules(project, resource);
        if done.contains(&modules) {
            continue;
        }
        let same = |other: &&&Resource| version_modules(project, other) == modules;
        let group = resource.qualified_group();
        let mut text = format!("{header}//! Version {} of the group {group}.\n\n", resource.version);
        let mut kinds: Vec<(String, &str)> =
            declared.iter().filter(same).map(|other| (other.kind.module(), other.kind.as_str())).collect();
        let mut lines = Vec::new();
        for (module, kind) in &kinds {
            lines.push((module.clone(), format!("pub mod {module};\n")));
            let converted = conversions.iter().any(|(_, spoke)| same(&spoke) && spoke.kind.as_str() == *kind);
            if converted {
                let module = format!("{module}_conversion");
                lines.push((module.clone(), format!("#[cfg(feature = \"conversion\")]\nmod {module};\n")));
            }
        }
        lines.sort_unstable();
        text.extend(lines.into_iter().map(|(_, line)| line));
        text.push('\n');
        kinds.sort_unstable_by(|(one, _), (other, _)| modules::import_order(one, other));
        for (module, kind) in &kinds {
            let _ = writeln!(text, "{}", reexport(module, kind));
        }
        let part = format!("version {group} {}", resource.version);
        tree.add_part(part, format!("api/src/{}.rs", modules.join("/")), text);
        if !group_modules(project, resource).is_empty() {
            groups.push(modules.clone());
        }
        done.push(modules);
    }
    modules::add(tree, "api/src", &header, &groups, |path| format!("The group {}.", path.join(".").replace('_', "-")));
}

/// The types of a kind, as part of its version. A list that is broken has as many names in a line as fit.
fn reexport(module: &str, kind: &str) -> String {
    let names = ["", "Spec", "Status"].map(|part| format!("{kind}{part}"));
    let line = format!("pub use {module}::{{{}}};", names.join(", "));
    // Rustfmt leaves room for two more characters here.
    if line.len() + 2 <= super::LINE {
        return line;
    }
    let mut lines = vec!["   ".to_owned()];
    for name in names {
        let fits = |line: &&mut String| line.len() + " ,".len() + name.len() <= super::LINE || line.len() == 3;
        match lines.last_mut().filter(fits) {
            Some(line) => line.extend([" ", name.as_str(), ","]),
            None => lines.push(format!("    {name},")),
        }
    }
    format!("pub use {module}::{{\n{}\n}};", lines.join("\n"))
}

/// `lib.rs`: the modules, and the definitions of all kinds.
fn library(project: &Project, declared: &[&Resource]) -> String {
    let mut text = format!("{}//! The kinds of {}.\n\n", super::header(project), project.project_name);
    let leaves: Vec<Vec<String>> = declared.iter().map(|resource| version_modules(project, resource)).collect();
    let mut modules = modules::top(&leaves);
    let client = project.settings().client.then(|| super::client::module(project));
    modules.extend(client);
    modules.sort_unstable();
    for module in &modules {
        if Some(*module) == client {
            text.push_str("#[cfg(feature = \"client\")]\n");
        }
        let _ = writeln!(text, "pub mod {module};");
    }
    if !modules.is_empty() {
        text.push('\n');
    }
    text.push_str(
        "use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;\n",
    );
    if !declared.is_empty() {
        text.push_str("use kube::CustomResourceExt as _;\n");
    }
    text.push_str("use kube::core::crd::MergeError;\n");
    if !declared.is_empty() {
        text.push_str("use kube::core::crd::merge_crds;\n");
    }
    text.push_str("\n/// The definitions of all kinds, each with all its versions.\n");
    // A statement for each kind, so that kinds can be added to edited files.
    text.push_str("#[allow(clippy::vec_init_then_push)]\n");
    text.push_str("pub fn definitions() -> Result<Vec<CustomResourceDefinition>, MergeError> {\n");
    if declared.is_empty() {
        text.push_str("    Ok(Vec::new())\n}\n");
        return text;
    }
    text.push_str("    let mut definitions = Vec::new();\n");
    let mut done: Vec<&Resource> = Vec::new();
    for resource in declared {
        if done.iter().any(|other| other.same_kind(resource)) {
            continue;
        }
        done.push(resource);
        let versions = project.versions_of(resource);
        let list: Vec<String> = versions
            .iter()
            .map(|version| format!("{}::{}::crd()", version_modules(project, version).join("::"), version.kind))
            .collect();
        let stored = project.storage_version(resource).unwrap_or(&resource.version);
        let _ = writeln!(text, "{}", definition(&list, stored.as_str()));
    }
    text.push_str("    Ok(definitions)\n}\n");
    text
}

/// The statement that adds the definition of a kind, broken into lines as rustfmt does.
fn definition(versions: &[String], stored: &str) -> String {
    let call = format!("push(merge_crds(vec![{}], \"{stored}\")?);", versions.join(", "));
    for line in [format!("    definitions.{call}"), format!("        .{call}")] {
        if line.len() <= super::LINE {
            return if line.starts_with("        ") { format!("    definitions\n{line}") } else { line };
        }
    }
    let list = format!("        vec![{}],", versions.join(", "));
    let list = if list.len() <= super::LINE {
        list
    } else {
        format!("        vec![\n            {},\n        ],", versions.join(",\n            "))
    };
    format!("    definitions.push(merge_crds(\n{list}\n        \"{stored}\",\n    )?);")
}
