//! Makes of a project all files that are generated for it.
//!
//! The same project always gives the same files, so that the scaffold of any state of a project can be had again.

mod api;
mod client;
mod config;
mod modules;
mod operator;

use std::fmt::Write as _;

use minijinja::{Value, context};

use crate::project::{License, Project, Resource, Source};
use crate::template;
use crate::tree::Tree;

/// How long a line may be, as the project's rustfmt.toml says.
const LINE: usize = 120;

/// Code in one line, or in several as rustfmt writes it if that is too long.
fn either(line: String, broken: impl FnOnce() -> String) -> String {
    if line.len() <= LINE { line } else { broken() }
}

/// All generated files of a project.
pub fn render(project: &Project) -> Tree {
    let mut tree = Tree::default();
    tree.add_once(crate::project::FILE, project.to_text());
    let common = common(project);
    for (path, name) in [
        ("Cargo.toml", "root/cargo.toml.in"),
        (".gitignore", "root/gitignore"),
        (".dockerignore", "root/dockerignore"),
        ("Dockerfile", "root/Dockerfile"),
        ("justfile", "root/justfile"),
        ("rustfmt.toml", "root/rustfmt.toml"),
        ("Makefile", "root/Makefile"),
        ("README.md", "root/README.md"),
        ("AGENTS.md", "root/AGENTS.md"),
        (".github/workflows/test.yml", "root/test.yml"),
    ] {
        tree.add_once(path, template::render(name, common.clone()));
    }
    if let Some(name) = license_text(project.settings().license) {
        tree.add_once(LICENSE, template::render(name, common.clone()));
    }
    api::render(project, &common, &mut tree);
    operator::render(project, &common, &mut tree);
    config::render(project, &common, &mut tree);
    tree
}

/// What every template may use.
fn common(project: &Project) -> Value {
    let settings = project.settings();
    let (windlass, windlass_crd, windlass_testing) = dependencies(&settings.windlass);
    let checkout = match &settings.windlass {
        Source::Path(path) => Some(path),
        Source::Version(_) | Source::Git(_) => None,
    };
    context! {
        name => project.project_name.as_str(),
        crate => project.project_name.module(),
        header => header(project),
        license => spdx(settings.license),
        holder => settings.owner.clone().unwrap_or_else(|| format!("the authors of {}", project.project_name)),
        namespaced => project.namespaced,
        webhooks => project.has_webhooks(),
        admission => project.has_admission(),
        client => settings.client,
        conversions => project.resources.iter().any(has_conversion),
        declared => project.resources.iter().any(|resource| resource.api.is_some()),
        external => external(project),
        build_context => checkout.map(|path| format!(" --build-context 'windlass={path}'")).unwrap_or_default(),
        checkout,
        windlass,
        windlass_crd,
        windlass_testing,
    }
}

/// The crates with the types of kinds that other projects declare, each once.
fn external(project: &Project) -> Vec<&str> {
    let mut lines: Vec<&str> = project.resources.iter().filter_map(|resource| resource.module.as_deref()).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// The lines of `[workspace.dependencies]` for our crates.
fn dependencies(source: &Source) -> (String, String, String) {
    let of = |name: &str| match source {
        Source::Version(version) => format!("version = {version:?}"),
        Source::Path(path) => format!("path = {:?}", format!("{path}/crates/{name}")),
        Source::Git(url) => format!("git = {url:?}"),
    };
    // The operator, as a program, says which Kubernetes version the types are of.
    let windlass = format!("{{ {}, features = [\"v1_36\"] }}", of("windlass"));
    let plain = |name: &str| format!("{{ {} }}", of(name));
    (windlass, plain("windlass-crd"), plain("windlass-testing"))
}

/// The file with the text of the license. A project that has one already keeps it.
pub(crate) const LICENSE: &str = "LICENSE";

fn license_text(license: License) -> Option<&'static str> {
    match license {
        License::None | License::Copyright => None,
        License::Apache2 => Some("root/license-apache2"),
        License::Mit => Some("root/license-mit"),
    }
}

fn spdx(license: License) -> Option<&'static str> {
    match license {
        License::None | License::Copyright => None,
        License::Apache2 => Some("Apache-2.0"),
        License::Mit => Some("MIT"),
    }
}

/// The comment at the top of Rust files.
fn header(project: &Project) -> String {
    let settings = project.settings();
    let mut header = String::new();
    if let Some(text) = &settings.header {
        for line in text.lines() {
            let _ = writeln!(header, "{}", format!("// {line}").trim_end());
        }
        header.push('\n');
        return header;
    }
    if let Some(owner) = &settings.owner {
        let _ = writeln!(header, "// SPDX-FileCopyrightText: {owner}");
    }
    if let Some(license) = spdx(settings.license) {
        let _ = writeln!(header, "// SPDX-License-Identifier: {license}");
    }
    if !header.is_empty() {
        header.push('\n');
    }
    header
}

pub(crate) fn has_conversion(resource: &Resource) -> bool {
    resource.webhooks.as_ref().is_some_and(|webhooks| webhooks.conversion)
}

/// The modules that a resource's files are in, outermost first, after the group if the project has several.
fn group_modules(project: &Project, resource: &Resource) -> Vec<String> {
    let group = resource.group.as_ref().filter(|_| project.multigroup);
    group.map(crate::name::Group::module).into_iter().collect()
}

/// The modules of a version's types: `["v1"]`, or `["webapp", "v1"]`.
fn version_modules(project: &Project, resource: &Resource) -> Vec<String> {
    let mut modules = group_modules(project, resource);
    modules.push(resource.version.to_string());
    modules
}

/// How code names the type of a resource: what it imports, and the path from there.
struct TypePath {
    /// The module to import: `guestbook_api::v1`.
    import: String,
    /// The type: `v1::Guestbook`.
    path: String,
}

fn type_path(project: &Project, resource: &Resource) -> TypePath {
    let import = match &resource.path {
        Some(path) => path.clone(),
        None => format!("{}_api::{}", project.project_name.module(), version_modules(project, resource).join("::")),
    };
    let last = import.rsplit("::").next().unwrap_or_default().to_owned();
    TypePath { path: format!("{last}::{}", resource.kind), import }
}
