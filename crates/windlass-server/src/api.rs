//! The server's shared state.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use windlass_kinds::crd::Schemas;
use windlass_kinds::pod_security::PodSecurity;
use windlass_store::Store;

use crate::admission_config::{AdmissionPlugins, Policies, Restrictions, Webhooks, check_policy};
use crate::audit::Audit;
use crate::catalog::Catalog;
use crate::effort::Offload;
use crate::flow_control::FlowControl;
use crate::metrics::Metrics;
use crate::node_pods::NodePods;
use crate::openapi::descriptions::DescribeDefinitions;
use crate::rbac::Rbac;
use crate::remote::FrontProxy;
use crate::state::body_budget::BodyBudget;
use crate::state::clock::Clock;
use crate::state::contention::Contention;
use crate::state::crd_progress::Progress;
use crate::state::custom_versions::CustomVersions;
use crate::state::pipes::Pipes;
use crate::state::ready_checks::ReadyChecks;
use crate::state::render_cache::RenderCache;
use crate::status::Status;
use crate::streams::Reach;
use crate::tokens::{TokenKey, Tokens};
use crate::watch::Hub;
use crate::webhook::Clients;

pub use crate::admission_config::ExpressionWarning;

/// Creates a namespace in the course of a request for something in it: a request of the server itself, which passes
/// admission like any other.
pub(crate) type CreateNamespace = fn(Arc<Api>, String) -> BoxFuture<'static, Result<(), Status>>;

/// Everything a request may need. One per server.
pub struct Api {
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// Feeds watchers.
    pub hub: Arc<Hub>,
    /// What is served.
    pub catalog: Arc<Catalog>,
    /// The users of static bearer tokens.
    pub tokens: Tokens,
    /// Signs the tokens of service accounts.
    pub token_key: Arc<TokenKey>,
    /// The roles and bindings in effect.
    pub rbac: Rbac,
    /// Which pods each node runs, for what nodes may do.
    pub(crate) node_pods: NodePods,
    /// What was done.
    pub metrics: Metrics,
    /// The schemas of custom resources that are in use.
    pub schemas: Arc<Schemas>,
    /// How far CRDs have taken effect.
    pub crds: Progress,
    /// The group versions that CRDs want served.
    pub(crate) custom_versions: CustomVersions,
    /// The built-in admission plugins that run.
    pub(crate) plugins: AdmissionPlugins,
    /// How pods are judged where namespaces say nothing.
    pub(crate) pod_security: Arc<PodSecurity>,
    /// For the plugin NamespaceAutoProvision: admission is a part of each write, and cannot begin one itself.
    pub(crate) create_namespace: CreateNamespace,
    /// The registered admission webhooks.
    pub(crate) webhooks: Webhooks,
    /// The admission policies in effect.
    pub(crate) policies: Policies,
    /// The namespaces in which not everything fits.
    pub(crate) restrictions: Restrictions,
    /// Records requests, if anything does.
    pub(crate) audit: Option<Arc<Audit>>,
    /// Which requests are executed, and which wait.
    pub(crate) flow_control: FlowControl,
    /// How webhooks of all kinds are reached.
    pub(crate) webhook_clients: Arc<Clients>,
    /// How aggregated servers recognise requests of this server.
    pub(crate) front_proxy: FrontProxy,
    /// Where work is done that may take long.
    pub(crate) offload: Offload,
    /// What watchers share.
    pub(crate) render_cache: RenderCache,
    /// What the bodies of requests may take.
    pub(crate) body_budget: Arc<BodyBudget>,
    /// What the bodies of requests may be decoded to.
    pub(crate) decoded_budget: Arc<BodyBudget>,
    /// The order of writers of an object after a conflict.
    pub(crate) contention: Contention,
    /// What reaches the containers of pods.
    pub(crate) reach: Reach,
    /// Connections of clients in the same process that are not HTTP any more.
    pub(crate) pipes: Pipes,
    /// Checks of `/readyz` that belong to other parts of the process.
    pub(crate) ready_checks: ReadyChecks,
    /// What requests are dated with and tokens judged by.
    pub(crate) clock: Clock,
    /// What documentation says about built-in definitions.
    pub(crate) describe: Option<DescribeDefinitions>,
    /// Where the server is reached by others, once it listens.
    pub(crate) address: OnceLock<SocketAddr>,
}

/// Where a server that does not listen would be reached.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6443);

impl Api {
    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Where clients are told to reach this server, `address:port`.
    pub(crate) fn advertised(&self) -> String {
        self.address.get().unwrap_or(&NOWHERE).to_string()
    }

    /// What is doubtful about the expressions of a ValidatingAdmissionPolicy, given what is served now: the
    /// `expressionWarnings` of its status.
    pub fn check_policy(&self, policy: &Value) -> Vec<ExpressionWarning> {
        check_policy(&self.catalog.snapshot(), policy)
    }
}
