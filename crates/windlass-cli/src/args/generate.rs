//! The arguments of the commands that generate Rust.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Change, ListFormat};

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Make Rust types of CustomResourceDefinitions
    Types(GenerateTypes),
    /// Add clients, listers and informers of the project's kinds to its `api` package
    Client(GenerateClient),
}

#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub(crate) struct GenerateTypes {
    /// The file with the definitions, as YAML or JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub from_crd: PathBuf,
    /// Only this version [default: a module for each version]
    #[arg(long)]
    pub version: Option<String>,
    /// Only this kind [default: all kinds in the file]
    #[arg(long)]
    pub kind: Option<String>,
    /// Where to write: a file, or a directory that gets a file for each kind and a `mod.rs` [default: standard output]
    #[arg(short, long, value_name = "FILE|DIR", value_parser = parse_output)]
    pub output: Option<PathBuf>,
    /// Show what would change as a diff, and write nothing
    #[arg(long, requires = "output")]
    pub dry_run: bool,
    /// Replace files whose content is another; without this nothing is written then
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// Refuses what `--output` means at all other commands.
fn parse_output(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("a file or a directory is needed".to_owned()),
        "json" | "yaml" | "table" => Err(format!("types are written as Rust; for a file of this name, say ./{text}")),
        path => Ok(path.into()),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct GenerateClient {
    /// Write nothing, and fail if files would change
    #[arg(long, conflicts_with_all = ["dry_run", "force"])]
    pub check: bool,
    /// Show what would change as a diff, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Replace files that you have edited; without this they are merged, and nothing is written if that fails
    #[arg(long)]
    pub force: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
}

impl GenerateClient {
    pub(crate) fn change(&self) -> Change {
        Change { dry_run: self.dry_run || self.check, force: self.force, output: self.output }
    }
}
