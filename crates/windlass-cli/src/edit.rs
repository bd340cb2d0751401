//! `windlass edit`: changes the settings of a project.

use std::process::ExitCode;

use anyhow::Result;
use windlass_scaffold::command;

use crate::args::Edit;
use crate::{output, project};

pub(crate) fn run(args: Edit) -> Result<ExitCode> {
    if args.ignored.plugins.is_some_and(|plugins| plugins.contains("helm")) {
        output::note("a chart needs no plugin: `windlass manifests chart` writes one");
    }
    let edit = command::Edit {
        multigroup: args.multigroup,
        namespaced: args.namespaced,
        license: args.license.map(Into::into),
        owner: args.owner,
        header: args.license_file.as_deref().map(project::header).transpose()?,
    };
    project::change(&args.change, |project| command::edit(project, edit), "cargo test --workspace")
}
