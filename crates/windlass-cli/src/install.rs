//! `windlass install`: the kinds of a project, on a cluster.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::against::target::Target;
use crate::against::{self, apply, report};
use crate::args::Install;
use crate::operator;

pub(crate) fn run(args: &Install) -> Result<ExitCode> {
    if args.filename.is_none() {
        // A build takes long; what is known to fail afterwards is said before.
        Target::check(&args.target)?;
    }
    let definitions = operator::definitions(args.filename.as_deref(), &args.operator, &args.arguments)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        let options = apply::Options {
            namespace: target.namespace.clone(),
            dry_run: false,
            // The definitions are the project's own.
            force: true,
            timeout: Duration::from_secs(args.timeout),
            notes: true,
        };
        let done = apply::apply(&target.client, definitions, &options, report::line(args.output, false)).await?;
        Ok(report::finish(&target, &done, args.output, false))
    })
}
