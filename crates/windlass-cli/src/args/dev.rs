//! The arguments of the commands of the inner loop.

use std::path::PathBuf;

use super::against::{Operator, Target};
use super::{Format, ListFormat, parse_name, parse_namespace};

#[derive(Debug, clap::Args)]
pub(crate) struct Dev {
    /// Apply these samples, a file or a directory [default: config/samples]
    #[arg(long, value_name = "FILE|DIR")]
    pub samples: Option<PathBuf>,
    /// The namespace of the operator, and of samples that name none [default: that of the context, else default]
    #[arg(short, long, value_parser = parse_namespace)]
    pub namespace: Option<String>,
    /// End when the samples are ready and the operator has reconciled, with exit code 1 if that is not so within
    /// --timeout
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
    pub target: DevTarget,
    #[command(flatten)]
    pub operator: Operator,
    /// Arguments of the operator's program
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// Which cluster the inner loop works on: one of the developer's own, where nothing can be broken, unless they say more.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct DevTarget {
    /// The context to use [default: none, the cluster is that of --embedded; with --kubeconfig its current one]
    #[arg(long, value_name = "NAME", conflicts_with = "embedded")]
    context: Option<String>,
    /// Use the cluster of this kubeconfig [default with --context: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "embedded")]
    kubeconfig: Option<PathBuf>,
    /// Use a cluster of `windlass up`, and start it if it does not run [default: default]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "default",
          value_parser = parse_name)]
    embedded: Option<String>,
}

impl DevTarget {
    pub(crate) fn target(&self) -> Target {
        let Self { context, kubeconfig, mut embedded } = self.clone();
        if context.is_none() && kubeconfig.is_none() {
            embedded.get_or_insert_with(|| "default".to_owned());
        }
        Target { context, kubeconfig, embedded }
    }
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
    /// Run only the tests whose names contain this
    pub name: Option<String>,
    /// Arguments of `cargo test`, such as `--lib`, or after another `--` those of the tests
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// Runs a program that must not outlive the process that started this one.
#[derive(Debug, clap::Args)]
pub(crate) struct Guard {
    #[arg(last = true, required = true)]
    pub command: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_loop_has_a_cluster_of_its_own() {
        let target = |context: Option<&str>, kubeconfig: Option<&str>, embedded: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            DevTarget { context: own(context), kubeconfig: kubeconfig.map(Into::into), embedded: own(embedded) }
                .target()
        };
        assert_eq!(target(None, None, None).embedded.as_deref(), Some("default"));
        assert_eq!(target(None, None, Some("scratch")).embedded.as_deref(), Some("scratch"));
        assert_eq!(target(Some("kind-dev"), None, None).embedded, None);
        assert_eq!(target(None, Some("config"), None).embedded, None);
    }
}
