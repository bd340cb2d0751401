//! `windlass man`: manual pages, from the same descriptions as `--help`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::args::{Args, Man};
use crate::output;

pub(crate) fn run(args: &Man) -> Result<ExitCode> {
    let command = Args::command();
    let Some(directory) = &args.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::line(String::from_utf8(page).context("the page is not text")?.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory));
    written.with_context(|| format!("cannot write into {}", directory.display()))?;
    output::line(format_args!("wrote manual pages to {}", directory.display()));
    Ok(ExitCode::SUCCESS)
}
