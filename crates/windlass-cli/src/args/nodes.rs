//! The arguments of the commands about simulated nodes.

use clap::Subcommand;

use super::{ListFormat, Target, parse_label};

#[derive(Debug, Subcommand)]
pub(crate) enum Nodes {
    /// Add simulated nodes to a cluster
    Add(NodesAdd),
    /// Drain nodes and take them out of a cluster
    Remove(NodesRemove),
    /// List the nodes of a cluster
    List(NodesList),
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesAdd {
    /// How many
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16_000))]
    pub count: u32,
    /// What their names begin with; a number follows
    #[arg(long, default_value = "node-", value_name = "TEXT")]
    pub prefix: String,
    /// The CPU that each has
    #[arg(long, default_value = "32", value_name = "QUANTITY")]
    pub cpu: String,
    /// The memory that each has
    #[arg(long, default_value = "256Gi", value_name = "QUANTITY")]
    pub memory: String,
    /// How many pods each may have
    #[arg(long, default_value_t = 110, value_name = "COUNT")]
    pub pods: u32,
    /// A label of each; may be given several times
    #[arg(short, long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub labels: Vec<(String, String)>,
    /// How many seconds the nodes may take to be ready
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub timeout: u64,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesRemove {
    /// The nodes
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Do not evict their pods first
    #[arg(long)]
    pub force: bool,
    /// How many seconds the eviction of their pods may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesList {
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListFormat,
    #[command(flatten)]
    pub target: Target,
}
