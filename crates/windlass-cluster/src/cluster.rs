//! [`Cluster`]: server, store, certificates and controllers put together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass::manager::ManagerError;
use windlass_server::authn::{MASTERS, TokenKey, User};
use windlass_server::pki::{Authority, PkiError};
use windlass_server::{Listener, Server, ServerError};
use windlass_store::{Durable, DurableOptions, OpenError, Recovery, Store};

use crate::Credentials;
use crate::controllers::{Check, Controllers, Running, Setup};

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
    /// The API server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The built-in controllers.
    #[error("cannot start the built-in controllers: {0}")]
    Controllers(#[from] ManagerError),
}

/// Puts a cluster together.
#[must_use]
#[derive(Default)]
pub struct ClusterBuilder {
    data_dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    controllers: Controllers,
}

impl ClusterBuilder {
    /// Keeps everything in `dir`: objects in `dir/store`, the certificate authority in `dir/pki`.
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Serves TLS on `address`; port 0 picks a free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Runs these built-in controllers; all of them unless set.
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = controllers;
        self
    }

    /// Starts the cluster; when this returns it can be used. The controllers are not waited for.
    pub async fn start(self) -> Result<Cluster, ClusterError> {
        let mut builder = Server::builder();
        let mut recovery = None;
        let authority = match &self.data_dir {
            Some(dir) => {
                let (store, found) = open(dir.join("store")).await?;
                builder = builder.store(store);
                recovery = Some(found);
                let pki = dir.join("pki");
                create_private(&pki)?;
                builder = builder.token_key(TokenKey::load_or_generate(&pki)?);
                Authority::load_or_generate(&pki)?
            }
            None => Authority::generate()?,
        };
        let server = builder.start().await?;
        let listener = match self.listen {
            Some(address) => Some(server.listen(address, &authority).await?),
            None => None,
        };
        let api = Arc::clone(server.api());
        let check_policy: Check = Arc::new(move |policy: &serde_json::Value| {
            let warnings = api.check_policy(policy).into_iter();
            warnings.map(|warning| (warning.field_ref, warning.warning)).collect()
        });
        // Who acts can be told from an administrator by admission and in logs, as in a real cluster.
        let controllers = User::new("system:kube-controller-manager", [MASTERS.to_owned()]);
        let setup = Setup {
            client: kube::Client::new(server.service_as(controllers), "default"),
            authority: authority.certificate().to_owned(),
            kinds: server.api().crds.subscribe(),
            check_policy,
        };
        let controllers = Running::start(&self.controllers, setup)?;
        Ok(Cluster { server, listener, controllers, authority, recovery })
    }
}

async fn open(path: PathBuf) -> Result<(Arc<dyn Store>, Recovery), ClusterError> {
    let dir = path.clone();
    let opened = tokio::task::spawn_blocking(move || Durable::open(dir, DurableOptions::default())).await;
    match opened.expect("invariant: opening a store does not panic") {
        Ok((store, recovery)) => Ok((Arc::new(store), recovery)),
        Err(source) => Err(ClusterError::Open { path, source }),
    }
}

/// A directory that only its owner can look into.
fn create_private(path: &Path) -> Result<(), ClusterError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| ClusterError::Directory { path: path.to_owned(), source })
}

/// A running cluster. Dropping it stops it; [`stop`](Self::stop) also waits until it has stopped.
pub struct Cluster {
    server: Server,
    listener: Option<Listener>,
    controllers: Running,
    authority: Authority,
    recovery: Option<Recovery>,
}

impl Cluster {
    /// A cluster in memory, with no socket: for tests.
    pub async fn start() -> Result<Self, ClusterError> {
        Self::builder().start().await
    }

    /// A cluster with a data directory, a socket, or both.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// A client that reaches the cluster inside this process, as an administrator.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.server.service(), "default")
    }

    /// The API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The address that is listened on, if any.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(Listener::address)
    }

    /// What was found in the data directory, if there is one.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// What a client needs to reach the cluster as an administrator; `None` without a socket.
    pub fn credentials(&self) -> Result<Option<Credentials>, ClusterError> {
        let Some(address) = self.address() else { return Ok(None) };
        let identity = self.authority.client("kubernetes-admin", "system:masters")?;
        Ok(Some(Credentials::new(address, self.authority.certificate(), &identity)))
    }

    /// Stops serving, ends watches, and returns when everything is on disk.
    pub async fn stop(self) -> Result<(), ClusterError> {
        self.controllers.stop().await;
        if let Some(listener) = self.listener {
            listener.stop().await;
        }
        Ok(self.server.stop().await?)
    }
}
