//! `windlass apply`: server-side apply of files, what others need first.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::against::target::Target;
use crate::against::{self, apply, documents, report};
use crate::args::Apply;

pub(crate) fn run(args: &Apply) -> Result<ExitCode> {
    let objects = documents::read(&args.filename, args.recursive)?;
    if objects.is_empty() {
        let paths: Vec<String> = args.filename.iter().map(|path| path.display().to_string()).collect();
        bail!("there are no objects in {}", paths.join(", "));
    }
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let options = apply::Options {
            namespace: args.namespace.clone().unwrap_or_else(|| target.namespace.clone()),
            dry_run: args.dry_run,
            force: args.force_conflicts,
            timeout: Duration::from_secs(args.timeout),
        };
        let report = report::line(args.output, args.dry_run);
        let done = apply::apply(&target.client, objects, &options, report).await?;
        Ok(report::finish(&target, &done, args.output, args.dry_run))
    })
}
