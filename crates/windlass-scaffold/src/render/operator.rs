//! The operator's program, its controllers, webhooks and tests.

use minijinja::{Value, context};

use super::{group_modules, modules, type_path, version_modules};
use crate::name::{ControllerName, WebhookPath};
use crate::project::{Project, Resource};
use crate::template;
use crate::tree::Tree;

pub(super) fn render(project: &Project, common: &Value, tree: &mut Tree) {
    tree.add_once("src/main.rs", template::render("operator/main.rs", common.clone()));
    tree.add_once("src/lib.rs", template::render("operator/lib.rs", common.clone()));
    controllers(project, common, tree);
    if project.has_webhooks() {
        webhooks(project, common, tree);
    }
    tests(project, common, tree);
}

fn controllers(project: &Project, common: &Value, tree: &mut Tree) {
    let mut leaves = Vec::new();
    for resource in &project.resources {
        for name in resource.controllers() {
            let mut modules = group_modules(project, resource);
            modules.push(name.module());
            let path = format!("src/controller/{}.rs", modules.join("/"));
            tree.add_part(format!("controller {name}"), path, reconciler(project, resource, &name, common));
            leaves.push(modules);
        }
    }
    let header = super::header(project);
    let about = |path: &[String]| format!("Controllers of the group {}.", path.join(".").replace('_', "-"));
    modules::add(tree, "src/controller", &header, &leaves, about);
    let mut paths: Vec<String> = leaves.iter().map(|leaf| leaf.join("::")).collect();
    paths.sort_unstable();
    let paths: Vec<String> = paths.iter().map(|path| add(path)).collect();
    let values = context! { modules => modules::top(&leaves), controllers => paths, ..common.clone() };
    tree.add_once("src/controller.rs", template::render("operator/controller.rs", values));
}

/// The statement that adds a controller to the manager.
fn add(path: &str) -> String {
    super::either(format!("    manager.add({path}::controller())?;"), || {
        let line = format!("        .add({path}::controller())?;");
        if line.len() <= super::LINE {
            return format!("    manager\n{line}");
        }
        format!("    manager.add(\n        {path}::controller(),\n    )?;")
    })
}

fn reconciler(project: &Project, resource: &Resource, name: &ControllerName, common: &Value) -> String {
    let path = type_path(project, resource);
    let (name_of_template, reconciler) = match resource.api {
        Some(_) => ("operator/reconciler.rs", "Finalizer::new(FINALIZER, Reconciler)"),
        None => ("operator/reconciler_foreign.rs", "Reconciler"),
    };
    let new = format!("    Controller::<{}>::new(\"{name}\")", path.path);
    let complete = format!(".complete({reconciler})");
    let object = format!("{}: Arc<{}>", resource.kind.variable(), path.path);
    let finalizer = format!("\"{}/{name}\"", resource.qualified_group());
    let head = |name, arguments: [String; 2]| method(name, &arguments, "windlass::Result");
    let values = context! {
        complete => super::either(format!("{new}{complete}"), || match new.len() {
            ..=super::LINE => format!("{new}\n        {complete}"),
            _ => format!("    Controller::<{}>::new(\n        \"{name}\",\n    )\n    {complete}", path.path),
        }),
        reconcile => head("reconcile", [object.clone(), "ctx: Context".to_owned()]),
        cleanup => head("cleanup", [format!("_{object}"), "_ctx: Context".to_owned()]),
        kind => resource.kind.as_str(),
        article => resource.kind.article(),
        variable => resource.kind.variable(),
        types => path.import,
        type => path.path,
        // What does not fit into a line of its own either stays where it is.
        finalizer => super::either(format!("const FINALIZER: &str = {finalizer};"), || {
            let space = if finalizer.len() + "    ;".len() <= super::LINE { "\n    " } else { " " };
            format!("const FINALIZER: &str ={space}{finalizer};")
        }),
        ..common.clone()
    };
    template::render(name_of_template, values)
}

fn webhooks(project: &Project, common: &Value, tree: &mut Tree) {
    let mut leaves = Vec::new();
    let mut conversions = Vec::new();
    for resource in &project.resources {
        let Some(set) = &resource.webhooks else { continue };
        let types = type_path(project, resource);
        if set.conversion {
            let krate = format!("{}_api", project.project_name.module());
            let path = |version: &Resource| {
                format!("{krate}::{}::{}", version_modules(project, version).join("::"), version.kind)
            };
            let spokes = super::api::conversions(project).into_iter().filter(|(hub, _)| *hub == resource);
            let bind = |value: String, broken: String| {
                super::either(format!("    let conversion = {value};"), || {
                    let line = format!("        {value};");
                    let broken = format!("    let conversion = {broken};");
                    if line.len() <= super::LINE { format!("    let conversion =\n{line}") } else { broken }
                })
            };
            let spoke = |path: String| {
                let broken = format!("conversion\n        .spoke::<{path}>(\n    )");
                bind(format!("conversion.spoke::<{path}>()"), broken)
            };
            let hub = |path: String| {
                bind(format!("Conversion::<{path}>::new()"), format!("Conversion::<\n        {path},\n    >::new()"))
            };
            let spokes: Vec<String> = spokes.map(|(_, version)| spoke(path(version))).collect();
            conversions.push((hub(path(resource)), spokes));
        }
        if set.defaulting || set.validation {
            let mut modules = version_modules(project, resource);
            modules.push(resource.kind.module());
            let (variable, path) = (resource.kind.variable(), &types.path);
            let request = format!("request: &Request<{path}>");
            let object = |kind: &str| format!("_{variable}: &{kind}{path}");
            let values = context! {
                kind => resource.kind.as_str(),
                set_defaults => method("set_defaults", &[object("mut "), format!("_{request}")], "Result<(), Denied>"),
                validate_create => method("validate_create", &[object(""), format!("_{request}")], "Verdict"),
                validate_update => method(
                    "validate_update",
                    &[format!("_old: &{path}"), format!("new: &{path}"), request.clone()],
                    "Verdict",
                ),
                validate_delete => method("validate_delete", &[object(""), format!("_{request}")], "Verdict"),
                types => types.import,
                type => path,
                defaulting => set.defaulting,
                validation => set.validation,
                defaulting_path => set.defaulting_path.as_ref().map(WebhookPath::as_str),
                validation_path => set.validation_path.as_ref().map(WebhookPath::as_str),
                ..common.clone()
            };
            let path = format!("src/webhook/{}.rs", modules.join("/"));
            tree.add_part(resource.part("webhook"), path, template::render("webhook/kind.rs", values));
            leaves.push(modules);
        }
    }
    let header = super::header(project);
    modules::add(tree, "src/webhook", &header, &leaves, |path| format!("Webhooks of {}.", path.join(", ")));
    let mut paths: Vec<String> = leaves.iter().map(|leaf| leaf.join("::")).collect();
    paths.sort_unstable();
    let values = context! {
        modules => modules::top(&leaves),
        webhook_paths => paths,
        conversion_calls => conversions,
        ..common.clone()
    };
    tree.add_once("src/webhook.rs", template::render("webhook/webhook.rs", values));
}

fn tests(project: &Project, common: &Value, tree: &mut Tree) {
    let mut names = Vec::new();
    for resource in &project.resources {
        let Some(api) = &resource.api else { continue };
        // A kind with several controllers, or none, is left to the user.
        if resource.controllers().is_empty() {
            continue;
        }
        let name = test_module(project, resource);
        let path = type_path(project, resource);
        let spec = format!("{}Spec::default()", path.path);
        let create = format!("    env.create({}::new(\"sample\", {spec})).await;", path.path);
        let wait = format!("    env.wait_for_condition::<{}>(\"sample\", \"Ready\", true)", path.path);
        let values = context! {
            kind => resource.kind.as_str(),
            create => super::either(create, || {
                let create = format!("    env.create({}::new(\"sample\", spec)).await;", path.path);
                format!("    let spec = {spec};\n{create}")
            }),
            wait => super::either(format!("{wait}.await;"), || format!("{wait}\n        .await;")),
            types => path.import,
            type => path.path,
            namespaced => api.namespaced,
            ..common.clone()
        };
        let path = format!("tests/it/{name}.rs");
        tree.add_part(resource.part("test"), path, template::render("tests/kind.rs", values));
        names.push(name);
    }
    names.sort_unstable();
    let definitions = format!("    for definition in ::{}_api::definitions()", project.project_name.module());
    let definitions = format!("{definitions}.expect(\"the versions of each kind fit together\")");
    let definitions = super::either(format!("{definitions} {{"), || format!("{definitions}\n    {{"));
    let values = context! { tests => names, definitions, ..common.clone() };
    tree.add_once("tests/it/main.rs", template::render("tests/main.rs", values));
}

/// The module of a kind's test: `guestbook`. If controllers work on several versions of a kind, the version with the
/// controller of the kind's own name has that module, or else the one added first; the others are `guestbook_v2`.
fn test_module(project: &Project, resource: &Resource) -> String {
    let mut parts = group_modules(project, resource);
    parts.push(resource.kind.module());
    let tested =
        |other: &&Resource| other.same_kind(resource) && other.api.is_some() && !other.controllers().is_empty();
    let own_name = |other: &&Resource| other.controllers().contains(&ControllerName::of(&other.kind));
    let versions = || project.resources.iter().filter(tested);
    let first = versions().find(own_name).or_else(|| versions().next());
    if first.is_some_and(|first| first.version != resource.version) {
        parts.push(resource.version.to_string());
    }
    parts.join("_")
}

/// The head of a method, broken into lines as rustfmt does.
fn method(name: &str, arguments: &[String], result: &str) -> String {
    let line = format!("    async fn {name}(&self, {}) -> {result}", arguments.join(", "));
    if line.len() + " {".len() <= super::LINE {
        return line;
    }
    format!("    async fn {name}(\n        &self,\n        {},\n    ) -> {result}", arguments.join(",\n        "))
}
