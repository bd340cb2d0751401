//! The `windlass` command.
//!
//! Arguments are parsed in [`args`] and resolved by the command that uses them; each command is one file.

mod against;
mod apply;
mod args;
mod bundle;
mod completion;
mod create;
mod delete;
mod demo;
mod deploy;
mod dev;
mod doctor;
mod down;
mod edit;
mod generate;
mod guard;
mod home;
mod image;
mod init;
mod install;
mod kubeconfig;
mod kubeconfig_file;
mod list;
mod logging;
mod man;
mod manifests;
mod memory;
mod nodes;
mod open_files;
mod operator;
mod output;
mod paint;
mod private;
mod project;
mod rbac;
mod run;
mod screen;
mod signals;
mod status;
mod stopping;
mod test;
mod uninstall;
mod up;
mod upgrade;
mod version;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use windlass_scaffold::name::NameError;
use windlass_scaffold::scaffold::ScaffoldError;

use args::{Args, Command};

/// The exit code of a command line that makes no sense, as clap has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // The processes of pods are this program, too.
    #[cfg(target_os = "linux")]
    if let Some(code) = windlass_container::entry() {
        return code;
    }
    let args = Args::parse();
    match run(args.command) {
        // A program that reads the output must not take silence for success.
        Ok(_) if !output::complete() => ExitCode::FAILURE,
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            if is_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    if command.works_on_project() {
        // Before anything is built, asked for or written.
        project::check(&project::root(Path::new(".")))?;
    }
    match command {
        Command::Init(init) => init::run(init),
        Command::Create(create) => create::run(create),
        Command::Delete(delete) => delete::run(delete),
        Command::Edit(edit) => edit::run(edit),
        Command::Generate(generate) => generate::run(&generate),
        Command::Upgrade(upgrade) => upgrade::run(&upgrade),
        Command::Up(up) => up::run(&up),
        Command::Down(down) => down::run(&down),
        Command::Status(status) => status::run(&status),
        Command::List(list) => list::run(&list),
        Command::Kubeconfig(kubeconfig) => kubeconfig::run(&kubeconfig),
        Command::Nodes(nodes) => nodes::run(&nodes),
        Command::Rbac(args) => rbac::run(&args),
        Command::Manifests(manifests) => manifests::run(&manifests),
        Command::Install(install) => install::run(&install),
        Command::Uninstall(uninstall) => uninstall::run(&uninstall),
        Command::Run(args) => run::run(&args),
        Command::Apply(apply) => apply::run(&apply),
        Command::Deploy(args) => deploy::run(&args),
        Command::Undeploy(args) => deploy::undo(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Image(args) => image::run(&args),
        Command::Demo(demo) => demo::run(&demo),
        Command::Dev(dev) => dev::run(&dev),
        Command::Test(test) => test::run(&test),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Guard(guard) => guard::run(&guard),
        Command::Completion(completion) => completion::run(&completion),
        Command::Man(man) => man::run(&man),
        Command::Version(version) => Ok(version::run(&version)),
    }
}

/// Whether the command line is what is wrong, in a way that its parser cannot see.
fn is_usage(error: &anyhow::Error) -> bool {
    let command = error.downcast_ref::<ScaffoldError>().is_some_and(|error| match error {
        ScaffoldError::Command(error) => error.is_usage(),
        ScaffoldError::NotADirectory { .. } => true,
        _ => false,
    });
    command || error.is::<NameError>() || error.is::<output::Usage>()
}
