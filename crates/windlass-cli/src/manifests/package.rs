//! What an operator is shipped as, made of `config/`: one file, a chart, or a bundle.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use windlass_scaffold::kustomize::KustomizeError;
use windlass_scaffold::manifests::is_definition;
use windlass_scaffold::plan::Change;
use windlass_scaffold::scaffold::{self, ScaffoldError};
use windlass_scaffold::{Plan, Project, Tree, bundle, chart, kustomize, package, write};

use crate::args::{ManifestFormat, ManifestKind, Manifests};
use crate::signals::uninterrupted;
use crate::{output, project};

/// Helm keeps a release in a Secret, which may have 1 MiB: the templates and the objects, compressed to about a tenth.
const HELM_LIMIT: usize = 4 << 20;

pub(super) fn run(args: &Manifests) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let project = scaffold::open(&root)?;
    let options = Options {
        image: args.image.clone(),
        version: args.version.clone(),
        channel: args.channel.clone(),
        definitions: !args.skip_crds,
    };
    let mut plan = plan(&root, &project, args.kind, &options, args.force)?;
    if !plan.conflicts.is_empty() {
        return Err(ScaffoldError::Conflicts(plan.conflicts).into());
    }
    uninterrupted(|| write::write(&root, &plan))?;
    plan.changes.retain(is_visible);
    if report(args, &plan) {
        return Ok(ExitCode::SUCCESS);
    }
    for change in &plan.changes {
        output::line(format_args!("{} {}", change.verb(), change.path));
    }
    if plan.changes.is_empty() {
        output::line("up to date");
    }
    Ok(ExitCode::SUCCESS)
}

/// What a package is made with.
struct Options {
    image: Option<String>,
    version: String,
    channel: String,
    definitions: bool,
}

/// Whether a change is one of the package, not of the record of it.
pub(super) fn is_visible(change: &Change) -> bool {
    !change.path.starts_with(".windlass/")
}

/// Prints what changes for programs, if a format was asked for.
pub(super) fn report(args: &Manifests, plan: &Plan) -> bool {
    let Some(format) = args.output else { return false };
    let document = json!({"upToDate": plan.changes.is_empty(), "changes": project::changes(plan)});
    match format {
        ManifestFormat::Json => output::json(&document),
        ManifestFormat::Yaml => output::yaml(&document),
    }
    true
}

fn plan(root: &Path, project: &Project, kind: ManifestKind, options: &Options, force: bool) -> Result<Plan> {
    let objects = package::installation(root, options.image.as_deref());
    let objects = objects.map_err(|error| match &error {
        KustomizeError::Missing { .. } => {
            anyhow::Error::from(error).context("config/default is not complete; run `windlass manifests --write` first")
        }
        _ => error.into(),
    })?;
    Ok(match kind {
        // The one file is not edited: it is what `kubectl apply` is given.
        ManifestKind::Install => Plan::new(root, &Tree::default(), &installer(&objects), true)?,
        ManifestKind::Chart => package::plan(root, "chart", &helm(root, project, &objects, options)?, force)?,
        _ => package::plan(root, "bundle", &olm(root, project, &objects, options)?, force)?,
    })
}

/// What is not up to date of the packages that there are, each made again with the options that it was made with.
pub(super) fn drift(root: &Path, project: &Project) -> Result<Vec<(&'static str, Plan)>> {
    let mut found = Vec::new();
    for (name, kind, file) in [
        ("install", ManifestKind::Install, "dist/install.yaml"),
        ("chart", ManifestKind::Chart, "dist/chart/Chart.yaml"),
        ("bundle", ManifestKind::Bundle, "bundle/metadata/annotations.yaml"),
    ] {
        if !root.join(file).exists() {
            continue;
        }
        let mut plan = plan(root, project, kind, &earlier(root, project, kind)?, false)?;
        plan.changes.retain(is_visible);
        // Where the user's edits contradict, the package is not up to date either.
        plan.changes.extend(plan.conflicts.drain(..).map(|conflict| conflict.wanted));
        if !plan.changes.is_empty() {
            found.push((name, plan));
        }
    }
    Ok(found)
}

/// The options that a package was made with, as its files say.
fn earlier(root: &Path, project: &Project, kind: ManifestKind) -> Result<Options> {
    let read = |path: &str| -> Result<Vec<Value>> {
        // What was generated comes first: the user may have edited the files.
        let recorded = package::recorded(root, if kind == ManifestKind::Chart { "chart" } else { "bundle" });
        let recorded = recorded.and_then(|tree| tree.get(path).map(str::to_owned));
        let text = match recorded.filter(|_| kind != ManifestKind::Install) {
            Some(text) => text,
            None => std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?,
        };
        let documents = serde_saphyr::from_multiple(&text);
        documents.map_err(|error| anyhow::anyhow!("{path}: {error}"))
    };
    let first = |path: &str| Ok::<_, anyhow::Error>(read(path)?.into_iter().next().unwrap_or_default());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut options = Options { image: None, version: "0.1.0".into(), channel: "alpha".into(), definitions: true };
    match kind {
        ManifestKind::Install => options.image = package::image(&read("dist/install.yaml")?),
        ManifestKind::Chart => {
            options.image = package::chart_image(&first("dist/chart/values.yaml")?);
            options.version = text(&first("dist/chart/Chart.yaml")?["version"]).unwrap_or(options.version);
            options.definitions = root.join("dist/chart/templates/crd").exists();
        }
        _ => {
            let name = project.project_name.as_str();
            let version = first(&format!("bundle/manifests/{name}.clusterserviceversion.yaml"))?;
            let deployments = version["spec"]["install"]["spec"]["deployments"].as_array().cloned().unwrap_or_default();
            let deployment = |one: &Value| json!({"kind": "Deployment", "spec": one["spec"]});
            options.image = package::image(&deployments.iter().map(deployment).collect::<Vec<_>>());
            options.version = text(&version["spec"]["version"]).unwrap_or(options.version);
            let annotations = &first("bundle/metadata/annotations.yaml")?["annotations"];
            let channels = text(&annotations["operators.operatorframework.io.bundle.channels.v1"]);
            options.channel = channels.unwrap_or(options.channel);
        }
    }
    Ok(options)
}

fn installer(objects: &[Value]) -> Tree {
    let mut tree = Tree::default();
    let definitions: Vec<Value> = objects.iter().filter(|object| is_definition(object)).cloned().collect();
    tree.add("dist/install.yaml", kustomize::to_yaml(objects));
    tree.add("dist/crds.yaml", kustomize::to_yaml(&definitions));
    tree
}

fn helm(root: &Path, project: &Project, objects: &[Value], options: &Options) -> Result<Tree> {
    let optional = package::optional(root, objects)?;
    let image = package::image(objects).context("config/default has no Deployment with a container `manager`")?;
    let input = chart::Input {
        name: project.project_name.as_str(),
        version: &options.version,
        objects,
        optional: &optional,
        image: &image,
        definitions: options.definitions,
    };
    let tree = chart::chart(&input);
    let size: usize = tree.iter().map(|(_, content)| content.len()).sum();
    if size > HELM_LIMIT {
        output::note(format_args!(
            "the chart has {} MiB, and Helm may fail to keep a release of it in a Secret: leave the CRDs out with \
             --skip-crds, and install dist/crds.yaml first",
            size >> 20
        ));
    }
    Ok(tree)
}

fn olm(root: &Path, project: &Project, objects: &[Value], options: &Options) -> Result<Tree> {
    let samples = if root.join(package::SAMPLES).exists() {
        kustomize::build(root, package::SAMPLES).context("cannot render config/samples")?
    } else {
        Vec::new()
    };
    if package::image(objects).is_none() {
        bail!("config/default has no Deployment with a container `manager`");
    }
    let input = bundle::Input {
        name: project.project_name.as_str(),
        version: &options.version,
        channel: &options.channel,
        objects,
        samples: &samples,
        namespaced: project.namespaced,
    };
    Ok(bundle::bundle(&input))
}
