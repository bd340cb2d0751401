//! `windlass edit`: changes the settings of a project.

use std::process::ExitCode;

use anyhow::Result;
use windlass_scaffold::command;

use crate::args::Edit;
use crate::project;

pub(crate) fn run(args: Edit) -> Result<ExitCode> {
    if let Some(owner) = &args.owner {
        anyhow::ensure!(!owner.contains(char::is_control), "--owner {owner:?}: use one line of text");
    }
    let edit = command::Edit {
        multigroup: args.multigroup,
        namespaced: args.namespaced,
        license: args.license.map(Into::into),
        owner: args.owner,
    };
    project::change(&args.change, |project| command::edit(project, edit), "cargo test --workspace")
}
