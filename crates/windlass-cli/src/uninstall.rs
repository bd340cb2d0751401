//! `windlass uninstall`: takes the kinds of a project away, with all their objects.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::against::target::Target;
use crate::against::{self, remove, report};
use crate::args::Uninstall;
use crate::{operator, output};

pub(crate) fn run(args: &Uninstall) -> Result<ExitCode> {
    if args.filename.is_none() {
        // A build takes long; what is known to fail afterwards is said before.
        Target::check(&args.target)?;
    }
    let definitions = operator::definitions(args.filename.as_deref(), &args.operator, &args.arguments)?;
    against::block_on(async {
        let target = Target::connect(&args.target).await?;
        consent(&target, &definitions, args.yes).await?;
        let options = remove::Options {
            namespace: target.namespace.clone(),
            timeout: Duration::from_secs(args.timeout),
            remove_finalizers: args.remove_finalizers,
        };
        let done = remove::remove(&target.client, definitions, &options, report::line(args.output, false)).await?;
        Ok(report::finish(&target, &done, args.output, false))
    })
}

/// Says which objects would be lost, and goes on only if that is meant.
pub(crate) async fn consent(target: &Target, objects: &[Value], yes: bool) -> Result<()> {
    let losses = remove::losses(&target.client, objects).await?;
    if losses.is_empty() {
        return Ok(());
    }
    for loss in &losses {
        output::note(format_args!("to be deleted: {loss}"));
    }
    if yes {
        return Ok(());
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        bail!("these objects would be deleted with their kinds; --yes says that this is meant");
    }
    let _ = write!(std::io::stderr(), "Delete them from {:?}? [y/n] ", target.context);
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    bail!("nothing was deleted")
}
