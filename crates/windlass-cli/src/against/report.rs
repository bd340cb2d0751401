//! The results of a command, for people as they come and for programs at the end.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::apply::{Change, Done};
use super::target::Target;
use crate::args::ListFormat;
use crate::output;

/// Prints the result of an object, for people.
pub(crate) fn line(format: ListFormat, dry_run: bool) -> impl Fn(&Done) {
    move |done| {
        if format == ListFormat::Table {
            let dry_run = if dry_run { " (dry run)" } else { "" };
            output::line(format_args!("{} {}{dry_run}", done.title(), words(&done.change)));
        }
    }
}

fn words(change: &Change) -> String {
    match change {
        Change::Created => "created".to_owned(),
        Change::Configured => "configured".to_owned(),
        Change::Unchanged => "unchanged".to_owned(),
        Change::Deleted => "deleted".to_owned(),
        Change::Absent => "was not there".to_owned(),
        Change::Unchecked => "not checked: the server does not have the kind yet".to_owned(),
        Change::Failed(why) => format!("failed: {why}"),
    }
}

/// What programs are given about an object.
fn value(done: &Done) -> Value {
    let (change, error) = match &done.change {
        Change::Created => ("created", None),
        Change::Configured => ("configured", None),
        Change::Unchanged => ("unchanged", None),
        Change::Deleted => ("deleted", None),
        Change::Absent => ("absent", None),
        Change::Unchecked => ("unchecked", None),
        Change::Failed(why) => ("failed", Some(why)),
    };
    let mut value = json!({
        "apiVersion": done.api_version, "kind": done.kind, "name": done.name, "result": change,
    });
    if let Some(namespace) = &done.namespace {
        value["namespace"] = namespace.as_str().into();
    }
    if let Some(error) = error {
        value["error"] = error.as_str().into();
    }
    value
}

/// Ends a command that has changed objects: exits 1 if one failed.
pub(crate) fn finish(target: &Target, done: &[Done], format: ListFormat, dry_run: bool) -> ExitCode {
    output::document(format, || {
        let objects: Vec<Value> = done.iter().map(value).collect();
        json!({"context": target.context, "server": target.server, "dryRun": dry_run, "objects": objects})
    });
    let failed = done.iter().filter(|done| done.failed()).count();
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    output::error(&anyhow::anyhow!("{failed} of {} objects failed", done.len()));
    ExitCode::FAILURE
}
