//! Where the serving certificate comes from, and the one that is served now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::admission::{Admission, Phase};
use super::authority::{CertificateError, Facts, certify};
use super::registration::Reach;
use crate::metrics::Gauge;

/// Where the serving certificate comes from.
///
/// ```
/// use windlass::webhook::{Certificates, SelfManaged};
///
/// // What cert-manager writes: `tls.crt` and `tls.key`, read again when they change.
/// let mounted = Certificates::directory("/tmp/k8s-webhook-server/serving-certs");
/// // No cert-manager needed.
/// let own = Certificates::self_managed(SelfManaged::new("petstore-system").service("petstore-webhook-service"));
/// ```
#[derive(Clone, Debug)]
pub struct Certificates(pub(super) Source);

#[derive(Clone, Debug)]
pub(super) enum Source {
    Files { certificate: PathBuf, key: PathBuf, every: Duration },
    SelfManaged(Box<SelfManaged>),
}

impl Default for Certificates {
    /// controller-runtime's directory, `k8s-webhook-server/serving-certs` among the temporary files.
    fn default() -> Self {
        Self::directory(std::env::temp_dir().join("k8s-webhook-server").join("serving-certs"))
    }
}

impl Certificates {
    /// `tls.crt` and `tls.key` in a directory, read again within seconds when they change. Until
    /// both fit together, the previous ones are served.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::files(path.join("tls.crt"), path.join("tls.key"))
    }

    /// Two files of any name, otherwise like [`directory`](Self::directory).
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self(Source::Files { certificate: certificate.into(), key: key.into(), every: Duration::from_secs(5) })
    }

    /// Made and renewed by the operator itself.
    pub fn self_managed(settings: SelfManaged) -> Self {
        Self(Source::SelfManaged(Box::new(settings)))
    }

    /// How often to look whether something has changed: 5 seconds for files; a minute for
    /// self-managed certificates, which are watched besides.
    #[must_use]
    pub fn check_every(mut self, period: Duration) -> Self {
        match &mut self.0 {
            Source::Files { every, .. } => *every = period,
            Source::SelfManaged(settings) => settings.every = period,
        }
        self
    }
}

/// What time it is.
#[derive(Clone)]
pub(super) struct Clock(pub(super) Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Certificates that the operator makes itself, keeps in a Secret that all its replicas share, and
/// renews before they expire. The operator keeps `caBundle` up to date in every webhook configuration that points to its
/// Service, and in the CRD of every kind that it converts, so that API servers trust the certificates.
///
/// An authority is replaced without a gap: the new one is added beside the old one, and used only once every API server
/// has had time to read it.
///
/// The operator needs to `get`, `create`, `update`, `list` and `watch` Secrets in the namespace;
/// to `list`, `watch` and `patch` webhook configurations, and to `get` and `create` those that it
/// [registers](Self::register); and, for conversions, to `get`, `list`, `watch` and `patch`
/// definitions. Without `watch` it looks every minute.
///
/// ```
/// use std::time::Duration;
/// use windlass::webhook::{Certificates, SelfManaged, Webhooks};
///
/// let certificates = SelfManaged::new("petstore-system")
///     .service("petstore-webhook-service")
///     .secret("petstore-webhook-cert")
///     .serving_lifetime(Duration::from_secs(30 * 24 * 3600))
///     .register("petstore"); // and make the webhook configurations
/// let webhooks = Webhooks::new().certificates(Certificates::self_managed(certificates));
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing before they are given to `Certificates`"]
pub struct SelfManaged {
    pub(super) namespace: String,
    pub(super) secret: String,
    /// `None`: at the address that is listened on.
    pub(super) reach: Option<Reach>,
    pub(super) register: Option<String>,
    /// Configurations of other programs to inject into; all that lead here if not said.
    inject_into: Option<Vec<String>>,
    pub(super) authority_lifetime: Duration,
    pub(super) serving_lifetime: Duration,
    pub(super) settle: Duration,
    pub(super) every: Duration,
    pub(super) clock: Clock,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl SelfManaged {
    /// For an operator in this namespace, reached through the Service `webhook-service`, with the
    /// Secret `webhook-server-cert`: kubebuilder's names.
    pub fn new(namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self {
            reach: Some(Reach::service(&namespace, "webhook-service")),
            namespace,
            secret: "webhook-server-cert".to_owned(),
            register: None,
            inject_into: None,
            authority_lifetime: DAY * 730,
            serving_lifetime: DAY * 90,
            settle: Duration::from_secs(60),
            every: Duration::from_secs(60),
            clock: Clock(Arc::new(Timestamp::now)),
        }
    }

    /// The Service in the same namespace through which the webhooks are reached.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.reach = Some(Reach::service(&self.namespace, name));
        self
    }

    /// Another way to reach them.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = Some(reach);
        self
    }

    /// Reached at the very address that is listened on: for operators that run beside their API
    /// server, in development and tests.
    ///
    /// The address is that of one replica. With [`register`](Self::register), a replica that stops takes its
    /// webhooks out of the configurations, so that nothing waits for it; of several replicas, another one then makes
    /// them lead to itself, at once or, after a crash, within seconds.
    pub fn directly(mut self) -> Self {
        self.reach = None;
        self
    }

    /// The Secret that all replicas share.
    pub fn secret(mut self, name: impl Into<String>) -> Self {
        self.secret = name.into();
        self
    }

    /// Creates `<name>-mutating-webhook-configuration` and `<name>-validating-webhook-configuration` for the webhooks
    /// that were added, and points the CRDs of converted kinds to this operator: when it starts, and when they were
    /// deleted. Webhooks that an earlier version of the operator registered under the name are replaced or removed. By
    /// default the configurations come from elsewhere, for example from `kubectl apply`, and only their `caBundle` is
    /// written.
    pub fn register(mut self, name: impl Into<String>) -> Self {
        self.register = Some(name.into());
        self
    }

    /// Writes the `caBundle` of the webhook configurations of these names only, so that the operator
    /// need not be allowed to write others. By default it is written into every configuration that
    /// leads here, or, with [`register`](Self::register), into those that are made.
    pub fn inject_into(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.inject_into = Some(names.into_iter().map(Into::into).collect());
        self
    }

    pub(super) fn registered_as(&self) -> Option<&str> {
        self.register.as_deref()
    }

    /// The name of the configuration that is made of the webhooks of a phase, if one is.
    pub(super) fn registers(&self, phase: Phase, admissions: &[Admission]) -> Option<String> {
        let name = self.register.as_ref()?;
        let any = admissions.iter().any(|admission| admission.phase == phase && !admission.rules.is_empty());
        any.then(|| phase.configuration(name))
    }

    /// The names of the configurations of a phase to inject into; `None` for all that lead here.
    pub(super) fn configurations(&self, phase: Phase, admissions: &[Admission]) -> Option<Vec<String>> {
        if self.register.is_none() && self.inject_into.is_none() {
            return None;
        }
        let named = self.inject_into.iter().flatten().cloned();
        let names: BTreeSet<String> = named.chain(self.registers(phase, admissions)).collect();
        Some(names.into_iter().collect())
    }

    /// How long an authority is valid; two years by default. It is replaced when a third is left.
    pub fn authority_lifetime(mut self, lifetime: Duration) -> Self {
        self.authority_lifetime = lifetime;
        self
    }

    /// How long a serving certificate is valid; 90 days by default. It is replaced when a third is
    /// left.
    pub fn serving_lifetime(mut self, lifetime: Duration) -> Self {
        self.serving_lifetime = lifetime;
        self
    }

    /// How long after it was injected a new authority is first used; a minute by default.
    pub fn settle(mut self, time: Duration) -> Self {
        self.settle = time;
        self
    }

    /// Takes the time from a function, for tests of what happens when certificates grow old.
    pub fn clock(mut self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Clock(Arc::new(now));
        self
    }
}

/// The certificate that new connections get. Those that exist keep theirs.
#[derive(Debug)]
pub(super) struct Serving {
    current: RwLock<Option<(Arc<CertifiedKey>, Timestamp)>>,
    /// When it expires, for alerts.
    expires: Gauge,
}

impl Serving {
    pub(super) fn new(expires: Gauge) -> Self {
        Self { current: RwLock::new(None), expires }
    }

    /// Serves another certificate from now on.
    pub(super) fn install(&self, chain: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let certified = certify(chain, key)?;
        let leaf = certified.cert.first().and_then(Facts::read_der);
        let leaf = leaf.ok_or_else(|| CertificateError::Unusable("it cannot be parsed".to_owned()))?;
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|(served, _)| served.cert == certified.cert) {
            return Ok(());
        }
        tracing::info!(not_after = %leaf.not_after, "serving with a new certificate");
        self.expires.set(leaf.not_after.as_second());
        *current = Some((Arc::new(certified), leaf.not_after));
        Ok(())
    }

    /// Whether there is something to serve with, and it has not expired.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), String> {
        match &*self.current.read() {
            None => Err("there is no certificate yet".to_owned()),
            Some((_, not_after)) if *not_after <= now => Err(format!("the certificate has expired at {not_after}")),
            Some(_) => Ok(()),
        }
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().as_ref().map(|(certified, _)| Arc::clone(certified))
    }
}

#[cfg(test)]
mod tests {
    use super::super::authority::{make_authority, make_serving};
    use super::*;

    #[test]
    fn an_expired_certificate_is_not_ready() {
        let serving = Serving::new(Gauge::default());
        let now = Timestamp::now();
        serving.check(now).expect_err("nothing to serve with");
        let authority = make_authority(now, DAY * 10).expect("made");
        let facts = Facts::read(&authority.certificate).expect("read");
        let leaf = make_serving(&authority.key, &facts, &["a".to_owned()], now, DAY).expect("made");
        serving.install(leaf.certificate.as_bytes(), leaf.key.as_bytes()).expect("installed");
        serving.install(leaf.certificate.as_bytes(), authority.key.as_bytes()).expect_err("the wrong key");
        serving.check(now).expect("ready");
        serving.check(now + DAY).expect_err("expired");
        assert_eq!(serving.expires.get(), (now + DAY).as_second());
    }
}
