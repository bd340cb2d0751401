//! `windlass delete`: takes kinds and webhooks away from a project again.

use std::process::ExitCode;

use anyhow::Result;
use windlass_scaffold::command::{self, Selector, Webhooks};

use crate::args::{Delete, DeleteApi, DeleteWebhook};
use crate::project;

pub(crate) fn run(args: Delete) -> Result<ExitCode> {
    match args {
        Delete::Api(args) => api(args),
        Delete::Webhook(args) => webhook(args),
    }
}

fn api(args: DeleteApi) -> Result<ExitCode> {
    let selector = Selector::from(args.selected);
    project::change(&args.change, |project| command::delete_api(project, &selector), "cargo test --workspace")
}

fn webhook(args: DeleteWebhook) -> Result<ExitCode> {
    let selector = Selector::from(args.selected);
    let gone = Webhooks {
        defaulting: args.defaulting,
        validation: args.validation,
        conversion: args.conversion,
        spokes: Vec::new(),
    };
    project::change(
        &args.change,
        |project| command::delete_webhook(project, &selector, &gone),
        "cargo test --workspace",
    )
}
