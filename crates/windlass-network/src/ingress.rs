//! Ingress: HTTP requests from outside the cluster to its Services, by host and path.
//!
//! [`routes`] decides where a request goes, [`proxy`] takes it there, [`certificates`] has the certificates of hosts. An
//! [`Ingress`](IngressController) puts them together: it listens on ports of the machine and follows the Ingresses of the
//! class `windlass`, and those that name no class if the IngressClass is the default.

pub mod certificates;
pub mod proxy;
pub mod routes;

mod status;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use windlass::cache::Scope;
use windlass::controller::Watch;
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, ReconcileKey};

use crate::controller::Services;
use certificates::Certificates;
use proxy::{Client, Connect, Proxy};
use routes::{Routes, is_of_class};

/// The name of the IngressClass.
pub const CLASS: &str = "windlass";
/// What an IngressClass of ours has in `spec.controller`.
pub const CONTROLLER: &str = "windlass.dev/ingress";
/// The annotation that makes an IngressClass the default.
pub(crate) const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// How long a client may take to agree on encryption.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of one listener at the same time.
const MOST_CONNECTIONS: usize = 4096;
/// The one key that is reconciled: the table is made of all Ingresses.
const ALL: &str = "all";

/// What makes Ingresses work.
#[derive(Debug, Clone)]
pub struct IngressController {
    proxy: Proxy,
    certificates: Arc<Certificates>,
    /// What Ingresses get as their address: a host and its ports.
    published: Option<(Arc<str>, Arc<[u16]>)>,
}

impl IngressController {
    /// Takes requests to these Services, whose endpoints it connects to with a function. Hosts without a certificate of their
    /// own have the default one, if there is any.
    pub fn new(services: Services, connect: Connect, default: Option<Arc<CertifiedKey>>) -> Self {
        let certificates = Arc::new(Certificates::new(default));
        Self { proxy: Proxy::new(services, connect), certificates, published: None }
    }

    /// Writes this host name or address, and these ports, into the status of Ingresses.
    #[must_use]
    pub fn publish(mut self, address: impl Into<Arc<str>>, ports: impl IntoIterator<Item = u16>) -> Self {
        self.published = Some((address.into(), ports.into_iter().collect()));
        self
    }

    /// Adds what follows Ingresses, their classes and Secrets to a manager.
    pub fn add_to(&self, manager: &mut Manager) -> Result<(), ManagerError> {
        let all = || Some(ObjectKey::cluster(ALL));
        let secrets = Watch::<Secret>::default().scope(Scope::default().fields("type=kubernetes.io/tls"));
        manager.add(
            Controller::<IngressClass>::new("ingress")
                .watches(move |_: &Ingress, _| all())
                .watches_with(secrets, move |_: &Secret, _| all())
                .complete_keyed(Follow(self.clone())),
        )
    }

    /// Serves plain HTTP until the token is cancelled.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(self.accept(listener, None)).await;
    }

    /// Serves HTTPS until the token is cancelled.
    pub async fn serve_tls(&self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), rustls::Error> {
        let acceptor = TlsAcceptor::from(Arc::new(self.certificates.server_config()?));
        shutdown.run_until_cancelled(self.accept(listener, Some(acceptor))).await;
        Ok(())
    }

    async fn accept(&self, listener: TcpListener, acceptor: Option<TlsAcceptor>) {
        let port = listener.local_addr().map_or(0, |address| address.port());
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            if connections.len() >= MOST_CONNECTIONS {
                connections.join_next().await;
            }
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let (proxy, acceptor) = (self.proxy.clone(), acceptor.clone());
            let client = Client { address, secure: acceptor.is_some(), port };
            connections.spawn(async move {
                if let Err(error) = serve_connection(&proxy, stream, client, acceptor).await {
                    tracing::debug!(%error, "a client's connection ended");
                }
            });
        }
    }

    /// Takes the table from these Ingresses.
    pub fn set<'a>(&self, ingresses: impl IntoIterator<Item = &'a Ingress>) -> Arc<Routes> {
        let routes = Arc::new(Routes::new(ingresses));
        self.certificates.set_routes(Arc::clone(&routes));
        self.proxy.set_routes(Arc::clone(&routes));
        routes
    }
}

async fn serve_connection(
    proxy: &Proxy,
    stream: TcpStream,
    client: Client,
    acceptor: Option<TlsAcceptor>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    match acceptor {
        None => proxy.serve(stream, client).await,
        Some(acceptor) => {
            let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
            proxy.serve(stream, client).await
        }
    }
}

/// Connects from this process's own namespace: for endpoints that are programs of the machine.
pub fn connect_directly() -> Connect {
    Arc::new(|address: SocketAddr| {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        })
    })
}

struct Follow(IngressController);

impl ReconcileKey for Follow {
    async fn reconcile(&self, _: ObjectKey, ctx: Context) -> windlass::Result {
        let classes = ctx.client().lister::<IngressClass>().list();
        let ours = |class: &&Arc<IngressClass>| {
            class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(CONTROLLER)
        };
        let is_default = |class: &IngressClass| {
            let annotations = class.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
        };
        let default = classes.iter().filter(ours).any(|class| is_default(class));
        let mut names: Vec<&str> =
            classes.iter().filter(ours).filter_map(|class| class.metadata.name.as_deref()).collect();
        names.push(CLASS);
        let all = ctx.client().lister::<Ingress>().list();
        let served: Vec<&Arc<Ingress>> =
            all.iter().filter(|ingress| names.iter().any(|name| is_of_class(ingress, name, default))).collect();
        let routes = self.0.set(served.iter().map(|ingress| &***ingress));

        let mut failures = Vec::new();
        for (namespace, name) in routes.secrets() {
            let key = ObjectKey::new(namespace, name);
            let secret = ctx.client().live().get::<Secret>(&key).await?;
            let certificate = secret.map(|secret| certificates::certificate(&secret)).transpose();
            let certificate = certificate.unwrap_or_else(|error| {
                failures.push(format!("the Secret {namespace}/{name} has no certificate: {error}"));
                None
            });
            self.0.certificates.set((namespace.clone(), name.clone()), certificate);
        }
        for failure in failures {
            tracing::warn!(reason = %failure, "an Ingress is served without its certificate");
        }
        if let Some((address, ports)) = &self.0.published {
            for ingress in served {
                status::publish(&ctx, ingress, address, ports).await?;
            }
        }
        Ok(Outcome::Done)
    }
}
