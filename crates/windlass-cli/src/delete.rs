//! `windlass delete`: takes kinds and webhooks away from a project again.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use windlass_scaffold::command::{self, CommandError, Selector, Webhooks};
use windlass_scaffold::leftover::{self, Leftover};
use windlass_scaffold::{Project, scaffold};

use crate::args::{Change, Delete, DeleteApi, DeleteClient, DeleteWebhook};
use crate::signals::uninterrupted;
use crate::{output, project};

const NEXT: &str = "cargo test --workspace; windlass manifests --write";

pub(crate) fn run(args: Delete) -> Result<ExitCode> {
    match args {
        Delete::Api(args) => api(args),
        Delete::Webhook(args) => webhook(args),
        Delete::Client(args) => client(&args),
    }
}

fn api(args: DeleteApi) -> Result<ExitCode> {
    let selector = Selector::from(args.selected);
    change(&args.change, |project| match &args.controller_name {
        Some(name) => command::delete_controller(project, &selector, name),
        None => command::delete_api(project, &selector),
    })
}

fn client(args: &DeleteClient) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let plan = uninterrupted(|| scaffold::delete_client(&root, project::mode(&args.change)))?;
    project::report(&plan, &args.change, "cargo test --workspace");
    Ok(ExitCode::SUCCESS)
}

/// Takes something away, and names the lines of the user's own code that need it.
fn change(args: &Change, delete: impl FnOnce(&mut Project) -> Result<(), CommandError>) -> Result<ExitCode> {
    let (mut before, mut after) = (None, None);
    let recorded = |project: &mut Project| {
        before = Some(project.clone());
        delete(project)?;
        after = Some(project.clone());
        Ok(())
    };
    let code = project::change(args, recorded, NEXT)?;
    let (Some(before), Some(after)) = (before, after) else { return Ok(code) };
    if args.dry_run {
        return Ok(code);
    }
    let root = project::root(Path::new("."));
    let leftovers = leftover::find(&root, &before, &after);
    if !leftovers.is_empty() {
        output::note("your code still names what is gone; change or remove these lines:");
    }
    for Leftover { path, line, text } in leftovers {
        output::note(format_args!("  {path}:{line}: {text}"));
    }
    Ok(code)
}

fn webhook(args: DeleteWebhook) -> Result<ExitCode> {
    let selector = Selector::from(args.selected);
    let gone = Webhooks {
        defaulting: args.defaulting,
        validation: args.validation,
        conversion: args.conversion,
        spokes: args.spoke,
        ..Webhooks::default()
    };
    change(&args.change, |project| command::delete_webhook(project, &selector, &gone))
}
