//! The arguments of the commands about permissions.

use std::path::PathBuf;

use clap::Subcommand;

use super::Name;

#[derive(Debug, Subcommand)]
pub(crate) enum Rbac {
    /// Print the least roles that would have allowed what a user was seen doing, from an audit log
    Infer(RbacInfer),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RbacInfer {
    /// The user, for example system:serviceaccount:NAMESPACE:NAME. Requests that impersonate the user count, those of the
    /// user that impersonate others do not
    #[arg(long)]
    pub user: String,
    /// The audit log, of this or any other cluster; may be given several times. Unless given, that of the cluster that
    /// was started with `windlass up --audit-log`
    #[arg(long = "audit-log", value_name = "FILE")]
    pub audit_logs: Vec<PathBuf>,
    #[command(flatten)]
    pub name: Name,
    /// The name of the roles and bindings; made of the user's name unless given
    #[arg(long, value_name = "NAME")]
    pub role_name: Option<String>,
    /// Limit rules to the names of the objects that were read and written, where RBAC can
    #[arg(long)]
    pub resource_names: bool,
}
