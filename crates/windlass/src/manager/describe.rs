//! What `windlass manifests` asks an operator: not to run, but to say what it needs.
//!
//! `WINDLASS_MANIFESTS` names a file. A manager that finds it set takes no port that was asked for, and
//! where it would start it adds its manifests to the file instead, one JSON object to a line, and is
//! done. No request is sent, so that a client of a cluster that is not there will do.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::rbac::Rules;

const VARIABLE: &str = "WINDLASS_MANIFESTS";

/// The file to write to, if the environment names one.
pub(super) fn asked() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Adds the definitions, the roles and the configurations of webhooks to the file.
pub(super) fn write(
    path: &Path,
    name: &str,
    rules: &Rules,
    definitions: &[CustomResourceDefinition],
    webhooks: Vec<Value>,
) -> io::Result<()> {
    let mut text = Vec::new();
    let definitions = definitions.iter().map(serde_json::to_value);
    let cluster = rules.cluster_role(name).map(serde_json::to_value).into_iter();
    let roles = rules.roles(name).into_iter().map(serde_json::to_value);
    for manifest in definitions.chain(cluster).chain(roles).chain(webhooks.into_iter().map(Ok)) {
        let manifest: Value = manifest?;
        writeln!(text, "{manifest}")?;
    }
    // In one piece: a process may have several managers.
    OpenOptions::new().append(true).create(true).open(path)?.write_all(&text)
}
