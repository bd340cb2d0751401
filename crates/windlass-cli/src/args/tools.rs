//! The arguments of the commands about the command itself, and how lists are printed.

use std::path::PathBuf;

use clap::ValueEnum;

/// How something that is listed or reported is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// For people
    #[default]
    #[value(alias = "text")]
    Table,
    /// For programs
    Json,
    /// The same, as YAML
    Yaml,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completion {
    /// The shell to complete commands in
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write a page for every command into this directory, instead of printing the first
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct Version {
    /// How the version is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: VersionFormat,
}

/// How the version is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionFormat {
    /// For people
    #[default]
    #[value(alias = "table")]
    Text,
    /// For programs
    Json,
    /// The same, as YAML
    Yaml,
}

/// How a document is printed that programs read in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    #[default]
    #[value(alias = "text")]
    Yaml,
    Json,
}
