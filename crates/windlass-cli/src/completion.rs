//! `windlass completion`: a script that lets a shell complete the command line.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::args::{Args, Completion};
use crate::output;

pub(crate) fn run(args: &Completion) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "windlass", &mut script);
    let script = String::from_utf8(script).context("the script is not text")?;
    output::line(script.trim_end());
    Ok(ExitCode::SUCCESS)
}
