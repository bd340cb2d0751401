//! Settings of the API server that have kube-apiserver's names.

use std::path::PathBuf;

/// How many requests the API server executes at once.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FlowControl {
    /// How many requests that only read are executed at once; together with --max-mutating-requests-inflight, the seats
    /// that priority levels share
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub max_requests_inflight: u32,
    /// How many requests that write are executed at once; added to --max-requests-inflight
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_mutating_requests_inflight: u32,
    /// Whether requests are classified, queued and limited by FlowSchemas and PriorityLevelConfigurations
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_priority_and_fairness: bool,
}

/// What the API server records about requests.
#[allow(clippy::struct_field_names, reason = "fields are named after flags, and flags as kube-apiserver's")]
#[allow(clippy::option_option, reason = "the flag may be absent, without a file or with one")]
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Audit {
    /// Record requests in this file, one JSON event per line; without a name, in a file beside the cluster's data that
    /// `windlass rbac infer` reads
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub audit_log: Option<Option<PathBuf>>,
    /// What is recorded about which requests: a Policy of audit.k8s.io/v1 in YAML or JSON. Unless given, the metadata of
    /// all requests
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    pub audit_policy: Option<PathBuf>,
    /// Begin a new audit file when this one has so many megabytes; 0 for never
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// Keep so many old audit files; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub audit_log_maxbackup: usize,
    /// Keep old audit files for so many days; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub audit_log_maxage: u32,
}
