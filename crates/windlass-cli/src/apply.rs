//! `windlass apply`: server-side apply of files, what others need first.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::against::target::Target;
use crate::against::{self, apply, documents, report};
use crate::args::Apply;
use crate::project;

pub(crate) fn run(args: &Apply) -> Result<ExitCode> {
    let mut objects = documents::read(&args.filename, args.recursive)?;
    if let Some(directory) = &args.kustomize {
        objects.extend(render(directory)?);
    }
    if objects.is_empty() {
        let paths: Vec<String> =
            args.filename.iter().chain(&args.kustomize).map(|path| path.display().to_string()).collect();
        bail!("there are no objects in {}", paths.join(", "));
    }
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let options = apply::Options {
            namespace: args.namespace.clone().unwrap_or_else(|| target.namespace.clone()),
            dry_run: args.dry_run,
            force: args.force_conflicts,
            timeout: Duration::from_secs(args.timeout),
            notes: true,
        };
        let report = report::line(args.output, args.dry_run);
        let done = apply::apply(&target.client, objects, &options, report).await?;
        Ok(report::finish(&target, &done, args.output, args.dry_run))
    })
}

/// Renders a kustomization. The files that it names are those of the project around it, or those below it.
fn render(directory: &Path) -> Result<Vec<Value>> {
    let directory = std::path::absolute(directory)?;
    let directory = directory.canonicalize().with_context(|| format!("there is no {}", directory.display()))?;
    let root = project::root(&directory);
    // Without a project around it, bases beside the directory are what it may name.
    let root = if root.join("PROJECT").is_file() { root } else { Path::new("/").to_owned() };
    let below = directory.strip_prefix(&root).context("the project is around the directory")?;
    documents::render(&root, &below.to_string_lossy())
}
