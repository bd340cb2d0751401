//! What an operator is shipped as, made of `config/`: one file, a chart, or a bundle.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use windlass_scaffold::manifests::is_definition;
use windlass_scaffold::scaffold::{self, ScaffoldError};
use windlass_scaffold::{Plan, Project, Tree, bundle, chart, kustomize, package, write};

use crate::args::{ManifestKind, Manifests};
use crate::image::Reference;
use crate::{output, project};

/// Helm keeps a release in a Secret, which may have 1 MiB: the templates and the objects, compressed to about a tenth.
const HELM_LIMIT: usize = 4 << 20;

pub(super) fn run(args: &Manifests) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let project = scaffold::open(&root)?;
    if let Some(image) = &args.image {
        // A digest may follow: what is installed is in a registry already.
        image.split_once('@').map_or(image.as_str(), |(name, _)| name).parse::<Reference>()?;
    }
    let objects = package::installation(&root, args.image.as_deref());
    let objects =
        objects.context("cannot render config/default; `windlass manifests --write` writes what is missing")?;
    let (name, tree) = match args.kind {
        ManifestKind::Install => ("install", installer(&objects)),
        ManifestKind::Chart => ("chart", helm(&root, &project, &objects, args)?),
        _ => ("bundle", olm(&root, &project, &objects, args)?),
    };
    let plan = match args.kind {
        // Nobody edits the one file: it is what `kubectl apply` is given.
        ManifestKind::Install => Plan::new(&root, &Tree::default(), &tree, true)?,
        _ => package::plan(&root, name, &tree, args.force)?,
    };
    if !plan.conflicts.is_empty() {
        return Err(ScaffoldError::Conflicts(plan.conflicts).into());
    }
    write::write(&root, &plan)?;
    let visible: Vec<_> = plan.changes.iter().filter(|change| !change.path.starts_with(".windlass/")).collect();
    for change in &visible {
        output::line(format_args!("{} {}", change.verb(), change.path));
    }
    if visible.is_empty() {
        output::line("up to date");
    }
    Ok(ExitCode::SUCCESS)
}

fn installer(objects: &[Value]) -> Tree {
    let mut tree = Tree::default();
    let definitions: Vec<Value> = objects.iter().filter(|object| is_definition(object)).cloned().collect();
    tree.add("dist/install.yaml", kustomize::to_yaml(objects));
    tree.add("dist/crds.yaml", kustomize::to_yaml(&definitions));
    tree
}

fn helm(root: &Path, project: &Project, objects: &[Value], args: &Manifests) -> Result<Tree> {
    let optional = package::optional(root, objects)?;
    let image = package::image(objects).context("config/default has no Deployment with a container `manager`")?;
    let input = chart::Input {
        name: project.project_name.as_str(),
        version: &args.version,
        objects,
        optional: &optional,
        image: &image,
        definitions: !args.skip_crds,
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

fn olm(root: &Path, project: &Project, objects: &[Value], args: &Manifests) -> Result<Tree> {
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
        version: &args.version,
        channel: &args.channel,
        objects,
        samples: &samples,
        namespaced: project.namespaced,
    };
    Ok(bundle::bundle(&input))
}
