//! `windlass bundle run`: what OLM does with a bundle, without OLM.

mod plan;
mod webhooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::against::target::Target;
use crate::against::{self, apply, documents, report, rollout};
use crate::args::{Bundle, BundleRun};
use crate::output;

/// The format of bundles that is understood.
const FORMAT: &str = "registry+v1";

pub(crate) fn run(args: &Bundle) -> Result<ExitCode> {
    match args {
        Bundle::Run(args) => install(args),
    }
}

fn install(args: &BundleRun) -> Result<ExitCode> {
    let manifests = documents::read(&[manifests(&args.directory)?], true)?;
    let plan = plan::Plan::new(manifests, args.namespace.as_deref(), &args.watch_namespace)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let options = apply::Options {
            namespace: plan.namespace.clone(),
            dry_run: false,
            force: true,
            timeout: Duration::from_secs(args.timeout),
        };
        output::note(format_args!("installing {} into the namespace {}", plan.name, plan.namespace));
        let done = apply::apply(&target.client, plan.objects, &options, report::line(args.output, false)).await?;
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

/// The directory with the manifests, as the bundle's annotations say.
fn manifests(bundle: &Path) -> Result<PathBuf> {
    if !bundle.is_dir() {
        bail!("there is no directory {}; `windlass manifests` writes a bundle", bundle.display());
    }
    let file = bundle.join("metadata").join("annotations.yaml");
    let mut directory = bundle.join("manifests");
    if file.is_file() {
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed = windlass_server::codec::yaml::parse(&text);
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
