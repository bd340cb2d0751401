//! A server: its parts put together, in one process, with or without a socket.
//!
//! [`Server::service`] reaches the API with no socket and no TLS; [`Server::listen`] serves it over TLS.
//! Both answer through the same [`handle`]. Dropping the server stops its tasks; [`Server::stop`] also
//! lets requests finish and closes the store.

mod connection;
mod connections;
mod listener;
mod pipe;
mod time_limits;
mod unread;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::UPGRADE;
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use windlass_kinds::pod_security::PodSecurity;
use windlass_store::{Memory, Store, StoreError};

use crate::admission_config::{AdmissionPlugin, AdmissionPlugins, Policies, Restrictions, Webhooks};
use crate::aggregator::{self, Aggregator};
use crate::api::Api;
use crate::api_services::Registrar;
use crate::audit::{Audit, AuditOptions};
use crate::authn::{Peer, TokenKey, Tokens, User};
use crate::authz;
use crate::body::Body;
use crate::catalog::{Catalog, Computed};
use crate::crd::controller::CrdController;
use crate::dialer::Dialer;
use crate::effort::Offload;
use crate::flow_control::{FlowControl, FlowControlOptions, Objects};
use crate::handler::{handle, payload};
use crate::metrics::Metrics;
use crate::node_pods::NodePods;
use crate::openapi::descriptions::DescribeDefinitions;
use crate::pki::{Authority, PkiError};
use crate::rbac::Rbac;
use crate::registry::{self, allocation, computed};
use crate::remote::FrontProxy;
use crate::state::body_budget::BodyBudget;
use crate::state::clock::Clock;
use crate::state::contention::Contention;
use crate::state::crd_progress::Progress;
use crate::state::custom_versions::CustomVersions;
use crate::state::pipes::Pipes;
use crate::state::ready_checks::ReadyChecks;
use crate::state::render_cache::RenderCache;
use crate::streams::{PodStreams, Reach};
use crate::watch::Hub;
use crate::webhook::Clients;
use crate::{bootstrap, compaction, kubernetes_service, status, sweep};
use connections::Connections;
use listener::Accept;

pub use listener::Listener;

/// Why a server could not start or serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The store does not answer.
    #[error("the store does not answer: {0}")]
    Store(#[from] StoreError),
    /// Objects that every cluster has could not be created.
    #[error("cannot set up the cluster: {0}")]
    Bootstrap(#[from] status::Status),
    /// Certificates could not be made.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The audit log cannot be written.
    #[error("cannot write the audit log {}: {source}", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// Puts a server together.
#[must_use]
pub struct ServerBuilder {
    store: Option<Arc<dyn Store>>,
    tokens: Tokens,
    token_key: Option<Arc<TokenKey>>,
    front_proxy: Option<Arc<Authority>>,
    clock: Clock,
    max_connections: Option<usize>,
    plugins: AdmissionPlugins,
    pod_security: PodSecurity,
    history: Duration,
    flow_control: FlowControlOptions,
    audit: Option<AuditOptions>,
    describe: Option<DescribeDefinitions>,
}

impl ServerBuilder {
    /// Keeps objects in `store` instead of in memory.
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Lets the bearer token `token` stand for `user`.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token, user);
        self
    }

    /// Signs the tokens of service accounts with `key` instead of one made for this run.
    pub fn token_key(mut self, key: impl Into<Arc<TokenKey>>) -> Self {
        self.token_key = Some(key.into());
        self
    }

    /// Identifies to aggregated servers with a certificate of `authority` instead of one made for this run.
    pub fn front_proxy_authority(mut self, authority: impl Into<Arc<Authority>>) -> Self {
        self.front_proxy = Some(authority.into());
        self
    }

    /// Takes the time from `clock` instead of the system. The time of a request sets the timestamps of the objects that
    /// it creates, and decides whether a service account's token has expired: a test need not wait for that.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let tomorrow = || Timestamp::now() + SignedDuration::from_hours(24);
    /// let server = windlass_server::Server::builder().clock(tomorrow).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Limits how many connections each socket has at once, instead of by the files that the process may open. At the
    /// limit, a new connection takes the place of one that does nothing.
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.max_connections = Some(limit);
        self
    }

    /// Runs these admission plugins. Unless set, a server runs all but ServiceAccount: without the controllers of a
    /// cluster no namespace would get the account `default` that the plugin gives to pods.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_server::{AdmissionPlugin, AdmissionPlugins, Server};
    ///
    /// let plugins = AdmissionPlugins::default().without(AdmissionPlugin::NodeRestriction);
    /// let server = Server::builder().admission_plugins(plugins).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn admission_plugins(mut self, plugins: AdmissionPlugins) -> Self {
        self.plugins = plugins;
        self
    }

    /// Keeps history for this long instead of for five minutes: a list at an older revision, or the next page of an older
    /// list, is answered with 410. History is dropped earlier where it takes too much memory. With zero it is kept until then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use std::time::Duration;
    ///
    /// let server = windlass_server::Server::builder().history(Duration::from_secs(60)).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn history(mut self, duration: Duration) -> Self {
        self.history = duration;
        self
    }

    /// Judges pods in this way where the labels of their namespace say nothing (the plugin PodSecurity). Unless set, they
    /// may ask for everything.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_server::{PodSecurity, PodSecurityLevel, Server};
    ///
    /// let mut pod_security = PodSecurity::default();
    /// pod_security.defaults.enforce.level = PodSecurityLevel::Baseline;
    /// pod_security.exempt_namespaces.push("kube-system".to_owned());
    /// let server = Server::builder().pod_security(pod_security).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn pod_security(mut self, configuration: PodSecurity) -> Self {
        self.pod_security = configuration;
        self
    }

    /// Divides these seats among priority levels, instead of 600. See [`FlowControlOptions`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_server::{FlowControlOptions, Server};
    ///
    /// let options = FlowControlOptions { seats: 1200, ..FlowControlOptions::default() };
    /// let server = Server::builder().flow_control(options).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn flow_control(mut self, options: FlowControlOptions) -> Self {
        self.flow_control = options;
        self
    }

    /// Records requests. See [`AuditOptions`].
    pub fn audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Shows these descriptions of built-in kinds and their fields in OpenAPI documents, as `kubectl explain` prints them.
    /// Unless set, there are none. The function is given the names of definitions such as `io.k8s.api.core.v1.PodSpec`, and
    /// returns their JSON schemas, of which only `description` is used, of the definition and of each of its `properties`.
    /// It may return others as well. It is called for each document that is made.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use serde_json::json;
    ///
    /// let pod_spec = json!({"description": "What a pod runs.", "properties": {"hostname": {"description": "Its name."}}});
    /// let describe = move |_: &_| [("io.k8s.api.core.v1.PodSpec".to_owned(), pod_spec.clone())].into_iter().collect();
    /// let server = windlass_server::Server::builder().describe_definitions(describe).start().await?;
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn describe_definitions(
        mut self,
        describe: impl Fn(&BTreeSet<&'static str>) -> Map<String, Value> + Send + Sync + 'static,
    ) -> Self {
        self.describe = Some(Arc::new(describe));
        self
    }

    /// Starts the server's tasks; when this returns it can answer.
    pub fn start(self) -> BoxFuture<'static, Result<Server, ServerError>> {
        // Boxed: it is compiled here and not into each crate that starts a server.
        self.open().boxed()
    }

    async fn open(self) -> Result<Server, ServerError> {
        let store = self.store.unwrap_or_else(|| Arc::new(Memory::new()));
        let hub = Arc::new(Hub::new(Arc::clone(&store)));
        let token_key = match self.token_key {
            Some(key) => key,
            None => Arc::new(TokenKey::generate()?),
        };
        let front_proxy = match self.front_proxy {
            Some(authority) => FrontProxy::new(&authority)?,
            None => FrontProxy::new(&Authority::generate()?)?,
        };
        let reach = Reach::default();
        let opened = self.audit.as_ref().map(|options| {
            Audit::open(options).map_err(|source| ServerError::Audit { path: options.path.clone(), source })
        });
        let clients = Arc::new(Clients::new(Arc::clone(&store), reach.dial.clone()));
        let catalog = Arc::new(Catalog::new());
        let api = Arc::new(Api {
            webhook_clients: Arc::clone(&clients),
            front_proxy,
            plugins: self.plugins,
            pod_security: Arc::new(self.pod_security),
            create_namespace: registry::create_namespace,
            webhooks: Webhooks::new(Arc::clone(&store), Arc::clone(&hub), clients),
            policies: Policies::new(Arc::clone(&store), Arc::clone(&hub)),
            restrictions: Restrictions::new(&store, &hub),
            audit: opened.transpose()?,
            flow_control: FlowControl::new(
                self.flow_control,
                Objects {
                    store: Arc::clone(&store),
                    hub: Arc::clone(&hub),
                    catalog: Arc::clone(&catalog),
                    clock: Arc::clone(&self.clock),
                },
            ),
            offload: Offload::new(),
            contention: Contention::new(),
            render_cache: RenderCache::default(),
            body_budget: Arc::default(),
            decoded_budget: Arc::new(BodyBudget::decoded()),
            rbac: Rbac::new(Arc::clone(&store), Arc::clone(&hub)),
            node_pods: NodePods::new(Arc::clone(&store), Arc::clone(&hub)),
            store,
            hub: Arc::clone(&hub),
            catalog,
            tokens: self.tokens,
            token_key,
            metrics: Metrics::default(),
            schemas: Arc::default(),
            crds: Progress::new(),
            reach,
            pipes: Pipes::default(),
            ready_checks: ReadyChecks::default(),
            clock: self.clock,
            custom_versions: CustomVersions::default(),
            describe: self.describe,
            address: OnceLock::new(),
        });
        bootstrap::create_defaults(&api).await?;
        let repaired = allocation::repair::at_start(&api).await?;
        authz::ensure_defaults(&api).await?;
        api.rbac.open().await?;
        api.flow_control.open().await?;
        api.webhooks.refresh().await?;
        api.policies.refresh().await?;
        let controller = CrdController::open(Arc::clone(&api)).await?;
        api.restrictions.open().await?;
        let registrar = Registrar::open(Arc::clone(&api)).await?;
        let aggregator = Aggregator::open(Arc::clone(&api)).await?;
        let [webhooks, policies, restrictions, flow_control, rbac, node_pods, cached] =
            [(); 7].map(|()| Arc::clone(&api));
        let tasks = vec![
            tokio::spawn(async move { hub.run().await }),
            tokio::spawn(async move { controller.run().await }),
            tokio::spawn(async move { registrar.run().await }),
            tokio::spawn(async move { flow_control.flow_control.run().await }),
            tokio::spawn(async move { aggregator.run().await }),
            tokio::spawn(async move { webhooks.webhooks.follow().await }),
            tokio::spawn(async move { policies.policies.follow().await }),
            tokio::spawn(async move { restrictions.restrictions.follow().await }),
            tokio::spawn(compaction::run(Arc::clone(&api.store), self.history)),
            tokio::spawn(allocation::repair::follow(Arc::clone(&api), repaired)),
            tokio::spawn(async move { rbac.rbac.run().await }),
            tokio::spawn(async move { node_pods.node_pods.run().await }),
            tokio::spawn(async move { cached.render_cache.run().await }),
            tokio::spawn(sweep::run(Arc::clone(&api))),
        ];
        Ok(Server { api, tasks, max_connections: self.max_connections })
    }
}

/// A running server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::Namespace;
///
/// let server = windlass_server::Server::builder().start().await?;
/// let client = kube::Client::new(server.service(), "default");
/// let namespaces = kube::Api::<Namespace>::all(client).list(&Default::default()).await?;
/// assert!(namespaces.items.iter().any(|ns| ns.metadata.name.as_deref() == Some("default")));
/// server.stop().await?;
/// # Ok(()) }
/// ```
pub struct Server {
    api: Arc<Api>,
    tasks: Vec<JoinHandle<()>>,
    max_connections: Option<usize>,
}

impl Server {
    /// A server that keeps its objects in memory unless a [store](ServerBuilder::store) is set.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            store: None,
            tokens: Tokens::default(),
            token_key: None,
            front_proxy: None,
            clock: Arc::new(Timestamp::now),
            max_connections: None,
            plugins: AdmissionPlugins::default().without(AdmissionPlugin::ServiceAccount),
            pod_security: PodSecurity::default(),
            history: compaction::DEFAULT_INTERVAL,
            flow_control: FlowControlOptions::default(),
            audit: None,
            describe: None,
        }
    }

    /// The server's shared state, for the other crates of this workspace.
    #[doc(hidden)]
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// Adds a check to `/readyz`, for another part of the process. `/readyz?verbose` shows whether it passes, and
    /// `/readyz/NAME` also why it does not; the reason is logged. A check that panics has failed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// let server = windlass_server::Server::builder().start().await?;
    /// server.add_ready_check("disk", || Err("95% full".to_owned()));
    ///
    /// let client = kube::Client::new(server.service(), "default");
    /// let request = http::Request::get("/readyz").body(kube::client::Body::empty())?;
    /// assert_eq!(client.send(request).await?.status(), 500);
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn add_ready_check(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.api.ready_checks.add(name.into(), Arc::new(check));
    }

    /// Shows the metrics of another part of the process in `/metrics`: what `source` returns, in Prometheus' text format,
    /// follows the server's own. Names must differ from those of other parts.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// let server = windlass_server::Server::builder().start().await?;
    /// server.add_metrics(|| "rooms_warm 3\n".to_owned());
    ///
    /// let client = kube::Client::new(server.service(), "default");
    /// let request = http::Request::get("/metrics").body(vec![])?;
    /// assert!(client.request_text(request).await?.ends_with("rooms_warm 3\n"));
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn add_metrics(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.api.metrics.add_source(source);
    }

    /// Serves a kind whose objects are computed when they are read, from now on. The `definition` is a
    /// CustomResourceDefinition with the kind's names, schema and columns; it is not stored.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use serde_json::{Value, json};
    ///
    /// /// How warm the rooms are.
    /// struct Rooms;
    ///
    /// impl windlass_server::Computed for Rooms {
    ///     fn list(&self, _namespace: Option<&str>) -> Vec<Value> {
    ///         self.get("", "kitchen").into_iter().collect()
    ///     }
    ///
    ///     fn get(&self, _namespace: &str, name: &str) -> Option<Value> {
    ///         let room = json!({"kind": "Room", "apiVersion": "home.example.com/v1", "metadata": {"name": name}, "degrees": 21});
    ///         (name == "kitchen").then_some(room)
    ///     }
    /// }
    ///
    /// let server = windlass_server::Server::builder().start().await?;
    /// let schema = json!({"type": "object", "properties": {"degrees": {"type": "integer"}}});
    /// let definition = json!({"metadata": {"name": "rooms.home.example.com"}, "spec": {
    ///     "group": "home.example.com",
    ///     "names": {"plural": "rooms", "singular": "room", "kind": "Room", "listKind": "RoomList"},
    ///     "scope": "Cluster",
    ///     "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    /// }});
    /// server.add_computed(&definition, Rooms);
    ///
    /// let client = kube::Client::new(server.service(), "default");
    /// let request = http::Request::get("/apis/home.example.com/v1/rooms/kitchen").body(vec![])?;
    /// assert_eq!(client.request::<Value>(request).await?["degrees"], 21);
    /// # server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub fn add_computed(&self, definition: &serde_json::Value, objects: impl Computed) {
        let resources = computed::resources(definition);
        for resource in &resources {
            self.api.custom_versions.add_computed(&resource.group, &resource.version);
        }
        self.api.catalog.add_computed(resources, &(Arc::new(objects) as Arc<dyn Computed>));
    }

    /// Reaches the containers of pods through `streams` from now on, for the nodes that it has: `kubectl logs`, `exec`,
    /// `attach`, `port-forward`, and requests that are proxied to pods and services.
    pub fn add_pod_streams(&self, streams: &Arc<dyn PodStreams>) {
        self.api.reach.add(streams);
    }

    /// Connects to webhooks, and to pods and Services that requests are proxied to, through `dialer` from now on, for the
    /// addresses that it knows.
    pub fn set_dialer(&self, dialer: impl Dialer) {
        self.api.reach.dial.set(Box::new(dialer));
    }

    /// The API as a tower service: no socket, no TLS, the caller is an administrator.
    pub fn service(&self) -> Service {
        self.service_as(User::admin())
    }

    /// The API as a tower service whose caller is `user`.
    pub fn service_as(&self, user: User) -> Service {
        Service { api: Arc::clone(&self.api), peer: Peer::Local(user) }
    }

    /// Listens for TLS connections with certificates of `authority`, on a free port if `address` has none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> anyhow::Result<()> {
    /// use windlass_server::{Server, pki::Authority};
    ///
    /// let server = Server::builder().start().await?;
    /// let authority = Authority::generate()?;
    /// let listener = server.listen("127.0.0.1:0".parse()?, &authority).await?;
    /// println!("serving https://{}", listener.address());
    /// listener.stop().await;
    /// server.stop().await?;
    /// # Ok(()) }
    /// ```
    pub async fn listen(&self, address: SocketAddr, authority: &Authority) -> Result<Listener, ServerError> {
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let mut names: Vec<String> = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .into_iter()
            .map(Into::into)
            .collect();
        names.extend(["kubernetes.default.svc.cluster.local", "127.0.0.1", "::1", "10.96.0.1"].map(Into::into));
        let advertised = kubernetes_service::advertised(local);
        if !advertised.ip().is_loopback() {
            names.push(advertised.ip().to_string());
        }
        // The first socket is the one that others are told of.
        let is_first = self.api.address.set(advertised).is_ok();
        self.api.front_proxy.set_clients(authority.certificate());
        aggregator::publish(&self.api).await;
        let (config, clients) = authority.api_config(&authority.server(&names)?)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let stop = CancellationToken::new();
        let connections = self.max_connections.map_or_else(Connections::for_this_process, Connections::new);
        let (api, connections) = (Arc::clone(&self.api), Arc::new(connections));
        let accept = Accept { api, acceptor, clients, connections, stop: stop.clone(), is_first };
        let (task, keeper) = accept.spawn(listener);
        Ok(Listener { address: local, api: Arc::clone(&self.api), stop, task, keeper })
    }

    /// Ends watches, stops the server's tasks and closes the store.
    pub async fn stop(mut self) -> Result<(), ServerError> {
        self.api.catalog.end_watches();
        self.api.pipes.close().await;
        for task in self.tasks.drain(..) {
            task.abort();
            // A task that was aborted is what we wanted; one that panicked has been reported.
            let _ = task.await;
        }
        if let Some(audit) = &self.api.audit {
            audit.flush().await;
        }
        Ok(self.api.store.close().await?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The API as a tower service, for clients in the same process.
#[derive(Clone)]
pub struct Service {
    api: Arc<Api>,
    peer: Peer,
}

impl Service {
    /// The same service for another caller.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self { api: Arc::clone(&self.api), peer: Peer::Local(user) }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if request.headers().contains_key(UPGRADE) {
            return pipe::answer(Arc::clone(&self.api), self.peer.clone(), request.map(payload)).map(Ok).boxed();
        }
        request.extensions_mut().insert(self.peer.clone());
        handle(Arc::clone(&self.api), request.map(payload)).map(Ok).boxed()
    }
}
