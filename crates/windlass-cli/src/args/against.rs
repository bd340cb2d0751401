//! The arguments of the commands that work on a cluster.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{ListFormat, parse_image, parse_name, parse_namespace};

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
pub(crate) struct Apply {
    /// A file or directory with manifests, or - for standard input; may be given more than once
    #[arg(short, long, value_name = "FILE|DIR|-", required_unless_present = "kustomize")]
    pub filename: Vec<PathBuf>,
    /// A directory with a kustomization to render
    #[arg(short, long, value_name = "DIR")]
    pub kustomize: Option<PathBuf>,
    /// Look into the directories of directories as well
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// The namespace of objects that name none [default: that of the context, else default]
    #[arg(short, long, value_parser = parse_namespace)]
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
    pub output: ListFormat,
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
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// The address of this machine at which the cluster reaches the operator's webhooks [default: the loopback address
    /// for clusters on this machine, for others the address that leads to the API server]
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_address)]
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

#[derive(Debug, clap::Args)]
pub(crate) struct Deploy {
    /// The image of the operator [default: the one that the manifests name]
    #[arg(long, visible_alias = "img", value_name = "NAME[:TAG]", value_parser = parse_image)]
    pub image: Option<String>,
    /// Push the image to the registry that its name begins with
    #[arg(long, requires = "image", conflicts_with = "skip_build")]
    pub push: bool,
    /// The tar file to write the image to, if it is not pushed [default: target/NAME.tar]
    #[arg(long, value_name = "FILE", conflicts_with = "push")]
    pub file: Option<PathBuf>,
    /// Do not build the operator and its image: the cluster has the image
    #[arg(long)]
    pub skip_build: bool,
    /// The kustomization to apply, in the project
    #[arg(long, default_value = "config/default", value_name = "DIR")]
    pub directory: String,
    /// Do not wait until the operator runs
    #[arg(long)]
    pub no_wait: bool,
    /// How many seconds the rollout may take
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub operator: Operator,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Undeploy {
    /// The kustomization to delete, in the project
    #[arg(long, default_value = "config/default", value_name = "DIR")]
    pub directory: String,
    /// Leave the CRDs, and with them all objects of the project's kinds
    #[arg(long)]
    pub keep_crds: bool,
    /// Do not ask before objects of the kinds are deleted
    #[arg(short, long)]
    pub yes: bool,
    /// Take the finalizers of objects away instead of waiting for the operator to do its clean-up
    #[arg(long)]
    pub remove_finalizers: bool,
    /// How many seconds the deletion may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bundle {
    /// Install an operator from a bundle for OLM, in a cluster without OLM
    Run(BundleRun),
    /// Remove what `bundle run` installed
    Cleanup(BundleCleanup),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BundleRun {
    /// The directory of the bundle, which has `manifests/`
    #[arg(value_name = "DIR", default_value = "bundle")]
    pub directory: PathBuf,
    /// The namespace of the operator, which is created [default: the one that the bundle suggests, else NAME-system]
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// The namespaces that the operator watches [default: all, if the bundle supports that, else its own]
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = parse_namespace)]
    pub watch_namespace: Vec<String>,
    /// Do not wait until the operator runs
    #[arg(long)]
    pub no_wait: bool,
    /// How many seconds the rollout may take
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BundleCleanup {
    /// The directory of the bundle that was installed
    #[arg(value_name = "DIR", default_value = "bundle")]
    pub directory: PathBuf,
    /// The namespace of the operator [default: the one that the bundle suggests, else NAME-system]
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// The namespaces that the operator watches, as `bundle run` was given them
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = parse_namespace)]
    pub watch_namespace: Vec<String>,
    /// Leave the CRDs, and with them all objects of the bundle's kinds
    #[arg(long)]
    pub keep_crds: bool,
    /// Do not ask before objects of the kinds are deleted
    #[arg(short, long)]
    pub yes: bool,
    /// Take the finalizers of objects away instead of waiting for the operator to do its clean-up
    #[arg(long)]
    pub remove_finalizers: bool,
    /// How many seconds the deletion may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
}

/// An address, with a port or without.
fn parse_address(text: &str) -> Result<String, String> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0).to_string());
    }
    match text.parse::<SocketAddr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => Err("use an IP address, with or without a port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_may_have_a_port() {
        assert_eq!(parse_address("192.0.2.1").unwrap(), "192.0.2.1:0");
        assert_eq!(parse_address("192.0.2.1:9443").unwrap(), "192.0.2.1:9443");
        assert_eq!(parse_address("::1").unwrap(), "[::1]:0");
        assert_eq!(parse_address("[::1]").unwrap(), "[::1]:0");
        assert!(parse_address("example.com").unwrap_err().contains("an IP address"));
    }
}
