//! Keeps self-managed certificates: the Secret, what is served, and what API servers trust.
//!
//! Every replica runs one, and all do the same. Writes of the Secret carry the resource version
//! that was read, so of two replicas that want to change it one wins, and the other takes over
//! what it wrote: there is never a second authority that only one replica knows.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::WebhookError;
use super::certificates::{SelfManaged, Serving};
use super::inject::Injector;
use super::rotation::{Material, Policy};
use crate::retry::ConflictRetry;

/// How long to wait after a failure, at first.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait after a watch has failed, at most.
const WATCH_RETRY: Duration = Duration::from_secs(30);
/// The server's newest state, and all changes from there on.
const ANY_VERSION: &str = "0";
/// How long a look at everything may take.
const CHECK: Duration = Duration::from_secs(30);
/// How long to wait for more changes after one: they come in groups, often from ourselves.
const GATHER: Duration = Duration::from_millis(20);

/// How often a replica that is reached directly looks whether the one that API servers are led to still runs.
const DIRECT_CHECK: Duration = Duration::from_secs(5);
/// How long a process that stops may take to have API servers not call it any more.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Keeper {
    client: kube::Client,
    secrets: Api<Secret>,
    settings: SelfManaged,
    policy: Policy,
    injector: Injector,
    serving: Arc<Serving>,
    changed: Arc<Notify>,
}

impl Keeper {
    pub(super) fn new(client: kube::Client, settings: SelfManaged, injector: Injector, serving: Arc<Serving>) -> Self {
        let policy = Policy {
            names: injector.reach.names(),
            authority_lifetime: settings.authority_lifetime,
            serving_lifetime: settings.serving_lifetime,
            settle: settings.settle,
        };
        let secrets = Api::namespaced(client.clone(), &settings.namespace);
        Self { client, secrets, settings, policy, injector, serving, changed: Arc::default() }
    }

    /// Has a certificate to serve with, however long that takes, and tries once to have it trusted.
    pub(super) async fn start(&self) -> Result<(), WebhookError> {
        let mut delay = RETRY;
        let secret = loop {
            match tokio::time::timeout(CHECK, self.secure()).await {
                Err(_) => tracing::warn!(after = ?CHECK, "no certificate yet"),
                Ok(Ok(secret)) => break secret,
                // Waiting does not help against a missing permission or namespace, nor with a Secret
                // that may not be changed.
                Ok(Err(WebhookError::Secret { source, .. })) if is_final(&source) => {
                    return Err(self.failed(*source));
                }
                Ok(Err(error)) => tracing::warn!(%error, "no certificate yet"),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(self.settings.every);
        };
        // What is not done in time is done later, as what fails is.
        match tokio::time::timeout(CHECK, self.publish(secret)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "not every API server can be made to trust the webhooks yet"),
            Err(_) => tracing::warn!(after = ?CHECK, "not every API server can be made to trust the webhooks yet"),
        }
        Ok(())
    }

    /// Keeps everything right until the token is cancelled.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut watches = JoinSet::new();
        let secrets = Api::namespaced(self.client.clone(), &self.settings.namespace);
        self.watch::<Secret>(&mut watches, secrets, Some(&self.settings.secret));
        self.watch_named::<MutatingWebhookConfiguration>(&mut watches, self.injector.mutating.as_deref());
        self.watch_named::<ValidatingWebhookConfiguration>(&mut watches, self.injector.validating.as_deref());
        self.watch_named::<CustomResourceDefinition>(&mut watches, Some(&self.injector.definitions));
        let mut failures: u32 = 0;
        loop {
            let pause = match failures {
                0 if self.injector.direct => self.settings.every.min(DIRECT_CHECK),
                0 => self.settings.every,
                failures => (RETRY * 2_u32.pow(failures.min(10))).min(self.settings.every),
            };
            // Cancel-safe: a notification that was not taken stays.
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.changed.notified(), if failures == 0 => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(pause) => {}
            }
            // Safe to cut off anywhere: each write is complete in itself, and made again if it was not.
            let checked = tokio::time::timeout(CHECK, shutdown.run_until_cancelled(self.check())).await;
            match checked {
                Ok(None) => break,
                Ok(Some(Ok(()))) => failures = 0,
                Ok(Some(Err(error))) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "certificates could not be kept");
                }
                Err(_) => {
                    failures += 1;
                    tracing::warn!(failures, after = ?CHECK, "certificates could not be kept in time");
                }
            }
        }
        watches.shutdown().await;
        match tokio::time::timeout(LEAVE_TIMEOUT, self.injector.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "webhook configurations still lead to this process"),
            Err(_) => tracing::warn!(after = ?LEAVE_TIMEOUT, "webhook configurations still lead to this process"),
        }
    }

    async fn check(&self) -> Result<(), WebhookError> {
        let secret = self.secure().await?;
        self.publish(secret).await.map_err(|source| WebhookError::Inject { source: Box::new(source) })
    }

    /// Waits until this replica or another one has brought the Secret up to date, and serves with what it holds.
    async fn secure(&self) -> Result<Secret, WebhookError> {
        let mut retry = ConflictRetry::new();
        loop {
            match self.secure_once().await? {
                Ok(secret) => {
                    let material = Material::read(&secret);
                    self.serving.install(material.certificate.as_bytes(), material.key.as_bytes())?;
                    return Ok(secret);
                }
                Err(conflict) if !retry.pause().await => return Err(self.failed(conflict)),
                Err(_) => {}
            }
        }
    }

    /// The inner error is that another replica was faster.
    async fn secure_once(&self) -> Result<Result<Secret, kube::Error>, WebhookError> {
        let current = self.secrets.get_opt(&self.settings.secret).await.map_err(|source| self.failed(source))?;
        let now = (self.settings.clock.0)();
        let material = current.as_ref().map(Material::read);
        let Some(next) = self.policy.next(material.as_ref(), now)? else {
            return current.map(Ok).ok_or(WebhookError::Contended);
        };
        let written = if let Some(mut secret) = current {
            next.write(&mut secret);
            self.replace(&secret).await
        } else {
            let mut secret = Secret { type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
            secret.metadata.name = Some(self.settings.secret.clone());
            next.write(&mut secret);
            self.secrets.create(&self.params(), &secret).await
        };
        match written {
            Ok(secret) => {
                tracing::info!(secret = %self.settings.secret, "certificates were renewed");
                Ok(Ok(secret))
            }
            // Conflict and AlreadyExists are both 409; one that is gone is made again.
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && material.is_some()) => {
                Ok(Err(kube::Error::Api(status)))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Makes API servers trust the bundle, and notes when they do.
    async fn publish(&self, mut secret: Secret) -> Result<(), kube::Error> {
        let material = Material::read(&secret);
        self.injector.inject(&material.bundle()).await?;
        if let Some(published) = material.publish((self.settings.clock.0)()) {
            published.write(&mut secret);
            match self.replace(&secret).await {
                // Another replica has noted it, or has more news.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                result => drop(result?),
            }
            // What waits for it to settle.
            self.changed.notify_one();
        }
        Ok(())
    }

    async fn replace(&self, secret: &Secret) -> Result<Secret, kube::Error> {
        self.secrets.replace(&self.settings.secret, &self.params(), secret).await
    }

    fn params(&self) -> PostParams {
        PostParams { field_manager: Some(self.injector.field_manager.clone()), ..PostParams::default() }
    }

    fn failed(&self, source: kube::Error) -> WebhookError {
        let secret = format!("{}/{}", self.settings.namespace, self.settings.secret);
        WebhookError::Secret { secret, source: Box::new(source) }
    }

    /// Watches the objects of these names, or all.
    fn watch_named<K>(&self, watches: &mut JoinSet<()>, names: Option<&[String]>)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        match names {
            None => self.watch::<K>(watches, Api::all(self.client.clone()), None),
            Some(names) => {
                for name in names {
                    self.watch::<K>(watches, Api::all(self.client.clone()), Some(name));
                }
            }
        }
    }

    /// Notifies of every change. Failures are retried for ever and only cost time: there is a look
    /// at everything every now and then anyway.
    fn watch<K>(&self, watches: &mut JoinSet<()>, api: Api<K>, name: Option<&str>)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let mut params = WatchParams::default();
        if let Some(name) = name {
            params = params.fields(&format!("metadata.name={name}"));
        }
        let changed = Arc::clone(&self.changed);
        watches.spawn(async move {
            let mut delay = RETRY;
            loop {
                match follow(&api, &params, &changed).await {
                    Ok(()) => delay = RETRY,
                    Err(error) => {
                        tracing::debug!(%error, kind = %K::kind(&()), "watch failed");
                        delay = (delay * 2).min(WATCH_RETRY);
                    }
                }
                tokio::time::sleep(delay).await;
            }
        });
    }
}

/// Notifies of the start of a watch, because of what may have happened before, and of every change
/// until the watch ends.
async fn follow<K>(api: &Api<K>, params: &WatchParams, changed: &Notify) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + 'static,
{
    let mut events = std::pin::pin!(api.watch_metadata(params, ANY_VERSION).await?);
    changed.notify_one();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => changed.notify_one(),
        }
    }
    Ok(())
}

fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404 | 422))
}
