//! The arguments of the commands of the inner loop.

use std::path::PathBuf;

use super::against::{Operator, Target};
use super::{Format, ListFormat, parse_namespace};

#[derive(Debug, clap::Args)]
pub(crate) struct Dev {
    /// Apply these samples, a file or a directory [default: config/samples]
    #[arg(long, value_name = "FILE|DIR")]
    pub samples: Option<PathBuf>,
    /// The namespace of the operator, and of samples that name none [default: that of the context, else default]
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// End when the samples are ready, with exit code 1 if they are not within --timeout
    #[arg(long)]
    pub once: bool,
    /// How many seconds the samples may take to be ready with --once, after the operator was built
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// Write a Tiltfile for this project and end
    #[arg(long)]
    pub tiltfile: bool,
    /// `json` prints one event per line
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub operator: Operator,
    /// Arguments of the operator's program
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// How the findings are printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub operator: Operator,
    /// Arguments of the operator's program
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Test {
    /// Run the tests with `cargo nextest`, which has to be installed
    #[arg(long)]
    pub nextest: bool,
    /// Do not start a cluster; tests that start their own need none
    #[arg(long)]
    pub no_cluster: bool,
    /// Arguments of `cargo test`, such as the name of a test
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// Runs a program that must not outlive the process that started this one.
#[derive(Debug, clap::Args)]
pub(crate) struct Guard {
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}
