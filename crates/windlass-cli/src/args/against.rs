//! The arguments of the commands that work on a cluster, whichever one that is.

use std::path::PathBuf;

use super::{Format, parse_name};

/// Which cluster a command works on.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Target {
    /// The context to use [default: the current one of your kubeconfig]
    #[arg(long, value_name = "NAME", conflicts_with = "embedded")]
    pub context: Option<String>,
    /// The kubeconfig to use [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "embedded")]
    pub kubeconfig: Option<PathBuf>,
    /// Use a cluster of `windlass up`, and start it if it does not run [default name: default]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "default",
          value_parser = parse_name)]
    pub embedded: Option<String>,
}

/// The operator's program, which knows the kinds and roles of the project.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Operator")]
pub(crate) struct Operator {
    /// The package of the operator, which cargo builds [default: the one in this directory]
    #[arg(short, long, value_name = "PACKAGE")]
    pub package: Option<String>,
    /// The operator's program, if the package has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// Use this program instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["package", "bin"])]
    pub program: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    /// Install the CRDs of this file or directory instead of those that the operator's code declares
    #[arg(short, long, value_name = "FILE|DIR")]
    pub filename: Option<PathBuf>,
    /// How many seconds the cluster may take to serve the kinds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
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
pub(crate) struct Uninstall {
    /// Remove the CRDs of this file or directory instead of those that the operator's code declares
    #[arg(short, long, value_name = "FILE|DIR")]
    pub filename: Option<PathBuf>,
    /// Do not ask before objects of the kinds are deleted
    #[arg(short, long)]
    pub yes: bool,
    /// Take the finalizers of objects away instead of waiting for the operator to do its clean-up
    #[arg(long)]
    pub remove_finalizers: bool,
    /// How many seconds the deletion may take
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
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
pub(crate) struct Apply {
    /// A file or directory with manifests, or - for standard input; may be given more than once
    #[arg(short, long, value_name = "FILE|DIR|-", required = true)]
    pub filename: Vec<PathBuf>,
    /// Look into the directories of directories as well
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// The namespace of objects that name none [default: that of the context, else default]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Let the server check and show what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take over fields that another program has set to other values
    #[arg(long)]
    pub force_conflicts: bool,
    /// How many seconds a kind may take to be served after its CRD was applied
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Do not install the CRDs that the operator's code declares
    #[arg(long)]
    pub skip_install: bool,
    /// Run with the permissions of the operator's roles only: as the ServiceAccount NAME of the operator's namespace,
    /// which is created with these roles
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "controller-manager")]
    pub as_service_account: Option<String>,
    /// The namespace that the operator works from [default: that of the context, else default]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The address of this machine at which the cluster reaches the operator's webhooks [default: the loopback address
    /// for clusters on this machine, for others the address that leads to the API server]
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub webhook_address: Option<String>,
    /// How many seconds the cluster may take to serve the kinds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub operator: Operator,
    /// Arguments of the operator's program
    #[arg(last = true)]
    pub arguments: Vec<String>,
}
