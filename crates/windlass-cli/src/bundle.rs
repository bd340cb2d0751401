//! `windlass bundle run` and `cleanup`: what OLM does with a bundle, without OLM.

mod plan;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::against::definitions::is_definition;
use crate::against::target::Target;
use crate::against::{self, apply, documents, made, remove, report, rollout};
use crate::args::{Bundle, BundleCleanup, BundleRun};
use crate::{output, uninstall};

/// The format of bundles that is understood.
const FORMAT: &str = "registry+v1";
/// The label of namespaces that a bundle has brought along, which go with it.
const OWNER: &str = "windlass.dev/bundle";

pub(crate) fn run(args: &Bundle) -> Result<ExitCode> {
    match args {
        Bundle::Run(args) => install(args),
        Bundle::Cleanup(args) => remove_all(args),
    }
}

fn install(args: &BundleRun) -> Result<ExitCode> {
    let manifests = documents::read(&[manifests(&args.directory)?], true)?;
    let mut plan = plan::Plan::new(manifests, args.namespace.as_deref(), &args.watch_namespace)?;
    Target::start_with_pods(&args.target)?;
    Target::check_pods(&args.target)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        own_namespaces(&target, &mut plan).await?;
        keep_certificates(&target, &mut plan).await?;
        let options = apply::Options {
            namespace: plan.namespace.clone(),
            dry_run: false,
            force: true,
            timeout: Duration::from_secs(args.timeout),
            notes: true,
        };
        output::note(format_args!("installing {} into the namespace {}", plan.name, plan.namespace));
        let other_versions = other_versions(&target, &plan).await?;
        let mut done = apply::apply(&target.client, plan.objects, &options, report::line(args.output, false)).await?;
        if !done.iter().any(apply::Done::failed) {
            let options = remove::Options {
                namespace: plan.namespace.clone(),
                timeout: Duration::from_secs(args.timeout),
                remove_finalizers: false,
            };
            let report = report::line(args.output, false);
            done.extend(remove::remove(&target.client, other_versions, &options, report).await?);
        }
        let code = report::finish(&target, &done, args.output, false);
        if done.iter().any(apply::Done::failed) || args.no_wait {
            return Ok(code);
        }
        for done in done.iter().filter(|done| done.kind == "Deployment") {
            let namespace = done.namespace.as_deref().unwrap_or(&plan.namespace);
            rollout::wait(&target.client, namespace, &done.name, Duration::from_secs(args.timeout)).await?;
            output::note(format_args!("{} is rolled out", done.title()));
        }
        Ok(code)
    })
}

/// Marks the namespaces that this bundle brings along, and leaves those alone that are there without it.
async fn own_namespaces(target: &Target, plan: &mut plan::Plan) -> Result<()> {
    let mut left = Vec::new();
    for object in plan.objects.iter_mut().filter(|object| object["kind"] == "Namespace") {
        let name = text(&object["metadata"]["name"]);
        match apply::get(&target.client, &namespace_path(&name)).await? {
            Some(found) if !is_owned(&found, &plan.name) => left.push(name),
            _ => object["metadata"]["labels"] = json!({OWNER: label(&plan.name)}),
        }
    }
    plan.objects.retain(|object| object["kind"] != "Namespace" || !left.contains(&text(&object["metadata"]["name"])));
    Ok(())
}

/// Leaves the certificates as they are that an earlier run has made.
async fn keep_certificates(target: &Target, plan: &mut plan::Plan) -> Result<()> {
    for index in 0..plan.objects.len() {
        let object = &plan.objects[index];
        if !webhooks::is_made_here(object) {
            continue;
        }
        let name = text(&object["metadata"]["name"]);
        let path = format!("{}/secrets/{name}", namespace_path(&plan.namespace));
        if let Some(earlier) = apply::get(&target.client, &path).await? {
            webhooks::keep_certificates(&mut plan.objects, index, &earlier);
        }
    }
    Ok(())
}

/// The roles that other versions of the bundle left in this namespace, with their bindings: their names contain the
/// version.
async fn other_versions(target: &Target, plan: &plan::Plan) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for role in ["ClusterRole", "Role"] {
        let kind = format!("{role}Binding");
        let path = format!("/apis/{}/v1/{}s", plan::RBAC, kind.to_lowercase());
        let list = apply::get(&target.client, &path).await?.unwrap_or_default();
        let bindings = list["items"].as_array().into_iter().flatten();
        for binding in bindings.filter(|binding| plan.is_of_other_version(&kind, binding)) {
            let mut metadata = json!({"name": binding["metadata"]["name"]});
            if role == "Role" {
                metadata["namespace"] = binding["metadata"]["namespace"].clone();
            }
            for kind in [kind.as_str(), role] {
                let api_version = format!("{}/v1", plan::RBAC);
                objects.push(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}));
            }
        }
    }
    Ok(objects)
}

fn namespace_path(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// The name of a bundle as the value of a label.
fn label(name: &str) -> &str {
    name.get(..63).unwrap_or(name).trim_end_matches(['.', '-', '_'])
}

/// The bundle without its version: `petstore.v1.0.0` is a version of `petstore`.
fn package(name: &str) -> &str {
    name.split_once(".v").map_or(name, |(package, _)| package)
}

/// Whether a version of the bundle has brought the namespace along.
fn is_owned(namespace: &Value, bundle: &str) -> bool {
    let owner = namespace["metadata"]["labels"][OWNER].as_str();
    owner.is_some_and(|owner| package(owner) == package(label(bundle)))
}

fn remove_all(args: &BundleCleanup) -> Result<ExitCode> {
    let manifests = documents::read(&[manifests(&args.directory)?], true)?;
    let plan = plan::Plan::new(manifests, args.namespace.as_deref(), &args.watch_namespace)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let other_versions = other_versions(&target, &plan).await?;
        let (definitions, mut others): (Vec<Value>, Vec<Value>) = plan.objects.into_iter().partition(is_definition);
        others.extend(other_versions);
        let options = remove::Options {
            namespace: plan.namespace.clone(),
            timeout: Duration::from_secs(args.timeout),
            remove_finalizers: args.remove_finalizers,
        };
        output::note(format_args!("removing {} from the namespace {}", plan.name, plan.namespace));
        let mut done = Vec::new();
        // While the operator runs: it cleans up after its objects.
        if !args.keep_crds {
            uninstall::consent(&target, &definitions, args.yes).await?;
            let report = report::line(args.output, false);
            done.extend(remove::remove(&target.client, definitions, &options, report).await?);
        }
        let mut kept = Vec::new();
        for name in others.iter().filter(|one| one["kind"] == "Namespace").map(|one| text(&one["metadata"]["name"])) {
            let found = apply::get(&target.client, &namespace_path(&name)).await?;
            if found.is_some_and(|found| !is_owned(&found, &plan.name)) {
                output::note(format_args!("the namespace {name} stays: it was there before"));
                kept.push(name);
            }
        }
        others.retain(|one| one["kind"] != "Namespace" || !kept.contains(&text(&one["metadata"]["name"])));
        let made = made::outside_of(made::candidates(&others, &plan.namespace), &others);
        // An operator that still runs would make its Lease again.
        let (programs, mut others): (Vec<Value>, Vec<Value>) = others.into_iter().partition(remove::has_pods);
        done.extend(remove::remove(&target.client, programs, &options, report::line(args.output, false)).await?);
        others.extend(made::find(&target.client, made).await);
        done.extend(remove::remove(&target.client, others, &options, report::line(args.output, false)).await?);
        Ok(report::finish(&target, &done, args.output, false))
    })
}

/// The directory with the manifests, as the bundle's annotations say.
fn manifests(bundle: &Path) -> Result<PathBuf> {
    if !bundle.is_dir() {
        bail!("there is no directory {}; `windlass manifests bundle` writes one", bundle.display());
    }
    let file = bundle.join("metadata").join("annotations.yaml");
    let mut directory = bundle.join("manifests");
    if file.is_file() {
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = windlass_api::codec::yaml::parse(&text);
        let parsed = parsed.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        let annotation = |name: &str| {
            let name = format!("operators.operatorframework.io.bundle.{name}.v1");
            parsed.value["annotations"][name].as_str().map(str::to_owned)
        };
        if let Some(format) = annotation("mediatype").filter(|format| format != FORMAT) {
            bail!("the bundle has the format {format:?}; only {FORMAT:?} is supported");
        }
        if let Some(path) = annotation("manifests") {
            directory = bundle.join(path);
        }
    }
    if !directory.is_dir() {
        bail!("the bundle has no directory {}", directory.display());
    }
    Ok(directory)
}

/// The text of a field, empty if there is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
