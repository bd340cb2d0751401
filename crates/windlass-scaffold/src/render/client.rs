//! The typed façade of the `api` package: clients, listers and informers by name.
//!
//! In Go these are generated as whole programs. `kube::Api` and windlass' informers are generic, so there is a function
//! for each kind, and nothing else.

use std::fmt::Write as _;

use super::{LINE, version_modules};
use crate::project::{Project, Resource};
use crate::tree::Tree;

/// The module, which no group may have the name of.
pub(super) fn module(project: &Project) -> &'static str {
    let taken =
        |resource: &Resource| super::group_modules(project, resource).first().is_some_and(|name| name == "client");
    if project.resources.iter().any(taken) { "clientset" } else { "client" }
}

pub(super) fn render(project: &Project, declared: &[&Resource], tree: &mut Tree) {
    let mut kinds: Vec<Names<'_>> = declared.iter().map(|resource| Names::new(project, resource)).collect();
    kinds.sort_unstable_by(|one, other| one.method.cmp(&other.method));
    let module = module(project);
    let mut text = super::header(project);
    let _ = write!(
        text,
        "//! Clients, listers and informers of the kinds of {name}, behind the feature `client` of this package: for\n\
         //! programs that use the kinds and are not their operator.\n\
         //!\n\
         //! | in Go | here |\n\
         //! |---|---|\n\
         //! | client-gen: a `Clientset` | `Clientset`, whose methods return [`kube::Api`] |\n\
         //! | lister-gen: a `Lister` for each kind | `lister()` of an informer: [`windlass::cache::Lister`] |\n\
         //! | informer-gen: a `SharedInformerFactory` | `Informers`, with a [`windlass::informer::InformerFactory`] |\n",
        name = project.project_name,
    );
    if let Some(first) = kinds.first() {
        example(&mut text, project, module, first);
        imports(&mut text, project, &kinds);
        clients(&mut text, &kinds);
        informers(&mut text, &kinds);
    }
    tree.add_once(format!("api/src/{module}.rs"), text);
}

/// What the functions of a kind are called.
struct Names<'a> {
    resource: &'a Resource,
    /// `v1_guestbooks`, or `webapp_v1_guestbooks` if the project has several groups.
    method: String,
    /// `v1::Guestbook`.
    path: String,
    namespaced: bool,
}

impl<'a> Names<'a> {
    fn new(project: &Project, resource: &'a Resource) -> Self {
        let modules = version_modules(project, resource);
        let plural = resource.plural().as_str().replace('-', "_");
        Self {
            resource,
            method: format!("{}_{plural}", modules.join("_")),
            path: format!("{}::{}", modules.join("::"), resource.kind),
            namespaced: resource.api.as_ref().is_some_and(|api| api.namespaced),
        }
    }
}

fn example(text: &mut String, project: &Project, module: &str, kind: &Names<'_>) {
    let namespace = if kind.namespaced { "\"default\"" } else { "" };
    let _ = write!(
        text,
        "//!\n\
         //! ```no_run\n\
         //! use {krate}_api::{module}::{{Clientset, Informers}};\n\
         //! use windlass::informer::InformerFactory;\n\
         //!\n\
         //! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {{\n\
         //! let objects = Clientset::new(client.clone()).{method}({namespace});\n\
         //! println!(\"{{}} on the server\", objects.list(&Default::default()).await?.items.len());\n\
         //!\n\
         //! let factory = InformerFactory::new(client);\n\
         //! let lister = Informers::new(factory.clone()).{method}().lister();\n\
         //! factory.start();\n\
         //! factory.wait_synced().await?;\n\
         //! println!(\"{{}} in the cache\", lister.len());\n\
         //! # Ok(()) }}\n\
         //! ```\n",
        krate = project.project_name.module(),
        method = kind.method,
    );
}

fn imports(text: &mut String, project: &Project, kinds: &[Names<'_>]) {
    text.push_str("\nuse kube::{Api, Client};\nuse windlass::informer::{Informer, InformerFactory};\n\n");
    let mut modules: Vec<String> =
        kinds.iter().filter_map(|kind| version_modules(project, kind.resource).into_iter().next()).collect();
    modules.sort_unstable_by(|one, other| super::modules::import_order(one, other));
    modules.dedup();
    let imports = match &modules[..] {
        [module] => format!("use crate::{module};"),
        _ => super::either(format!("use crate::{{{}}};", modules.join(", ")), || broken_imports(&modules)),
    };
    let _ = writeln!(text, "{imports}");
}

/// As many modules in each line as it has room for.
fn broken_imports(modules: &[String]) -> String {
    let mut lines = vec!["    ".to_owned()];
    for module in modules {
        let last = lines.last_mut().expect("invariant: there is a first line");
        if last.trim().is_empty() {
            last.push_str(module);
        } else if last.len() + ", ".len() + module.len() + ",".len() < LINE {
            last.push_str(", ");
            last.push_str(module);
        } else {
            last.push(',');
            lines.push(format!("    {module}"));
        }
    }
    format!("use crate::{{\n{},\n}};", lines.join("\n"))
}

fn clients(text: &mut String, kinds: &[Names<'_>]) {
    text.push_str(
        "\n/// Clients of all kinds.\n#[derive(Clone)]\npub struct Clientset {\n    client: Client,\n}\n\n\
         impl Clientset {\n    /// Clients that send their requests with this one.\n    \
         pub fn new(client: Client) -> Self {\n        Self { client }\n    }\n",
    );
    for kind in kinds {
        let (name, version, method, path) = (&kind.resource.kind, &kind.resource.version, &kind.method, &kind.path);
        if kind.namespaced {
            let head = signature(method, &["namespace: &str"], &format!("Api<{path}>"));
            let _ = write!(
                text,
                "\n    /// Objects of the kind {name}, version {version}, in a namespace.\n{head} {{\n        \
                 Api::namespaced(self.client.clone(), namespace)\n    }}\n",
            );
        }
        let (prefix, place) = if kind.namespaced { ("all_", ", in all namespaces") } else { ("", "") };
        let head = signature(&format!("{prefix}{method}"), &[], &format!("Api<{path}>"));
        let _ = write!(
            text,
            "\n    /// Objects of the kind {name}, version {version}{place}.\n{head} {{\n        \
             Api::all(self.client.clone())\n    }}\n",
        );
    }
    text.push_str("}\n");
}

fn informers(text: &mut String, kinds: &[Names<'_>]) {
    text.push_str(
        "\n/// Informers of all kinds. Those of the same factory share watches and caches.\n#[derive(Clone, Debug)]\n\
         pub struct Informers {\n    factory: InformerFactory,\n}\n\nimpl Informers {\n    \
         /// Informers of this factory, which starts and stops them.\n    \
         pub fn new(factory: InformerFactory) -> Self {\n        Self { factory }\n    }\n",
    );
    for kind in kinds {
        let (name, version) = (&kind.resource.kind, &kind.resource.version);
        let head = signature(&kind.method, &[], &format!("Informer<{}>", kind.path));
        let _ = write!(
            text,
            "\n    /// The informer of the kind {name}, version {version}; its `lister()` reads from the cache.\n{head} {{\n        \
             self.factory.informer()\n    }}\n",
        );
    }
    text.push_str("}\n");
}

/// The head of a method, broken into lines as rustfmt does.
fn signature(name: &str, arguments: &[&str], result: &str) -> String {
    let all: Vec<&str> = std::iter::once("&self").chain(arguments.iter().copied()).collect();
    let line = format!("    pub fn {name}({}) -> {result}", all.join(", "));
    if line.len() + " {".len() <= LINE {
        return line;
    }
    format!("    pub fn {name}(\n        {},\n    ) -> {result}", all.join(",\n        "))
}
