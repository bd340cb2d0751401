//! `windlass completion`: a script that lets a shell complete the command line.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};

use crate::args::{Args, Completion};
use crate::output;

pub(crate) fn run(args: &Completion) -> Result<ExitCode> {
    let mut script = Vec::new();
    let mut command = visible(&Args::command()).version(env!("CARGO_PKG_VERSION")).propagate_version(true);
    clap_complete::generate(args.shell, &mut command, "windlass", &mut script);
    let script = String::from_utf8(script).context("the script is not text")?;
    output::line(script.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The command line without what `--help` does not show: a shell would offer it.
fn visible(command: &Command) -> Command {
    // A name has to live as long as the process, which ends when the script is printed.
    let mut shown = Command::new(&*command.get_name().to_owned().leak())
        .disable_version_flag(command.is_disable_version_flag_set())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).map(visible));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    shown
}
