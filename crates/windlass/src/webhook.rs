//! Webhooks: API servers call the operator before they store an object, and to convert objects from one version to
//! another.
//!
//! ```no_run
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use windlass::Manager;
//! use windlass::webhook::{
//!     Certificates, Defaulter, Denied, FieldErrors, Request, SelfManaged, Validate, Verdict, Webhooks,
//! };
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced)]
//! struct PetSpec {
//!     name: String,
//!     legs: Option<u8>,
//! }
//!
//! struct Pets;
//!
//! impl Defaulter<Pet> for Pets {
//!     async fn set_defaults(&self, pet: &mut Pet, _: &Request<Pet>) -> Result<(), Denied> {
//!         pet.spec.legs.get_or_insert(4);
//!         Ok(())
//!     }
//! }
//!
//! impl Validate<Pet> for Pets {
//!     async fn validate_create(&self, pet: &Pet, request: &Request<Pet>) -> Verdict {
//!         let mut errors = FieldErrors::default();
//!         if pet.spec.name.is_empty() {
//!             errors.required("spec.name", "every pet has one");
//!         }
//!         errors.into_result::<Pet>(&request.name)
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::builder(windlass::config::client().await?).build()?;
//! let certificates = SelfManaged::new("petstore-system").register("petstore");
//! manager.add_webhooks(
//!     Webhooks::new()
//!         .certificates(Certificates::self_managed(certificates))
//!         .defaulter::<Pet>(Pets)
//!         .validator::<Pet>(Pets),
//! )?;
//! manager.run().await?;
//! # Ok(()) }
//! ```
//!
//! # What there is
//!
//! - [`Defaulter`] fills in what is missing, [`Validate`] decides what may be stored,
//!   [`Handle`] answers whole reviews by hand; each is served as an [`Admission`].
//! - [`Convert`] and [`Conversion`] turn the versions of a custom resource into each other, and
//!   [`round_trip`] tests that nothing is lost.
//! - [`Certificates`] come from files or are [`SelfManaged`].
//!
//! Paths are those of controller-runtime, so that manifests made for it work. Webhooks are served until the manager has
//! stopped everything that might write, and running requests are answered first. A handler that panics answers with 500;
//! other requests are not affected. With `ENABLE_WEBHOOKS=false` in the environment nothing is served, for running an
//! operator on a developer's machine. With `WINDLASS_WEBHOOKS=ADDRESS:PORT`, which `windlass run` sets, they are served
//! there and API servers call them directly.

#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
compile_error!("feature `webhook` of windlass needs a cryptography provider: also enable `ring` or `aws-lc-rs`");

mod admission;
mod authority;
mod certificates;
mod convert;
mod denied;
mod diff;
mod disabled;
mod files;
mod inject;
mod keeper;
mod metrics;
mod registration;
mod response;
mod rotation;
mod server;
mod tls;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
#[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(feature = "ring")]
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use admission::{Admission, Defaulter, FailurePolicy, Handle, Operation, Request, Validate, Verdict, from_fn};
pub use authority::CertificateError;
pub use certificates::{Certificates, SelfManaged};
pub use convert::{Conversion, Convert, ConvertError, RoundTripError, hub_round_trip, round_trip};
pub use denied::{Denied, FieldErrors};
pub use registration::Reach;
pub use response::{Response, Warnings};
pub(crate) use tls::Tls;

use crate::client::CachedClient;
use crate::object::{Object, TypedObject};
use crate::rbac::Rules;
use admission::Phase;
use certificates::{Clock, Serving, Source};
use convert::Converter;
use files::Files;
use inject::Injector;
use keeper::Keeper;
use server::Routes;

/// Where all conversions are served, as in controller-runtime.
const CONVERT_PATH: &str = "/convert";
/// The address at which an operator outside of its cluster serves webhooks; `windlass run` sets it.
const OUTSIDE: &str = "WINDLASS_WEBHOOKS";
/// What a review of one object may take, as in controller-runtime.
const ADMISSION_LIMIT: usize = 7 << 20;
/// What a review of the many objects of a list may take.
const CONVERSION_LIMIT: usize = 128 << 20;

/// Why webhooks cannot be served.
///
/// ```no_run
/// use windlass::manager::ManagerError;
/// # async fn example(manager: windlass::Manager) {
/// if let Err(ManagerError::Webhooks(error)) = manager.run().await {
///     eprintln!("webhooks: {error}");
/// }
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// A path that is not letters, digits, `-` and `_` between slashes.
    #[error("{path:?} is not a path for a webhook")]
    Path {
        /// The path.
        path: String,
    },
    /// Two webhooks at one path or of one name, or two conversions of one kind.
    #[error("two webhooks for {what:?}")]
    Duplicate {
        /// The path, name or kind.
        what: String,
    },
    /// Two sets of webhooks of one manager are registered under one name.
    #[error(
        "webhooks are registered as {name:?} twice, and each would undo the other: put all of them into one \
         `Webhooks`, or give the second another name"
    )]
    Registered {
        /// The name.
        name: String,
    },
    /// There is no certificate to serve with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The Secret with the certificates cannot be read or written.
    #[error("Secret {secret} with the certificates: {source}")]
    Secret {
        /// Namespace and name.
        secret: String,
        /// What the server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// API servers cannot be told whom to trust.
    #[error("inject the certificate authority: {source}")]
    Inject {
        /// What the server said.
        #[source]
        source: Box<kube::Error>,
    },
    /// Another client changed the Secret before each attempt to write it.
    #[error("the Secret with the certificates changes too fast")]
    Contended,
    /// The socket or TLS cannot be set up.
    #[error("serve webhooks: {0}")]
    Serve(#[source] Box<dyn std::error::Error + Send + Sync>),
}

crate::report::debug_as_message!(WebhookError);

/// The webhooks of an operator and how they are served: described here, added to a manager with
/// [`Manager::add_webhooks`](crate::Manager::add_webhooks). See the [module documentation](self).
///
/// ```
/// use windlass::webhook::{Admission, Response, Webhooks, from_fn};
///
/// let webhooks = Webhooks::new()
///     .listen("127.0.0.1:0")
///     .admission(Admission::validating_raw("/validate-all", from_fn(|_| async { Response::allowed() })));
/// ```
#[must_use = "webhooks do nothing before they are added to a manager"]
pub struct Webhooks {
    address: String,
    certificates: Certificates,
    admissions: Vec<Admission>,
    converters: Vec<Arc<dyn Converter>>,
    admission_limit: usize,
    conversion_limit: usize,
    client_authorities: Option<String>,
    enabled: bool,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks")
            .field("address", &self.address)
            .field("admissions", &self.admissions)
            .finish_non_exhaustive()
    }
}

impl Default for Webhooks {
    fn default() -> Self {
        Self::new()
    }
}

impl Webhooks {
    /// None yet, served at `:9443` with [the default certificates](Certificates::default) unless
    /// the environment says `ENABLE_WEBHOOKS=false`.
    pub fn new() -> Self {
        Self {
            address: ":9443".to_owned(),
            certificates: Certificates::default(),
            admissions: Vec::new(),
            converters: Vec::new(),
            admission_limit: ADMISSION_LIMIT,
            conversion_limit: CONVERSION_LIMIT,
            client_authorities: None,
            enabled: is_enabled(std::env::var("ENABLE_WEBHOOKS").ok().as_deref()),
        }
    }

    /// Serves at another address, as `127.0.0.1:0`. Empty or `0` means not at all.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Where the serving certificate comes from.
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = certificates;
        self
    }

    /// Fills in defaults of a kind.
    pub fn defaulter<K: TypedObject>(self, defaulter: impl Defaulter<K>) -> Self {
        self.admission(Admission::defaulting(defaulter))
    }

    /// Validates a kind, on the validator's [operations](Validate::OPERATIONS): creates and updates, unless it names
    /// others.
    pub fn validator<K: TypedObject>(self, validator: impl Validate<K>) -> Self {
        self.admission(Admission::validating(validator))
    }

    /// Adds an admission webhook.
    pub fn admission(mut self, admission: Admission) -> Self {
        self.admissions.push(admission);
        self
    }

    /// Converts the versions of a kind into each other, at `/convert`.
    pub fn conversion<H: Object>(mut self, conversion: Conversion<H>) -> Self {
        self.converters.push(Arc::new(conversion));
        self
    }

    /// How many bytes a request may have: 7 MiB for admission, 128 MiB for conversion by default. Those that
    /// are being read and answered may have 256 MiB together, of each sort, or two requests of the largest
    /// size if that is more; others wait.
    pub fn limits(mut self, admission: usize, conversion: usize) -> Self {
        self.admission_limit = admission;
        self.conversion_limit = conversion;
        self
    }

    /// Answers only clients with a certificate by one of these authorities, a PEM text. API servers
    /// have one if they were started with an admission configuration that says so.
    pub fn client_authorities(mut self, bundle: impl Into<String>) -> Self {
        self.client_authorities = Some(bundle.into());
        self
    }

    /// Whether to serve at all, whatever the environment says.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// The configuration that has API servers ask the webhooks that change objects, if there are
    /// any with rules; `bundle` is the PEM text of whom to trust, empty if that is injected later.
    pub fn mutating_configuration(
        &self,
        name: &str,
        reach: &Reach,
        bundle: &str,
    ) -> Option<MutatingWebhookConfiguration> {
        registration::mutating_configuration(name, &self.admissions, reach, bundle)
    }

    /// The configuration that has API servers ask the webhooks that judge objects, if there are
    /// any with rules.
    pub fn validating_configuration(
        &self,
        name: &str,
        reach: &Reach,
        bundle: &str,
    ) -> Option<ValidatingWebhookConfiguration> {
        registration::validating_configuration(name, &self.admissions, reach, bundle)
    }

    /// Serves where `WINDLASS_WEBHOOKS` says, if it says so: see [`outside`](Self::outside).
    pub(crate) fn where_told(self, namespace: &str, name: &str) -> Self {
        match std::env::var(OUTSIDE).ok().filter(|address| !address.is_empty()) {
            Some(address) => self.outside(&address, namespace, name),
            None => self,
        }
    }

    /// Serves at an address that API servers reach directly, whatever was set: with certificates of the operator's own,
    /// and registered, so that nothing has to be prepared in the cluster.
    fn outside(mut self, address: &str, namespace: &str, name: &str) -> Self {
        address.clone_into(&mut self.address);
        let settings = match self.certificates.0 {
            Source::SelfManaged(settings) => *settings,
            Source::Files { .. } => SelfManaged::new(namespace),
        };
        let name = settings.registered_as().unwrap_or(name).to_owned();
        self.certificates = Certificates::self_managed(settings.directly().register(name));
        self
    }

    /// Whether there is anything to serve, and a configuration that asks for it.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Where to listen.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Takes over a socket.
    pub(crate) fn bind(self, listener: std::net::TcpListener, address: SocketAddr) -> Result<Bound, WebhookError> {
        let mut seen = HashSet::new();
        for admission in &self.admissions {
            if !is_path(&admission.path) {
                return Err(WebhookError::Path { path: admission.path.clone() });
            }
            // A configuration holds each name once.
            for what in [admission.path.clone(), format!("{:?} {}", admission.phase, admission.name)] {
                if !seen.insert(what.clone()) {
                    return Err(WebhookError::Duplicate { what });
                }
            }
        }
        for converter in &self.converters {
            if !seen.insert(converter.subject().definition()) {
                return Err(WebhookError::Duplicate { what: converter.subject().definition() });
            }
        }
        if !self.converters.is_empty() && !seen.insert(CONVERT_PATH.to_owned()) {
            return Err(WebhookError::Duplicate { what: CONVERT_PATH.to_owned() });
        }
        let ready = Arc::new(parking_lot::RwLock::new(None));
        Ok(Bound { webhooks: self, listener, address, ready })
    }
}

type Ready = Arc<parking_lot::RwLock<Option<(Arc<Serving>, Clock)>>>;

/// The kinds of configurations, and what is in them.
const PHASES: [(&str, Phase); 2] =
    [("mutatingwebhookconfigurations", Phase::Mutating), ("validatingwebhookconfigurations", Phase::Validating)];

/// Webhooks that have a socket but do not serve yet.
pub(crate) struct Bound {
    webhooks: Webhooks,
    listener: std::net::TcpListener,
    address: SocketAddr,
    ready: Ready,
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name under which configurations are made, if they are.
    pub(crate) fn registered_as(&self) -> Option<&str> {
        match &self.webhooks.certificates.0 {
            Source::SelfManaged(settings) => settings.registered_as(),
            Source::Files { .. } => None,
        }
    }

    /// What it takes to keep certificates of one's own and have them trusted.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        let Source::SelfManaged(settings) = &self.webhooks.certificates.0 else { return rules };
        let namespace = Some(settings.namespace.as_str());
        rules.allow(namespace, "", ["secrets"], ["create"]);
        rules.allow_named(namespace, "", "secrets", &settings.secret, ["get", "list", "watch", "update"]);
        let group = "admissionregistration.k8s.io";
        let verbs = ["get", "list", "watch", "patch"];
        for (resource, phase) in PHASES {
            match settings.configurations(phase, &self.webhooks.admissions) {
                None => rules.allow(None, group, [resource], ["list", "watch", "patch"]),
                Some(names) => names.iter().for_each(|name| rules.allow_named(None, group, resource, name, verbs)),
            }
            if settings.registers(phase, &self.webhooks.admissions).is_some() {
                rules.allow(None, group, [resource], ["create"]);
            }
        }
        for converter in &self.webhooks.converters {
            let (resource, name) = ("customresourcedefinitions", converter.subject().definition());
            rules.allow_named(None, "apiextensions.k8s.io", resource, &name, verbs);
        }
        rules
    }

    /// The configurations for an operator of this name in its cluster, with no authority to trust yet.
    pub(crate) fn manifests(&self, name: &str) -> Vec<serde_json::Value> {
        let (settings, name) = match &self.webhooks.certificates.0 {
            Source::SelfManaged(settings) => (Some(settings), settings.registered_as().unwrap_or(name)),
            Source::Files { .. } => (None, name),
        };
        let reach = settings.and_then(|settings| settings.reach.clone());
        let reach = reach.unwrap_or_else(|| {
            let namespace = settings.map_or("default", |settings| settings.namespace.as_str());
            Reach::service(namespace, "webhook-service")
        });
        let mutating = self.webhooks.mutating_configuration(&Phase::Mutating.configuration(name), &reach, "");
        let validating = self.webhooks.validating_configuration(&Phase::Validating.configuration(name), &reach, "");
        let both = [mutating.map(serde_json::to_value), validating.map(serde_json::to_value)];
        both.into_iter().flatten().filter_map(Result::ok).collect()
    }

    /// What it takes to take out what an earlier version registered, and this one does not.
    pub(crate) fn rules_of_the_past(&self) -> Rules {
        let mut rules = Rules::default();
        let Source::SelfManaged(settings) = &self.webhooks.certificates.0 else { return rules };
        for (resource, phase) in PHASES {
            if settings.registers(phase, &self.webhooks.admissions).is_none()
                && let Some(name) = settings.registered_as()
            {
                let name = phase.configuration(name);
                rules.allow_named(None, "admissionregistration.k8s.io", resource, &name, ["get", "patch"]);
            }
        }
        rules
    }

    /// Whether requests are answered, with a certificate that is still valid.
    pub(crate) fn ready_check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let ready = Arc::clone(&self.ready);
        move || match &*ready.read() {
            Some((serving, clock)) => serving.check((clock.0)()),
            None => Err("not serving yet".to_owned()),
        }
    }

    /// Has a certificate, has it trusted if it is our own, and serves until the token is cancelled
    /// and requests under way are answered. The future that is returned does the serving.
    pub(crate) async fn start(
        self,
        client: &CachedClient,
        registry: &crate::metrics::Registry,
        shutdown: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send + use<>, WebhookError> {
        let Self { webhooks, listener, address, ready } = self;
        let expires = registry.gauge(
            "windlass_webhook_certificate_not_after_seconds",
            "When the certificate of the webhooks expires, in seconds since 1970.",
            &[],
        );
        let serving = Arc::new(Serving::new(expires));
        let definitions = webhooks.converters.iter().map(|converter| converter.subject().definition()).collect();
        let metrics = metrics::Metrics::new(registry);
        let limits = (webhooks.admission_limit, webhooks.conversion_limit);
        let routes = Arc::new(Routes::new(&webhooks.admissions, webhooks.converters, limits, metrics));
        let acceptor = acceptor(&serving, webhooks.client_authorities.as_deref())?;
        let listener = TcpListener::from_std(listener).map_err(|error| WebhookError::Serve(error.into()))?;
        tracing::info!(%address, "serving webhooks");
        let mut clock = Clock(Arc::new(Timestamp::now));
        let mut tasks = JoinSet::new();
        // Served from the start: an API server that trusts the certificate may call at once. And until the end: it
        // may call as long as a configuration leads here.
        let serves = CancellationToken::new();
        tasks.spawn(server::serve(listener, acceptor, routes, serves.clone()));
        let serves = serves.drop_guard();
        match webhooks.certificates.0 {
            Source::Files { certificate, key, every } => {
                let mut files = Files::new(certificate, key, every, Arc::clone(&serving), registry);
                files.load().await?;
                tasks.spawn(async move {
                    files.follow(shutdown).await;
                    drop(serves);
                });
            }
            Source::SelfManaged(settings) => {
                clock = settings.clock.clone();
                let reach = settings.reach.clone();
                let injector = Injector {
                    client: client.kube().clone(),
                    field_manager: client.field_manager().to_owned(),
                    reach: reach.unwrap_or_else(|| Reach::url(format!("https://{address}"))),
                    mutating: settings.configurations(Phase::Mutating, &webhooks.admissions),
                    validating: settings.configurations(Phase::Validating, &webhooks.admissions),
                    admissions: webhooks.admissions,
                    definitions,
                    register: settings.register.clone(),
                    direct: settings.reach.is_none(),
                    registered: parking_lot::Mutex::default(),
                };
                let keeper = Keeper::new(client.kube().clone(), *settings, injector, Arc::clone(&serving));
                // Boxed: what it awaits is large, and would be part of each future that runs a manager.
                Box::pin(keeper.start()).await?;
                tasks.spawn(async move {
                    keeper.run(shutdown).await;
                    drop(serves);
                });
            }
        }
        *ready.write() = Some((serving, clock));
        Ok(async move {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "a task of the webhooks ended");
                }
            }
            *ready.write() = None;
        })
    }
}

fn acceptor(serving: &Arc<Serving>, client_authorities: Option<&str>) -> Result<TlsAcceptor, WebhookError> {
    let failed = |error: rustls::Error| WebhookError::Serve(error.into());
    let provider = Arc::new(default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(bundle) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
                let certificate = certificate.map_err(|error| WebhookError::Serve(error.to_string().into()))?;
                roots.add(certificate).map_err(failed)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| WebhookError::Serve(error.into()))?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::clone(serving) as Arc<dyn rustls::server::ResolvesServerCert>);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn is_enabled(variable: Option<&str>) -> bool {
    variable != Some("false")
}

/// As in controller-runtime: one or more segments of letters, digits, `-` and `_`, or the root.
fn is_path(path: &str) -> bool {
    let segment = |segment: &str| {
        !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    path == "/" || path.strip_prefix('/').is_some_and(|path| path.split('/').all(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_controller_runtimes() {
        for path in ["/", "/convert", "/mutate--v1-pod", "/a/b_c"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "a", "/a/", "//a", "/a.b", "/a?b"] {
            assert!(!is_path(path), "{path}");
        }
    }

    #[test]
    fn outside_of_a_cluster_webhooks_are_reached_directly() {
        let of = |certificates: Certificates| {
            let webhooks = Webhooks::new().listen(":9443").certificates(certificates);
            let webhooks = webhooks.outside("127.0.0.1:0", "pets", "petstore");
            assert_eq!(webhooks.address(), "127.0.0.1:0");
            match webhooks.certificates.0 {
                Source::SelfManaged(settings) => {
                    assert!(settings.reach.is_none(), "not directly");
                    (settings.namespace.clone(), settings.registered_as().map(str::to_owned))
                }
                Source::Files { .. } => panic!("certificates from files"),
            }
        };
        assert_eq!(of(Certificates::default()), ("pets".into(), Some("petstore".into())));
        let own = SelfManaged::new("zoo").service("zoo-webhooks");
        assert_eq!(of(Certificates::self_managed(own.clone())), ("zoo".into(), Some("petstore".into())));
        let registered = Certificates::self_managed(own.register("zoo"));
        assert_eq!(of(registered), ("zoo".into(), Some("zoo".into())));
    }

    #[test]
    fn only_false_disables() {
        assert!(is_enabled(None) && is_enabled(Some("true")) && is_enabled(Some("")));
        assert!(!is_enabled(Some("false")));
    }
}

/// The examples of the page about webhooks compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/webhooks.md")]
mod how_to {}
