//! The errors of a cluster.

use std::path::PathBuf;

use windlass::manager::ManagerError;
use windlass_server::ServerError;
use windlass_server::pki::PkiError;
use windlass_store::OpenError;

/// Why a cluster could not start or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The data directory cannot be used.
    #[error("cannot open the data directory {path}: {source}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// The data directory cannot be made.
    #[error("cannot create the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Other users could change what is in a directory of the cluster.
    #[error("the directory {path} cannot be used: {problem}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Who could, and what to do about it.
        problem: String,
    },
    /// The API server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The built-in controllers.
    #[error("cannot start the built-in controllers: {0}")]
    Controllers(#[from] ManagerError),
    /// The definitions of kwok's kinds.
    #[error("cannot create the definitions of kwok's kinds: {0}")]
    Kwok(#[from] kube::Error),
}
