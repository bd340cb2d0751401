//! What the transcripts were recorded from, and how `windlass up` is started to be the same.

use clap::ValueEnum;

/// A folder of scenarios that were recorded from the same components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// kube-apiserver and kube-controller-manager.
    Scenarios,
    /// A whole control plane, without kubelets.
    Cluster,
}

impl Profile {
    pub(crate) const ALL: [Self; 2] = [Self::Scenarios, Self::Cluster];

    /// The folder in the corpus.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Scenarios => "scenarios",
            Self::Cluster => "cluster",
        }
    }

    /// The list of scenarios that pass, in this repository.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Scenarios => "tests/conformance/passing.txt",
            Self::Cluster => "tests/conformance/passing-cluster.txt",
        }
    }

    /// Flags of `windlass up`.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Scenarios => {
                &["--nodes", "0", "--controllers=*,-kube-scheduler", "--disable-admission-plugins=ServiceAccount"]
            }
            Self::Cluster => &["--nodes", "0"],
        }
    }
}
