//! Which cluster to talk to, and with which credentials.
//!
//! In the order of controller-runtime: a file that was named, `$KUBECONFIG` (several files are
//! merged, and those that are not there are left out), the service account of the pod this runs in,
//! `~/.kube/config`. A pod into which no service account is mounted goes on to the last of them, unless
//! `$KUBECONFIG` names files. Asking for a context leaves the service account out.
//!
//! Tokens that come from a file, as those of service accounts do, are read again once a minute, and
//! at once when the server no longer takes them. A request that was refused so is sent again with
//! the new one, so that a token that is replaced never stops an operator, however late. Where a
//! kubeconfig has both a token and a file, the file counts, and the token until it can be read.
//!
//! Clients made here [send again](connect) only what is safe to send again.
//!
//! ```no_run
//! # async fn example() -> Result<(), windlass::config::ConfigError> {
//! use windlass::config::{self, Loader};
//!
//! let client = config::client().await?;
//! let staging = Loader::default().context("staging").client().await?;
//! # Ok(()) }
//! ```

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::retry;
use crate::token_file::{TokenFile, Unreadable};

/// Why there is no configuration.
///
/// ```
/// use windlass::config::{ConfigError, Loader};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = Loader::default().kubeconfig("/nowhere").client().await.err();
/// assert!(matches!(error, Some(ConfigError::Kubeconfig { origin, .. }) if origin == "/nowhere"));
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A kubeconfig cannot be used.
    #[error("kubeconfig {origin}: {source}")]
    Kubeconfig {
        /// Where it was found.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: KubeconfigError,
    },
    /// The service account of the pod cannot be used.
    #[error("service account of this pod: {0}")]
    InCluster(#[source] InClusterError),
    /// A file with a token cannot be read.
    #[error("token {}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is nothing anywhere.
    #[error(
        "no cluster is configured: no kubeconfig was named, $KUBECONFIG is not set, this is no pod, and there is no {}; \
         start a cluster with `windlass up`, or set $KUBECONFIG",
        path.display()
    )]
    Nothing {
        /// Where it was looked for last.
        path: PathBuf,
    },
    /// The configuration does not make a client.
    #[error("client: {0}")]
    Client(#[source] Box<kube::Error>),
}

crate::report::debug_as_message!(ConfigError);

impl From<Unreadable> for ConfigError {
    fn from(Unreadable { path, source }: Unreadable) -> Self {
        Self::Token { path, source }
    }
}

/// A client for the cluster found first.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let manager = windlass::Manager::builder(windlass::config::client().await?).build()?;
/// # Ok(()) }
/// ```
pub async fn client() -> Result<kube::Client, ConfigError> {
    Loader::default().client().await
}

/// A client for a configuration, without the retries of [`kube::Client::try_from`]: those repeat
/// writes that the server may have carried out. This one repeats reads that a busy server turned
/// away, and writes that it did not begin (429 with `Retry-After`).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = windlass::config::Loader::default().load().await?;
/// config.read_timeout = None;
/// let client = windlass::config::connect(config)?;
/// # Ok(()) }
/// ```
pub fn connect(mut config: kube::Config) -> Result<kube::Client, ConfigError> {
    config.default_retry = false;
    let token = TokenFile::take(&mut config.auth_info)?;
    // Without a name and password that may stand before it.
    let host = config.cluster_url.authority().map(|authority| {
        let host = authority.as_str();
        host.rsplit_once('@').map_or(host, |(_, host)| host).into()
    });
    let client = kube::Client::try_from(config).map_err(|error| ConfigError::Client(Box::new(error)))?;
    Ok(retry::with_retries(client, host.unwrap_or_default(), token))
}

/// Finds a configuration. See the [module documentation](self).
///
/// ```no_run
/// # async fn example() -> Result<(), windlass::config::ConfigError> {
/// use windlass::config::Loader;
///
/// let file = Loader::default().kubeconfig("/etc/petstore/kubeconfig").context("production").client().await?;
/// let pod = Loader::default().in_cluster().client().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Loader {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    in_cluster: bool,
    service_account: Option<PathBuf>,
}

impl Loader {
    /// Uses this file and no other.
    #[must_use]
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// Uses this context instead of the current one.
    #[must_use]
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.context = Some(name.into());
        self
    }

    /// Uses the service account of the pod and nothing else.
    #[must_use]
    pub fn in_cluster(mut self) -> Self {
        self.in_cluster = true;
        self
    }

    /// Uses the service account whose files (`token`, `ca.crt`, `namespace`) are in this directory, and
    /// nothing else: for a pod that mounts them elsewhere. The cluster is the pod's.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), windlass::config::ConfigError> {
    /// let client = windlass::config::Loader::default().service_account("/var/run/other").client().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn service_account(mut self, directory: impl Into<PathBuf>) -> Self {
        self.service_account = Some(directory.into());
        self
    }

    /// The configuration.
    pub async fn load(&self) -> Result<kube::Config, ConfigError> {
        self.load_in(&Surroundings::of_this_process()).await
    }

    async fn load_in(&self, here: &Surroundings) -> Result<kube::Config, ConfigError> {
        if let Some(directory) = &self.service_account {
            return here.pod(directory);
        }
        if self.in_cluster {
            return here.pod(&here.account);
        }
        if let Some(path) = &self.kubeconfig {
            return self.read(path).await;
        }
        let failed = |source| ConfigError::Kubeconfig { origin: "$KUBECONFIG".to_owned(), source };
        let in_pod = self.context.is_none() && here.host.is_some();
        let missing = match merged(&here.kubeconfig) {
            Ok(Some(file)) => {
                return kube::Config::from_custom_kubeconfig(file, &self.options()).await.map_err(failed);
            }
            Ok(None) => false,
            // Files of which none is there say nothing.
            Err(error) if in_pod && is_missing(&error) => true,
            Err(error) => return Err(failed(error)),
        };
        let mut unusable = None;
        if in_pod {
            match here.pod(&here.account) {
                Ok(config) => return Ok(config),
                // Who names files does not mean the one at home.
                Err(error) if missing => return Err(error),
                Err(error) => unusable = Some(error),
            }
        }
        let path = here.home.join(".kube").join("config");
        if !path.is_file() {
            return Err(unusable.unwrap_or(ConfigError::Nothing { path }));
        }
        if let Some(error) = unusable {
            tracing::warn!(%error, path = %path.display(), "kubeconfig used instead of the service account");
        }
        self.read(&path).await
    }

    /// A client for it, as [`connect`] makes them.
    pub async fn client(&self) -> Result<kube::Client, ConfigError> {
        connect(self.load().await?)
    }

    fn options(&self) -> KubeConfigOptions {
        KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() }
    }

    async fn read(&self, path: &Path) -> Result<kube::Config, ConfigError> {
        let failed = |source| ConfigError::Kubeconfig { origin: path.display().to_string(), source };
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        kube::Config::from_custom_kubeconfig(file, &self.options()).await.map_err(failed)
    }
}

/// The files of a list as one, if it names any. One that is not there is left out, as client-go does;
/// if all are, that is the error.
fn merged(list: &OsStr) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let (mut merged, mut missing) = (None, None);
    for path in std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()) {
        match Kubeconfig::read_from(&path) {
            Ok(file) => merged = Some(merged.unwrap_or_else(Kubeconfig::default).merge(file)?),
            Err(error) if is_missing(&error) => {
                tracing::warn!(path = %path.display(), "kubeconfig not found");
                missing.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (merged, missing) {
        (None, Some(error)) => Err(error),
        (merged, _) => Ok(merged),
    }
}

fn is_missing(error: &KubeconfigError) -> bool {
    matches!(error, KubeconfigError::ReadConfig(error, _) if error.kind() == ErrorKind::NotFound)
}

/// Where configuration is looked for.
struct Surroundings {
    /// `$KUBECONFIG`.
    kubeconfig: OsString,
    /// Where pods reach the API server.
    host: Option<String>,
    port: Option<String>,
    /// Where the service account of a pod is mounted.
    account: PathBuf,
    home: PathBuf,
}

impl Surroundings {
    fn of_this_process() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG").unwrap_or_default(),
            host: variable("KUBERNETES_SERVICE_HOST"),
            port: variable("KUBERNETES_SERVICE_PORT"),
            account: PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount"),
            home: std::env::home_dir().unwrap_or_default(),
        }
    }

    /// The cluster of this pod, with the service account in a directory.
    fn pod(&self, directory: &Path) -> Result<kube::Config, ConfigError> {
        let (Some(host), Some(port)) = (&self.host, &self.port) else {
            let missing = InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent);
            return Err(ConfigError::InCluster(missing));
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port: u16 =
            port.parse().map_err(|error| ConfigError::InCluster(InClusterError::ParseClusterPort(error)))?;
        let url = format!("https://{host}:{port}").parse();
        let url = url.map_err(|error| ConfigError::InCluster(InClusterError::ParseClusterUrl(error)))?;
        let namespace = std::fs::read_to_string(directory.join("namespace"));
        let namespace =
            namespace.map_err(|error| ConfigError::InCluster(InClusterError::ReadDefaultNamespace(error)))?;
        let unusable = |error| ConfigError::InCluster(InClusterError::ReadCertificateBundle(error));
        let authority = directory.join("ca.crt");
        let bundle = std::fs::read(&authority).map_err(unusable)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bundle).collect();
        let certificates = certificates.map_err(|error| unusable(std::io::Error::other(error)))?;
        let token = directory.join("token");
        TokenFile::open(&token)?;
        // Nothing of the environment is looked at: a proxy that it names is for what is outside the cluster.
        let mut config = kube::Config::new(url);
        namespace.trim().clone_into(&mut config.default_namespace);
        config.root_cert = Some(certificates.into_iter().map(|certificate| certificate.to_vec()).collect());
        // Read again when it changes, as pods have it.
        config.root_cert_file = Some(authority);
        config.auth_info.token_file = Some(token.to_string_lossy().into_owned());
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn file(dir: &Path) -> PathBuf {
        let path = dir.join("config");
        let text = r#"{
            "current-context": "one",
            "contexts": [
                {"name": "one", "context": {"cluster": "one", "user": "me", "namespace": "n1"}},
                {"name": "two", "context": {"cluster": "two", "user": "me"}}
            ],
            "clusters": [
                {"name": "one", "cluster": {"server": "https://one:6443"}},
                {"name": "two", "cluster": {"server": "https://two:6443"}}
            ],
            "users": [{"name": "me", "user": {"token": "t"}}]
        }"#;
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test]
    async fn a_named_file_is_used_with_the_context_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let loader = Loader::default().kubeconfig(file(dir.path()));
        let config = loader.load().await.unwrap();
        assert_eq!((config.cluster_url.host(), config.default_namespace.as_str()), (Some("one"), "n1"));
        let config = loader.clone().context("two").load().await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("two"));
        let error = loader.context("three").load().await.unwrap_err().to_string();
        assert!(error.contains("three") && error.contains("config"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_named() {
        let error = Loader::default().kubeconfig("/does/not/exist").load().await.unwrap_err().to_string();
        assert!(error.contains("/does/not/exist"), "{error}");
    }

    /// Surroundings with nothing in them, in a directory.
    fn nowhere(dir: &Path) -> Surroundings {
        let (account, home) = (dir.join("account"), dir.join("home"));
        Surroundings { kubeconfig: OsString::new(), host: None, port: None, account, home }
    }

    /// A pod with a service account.
    fn pod(dir: &Path) -> Surroundings {
        let surroundings = nowhere(dir);
        std::fs::create_dir_all(&surroundings.account).unwrap();
        let authority = rcgen::generate_simple_self_signed(["pod".to_owned()]).unwrap().cert.pem();
        for (name, text) in [("namespace", "pets\n"), ("ca.crt", &authority), ("token", "t\n")] {
            std::fs::write(surroundings.account.join(name), text).unwrap();
        }
        Surroundings { host: Some("fd00::1".into()), port: Some("6443".into()), ..surroundings }
    }

    #[tokio::test]
    async fn the_service_account_of_a_pod_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let here = pod(dir.path());
        std::fs::create_dir_all(here.home.join(".kube")).unwrap();
        file(&here.home.join(".kube"));
        for loader in [Loader::default(), Loader::default().in_cluster()] {
            let config = loader.load_in(&here).await.unwrap();
            assert_eq!(config.cluster_url.to_string(), "https://[fd00::1]:6443/");
            assert_eq!(config.default_namespace, "pets");
            let files = [Some(here.account.join("ca.crt")), config.auth_info.token_file.clone().map(PathBuf::from)];
            assert_eq!([config.root_cert_file.clone(), Some(here.account.join("token"))], files);
            connect(config).unwrap();
        }
    }

    #[tokio::test]
    async fn a_context_is_one_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let here = pod(dir.path());
        std::fs::create_dir_all(here.home.join(".kube")).unwrap();
        file(&here.home.join(".kube"));
        let config = Loader::default().context("two").load_in(&here).await.unwrap();
        assert_eq!(config.cluster_url.host(), Some("two"));
    }

    /// They are for what is outside the cluster, whatever they say.
    #[test]
    fn a_pod_looks_at_no_proxies_of_the_environment() {
        for (name, value) in [("HTTPS_PROXY", "http://["), ("NO_PROXY", "[::/"), ("HTTPS_PROXY", "http://proxy:8080")] {
            // Variables belong to a process.
            let test = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "config::tests::the_service_account_of_a_pod_is_used"])
                .env(name, value)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&test.stdout);
            assert!(test.status.success() && said.contains("1 passed"), "{name}={value}: {said}");
        }
    }

    #[tokio::test]
    async fn a_pod_whose_address_makes_no_sense_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let here = pod(dir.path());
        for (host, port) in [("fd00::1", "http"), ("a b", "443")] {
            let here = Surroundings { host: Some(host.into()), port: Some(port.into()), ..pod(dir.path()) };
            let error = Loader::default().in_cluster().load_in(&here).await.unwrap_err();
            assert!(matches!(error, ConfigError::InCluster(_)), "{error}");
        }
        std::fs::write(here.account.join("ca.crt"), "-----BEGIN CERTIFICATE-----").unwrap();
        let error = Loader::default().in_cluster().load_in(&here).await.unwrap_err();
        assert!(matches!(error, ConfigError::InCluster(_)), "{error}");
    }

    /// pkg/client/config/config.go of controller-runtime, and clientcmd where `$KUBECONFIG` is set.
    #[tokio::test]
    async fn pods_without_a_service_account_use_the_home_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut here = pod(dir.path());
        std::fs::write(here.account.join("token"), "").unwrap();
        let error = Loader::default().load_in(&here).await.unwrap_err();
        assert!(matches!(&error, ConfigError::Token { .. }), "{error}");
        std::fs::create_dir_all(here.home.join(".kube")).unwrap();
        file(&here.home.join(".kube"));
        let at_home = async |here: &Surroundings| {
            let config = Loader::default().load_in(here).await.unwrap();
            assert_eq!(config.cluster_url.host(), Some("one"));
            Loader::default().in_cluster().load_in(here).await.unwrap_err()
        };
        for name in ["token", "ca.crt", "namespace"] {
            at_home(&here).await;
            std::fs::remove_file(here.account.join(name)).unwrap();
        }
        let error = at_home(&here).await.to_string();
        assert!(error.contains("service account"), "{error}");
        here.kubeconfig = dir.path().join("gone").into();
        let error = Loader::default().load_in(&here).await.unwrap_err().to_string();
        assert!(error.contains("service account"), "{error}");
        here.host = None;
        let error = Loader::default().load_in(&here).await.unwrap_err().to_string();
        assert!(error.contains("$KUBECONFIG"), "{error}");
        here.kubeconfig.clear();
        at_home(&here).await;
    }

    #[tokio::test]
    async fn what_is_nowhere_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let here = nowhere(dir.path());
        let error = Loader::default().load_in(&here).await.unwrap_err();
        assert!(matches!(error, ConfigError::Nothing { path } if path == here.home.join(".kube").join("config")));
        let error = Loader::default().in_cluster().load_in(&here).await.unwrap_err().to_string();
        assert!(error.contains("service account"), "{error}");
    }

    #[tokio::test]
    async fn missing_files_of_a_list_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let (there, gone) = (file(dir.path()), dir.path().join("gone"));
        let list = |paths: &[&Path]| std::env::join_paths(paths).unwrap();
        let found = merged(&list(&[&gone, &there])).unwrap().unwrap();
        assert_eq!(found.current_context.as_deref(), Some("one"));
        let error = merged(&list(&[&gone, &gone])).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(merged(&list(&[Path::new("")])).unwrap().is_none());
        std::fs::write(&gone, "{").unwrap();
        merged(&list(&[&there, &gone])).unwrap_err();
    }
}
