//! The election's requests.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::Instant;

use super::{Election, Fence, Intent, JITTER, LeaderElection};
use crate::events::Recorder;
use crate::fence::Sent;
use crate::retry::ConflictRetry;

/// Acquires, renews and releases a lease, and opens and closes a [`Fence`] accordingly.
///
/// ```no_run
/// # async fn example(client: kube::Client) {
/// use windlass::events::Recorder;
/// use windlass::lease::{Elector, Fence, LeaderElection};
///
/// let fence = Fence::closed();
/// let config = LeaderElection::new("my-operator");
/// let mut elector = Elector::new(client.clone(), config, fence.clone(), Recorder::discard());
/// elector.acquire().await; // waits for its turn
/// let work = fence.guard(client);
/// elector.hold().await;    // returns when the lease is lost
/// # }
/// ```
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    config: LeaderElection,
    election: Election,
    fence: Fence,
    recorder: Recorder,
    reported_holder: String,
}

/// What became of one attempt.
enum Attempt {
    Leading,
    Following(String),
    Failed(kube::Error),
}

impl Elector {
    /// An elector that has not looked yet. `client` must not pass through the fence.
    pub fn new(client: kube::Client, config: LeaderElection, fence: Fence, recorder: Recorder) -> Self {
        let mut config = config.countable();
        let namespace = config.namespace_for(&client).to_owned();
        config.namespace = Some(namespace.clone());
        Self {
            leases: Api::namespaced(client, &namespace),
            election: Election::new(config.clone()),
            config,
            fence,
            recorder,
            reported_holder: String::new(),
        }
    }

    /// Waits until this replica holds the lease. Cancel-safe: what was sent may have been
    /// accepted, and is then found at the next call.
    pub async fn acquire(&mut self) {
        let (lease, identity) = (&self.config.name, &self.config.identity);
        tracing::info!(%lease, %identity, "waiting for the lease");
        loop {
            match self.attempt().await {
                Attempt::Leading => break,
                Attempt::Following(holder) => {
                    if self.reported_holder != holder {
                        tracing::info!(lease = %self.config.name, %holder, "following");
                        self.reported_holder = holder;
                    }
                }
                Attempt::Failed(error) => tracing::warn!(%error, lease = %self.config.name, "lease not acquired"),
            }
            // Longer by chance, so that replicas do not try together for ever.
            tokio::time::sleep(self.config.retry_period.mul_f64(1.0 + JITTER * fastrand::f64())).await;
        }
        self.reported_holder.clone_from(&self.config.identity);
        tracing::info!(lease = %self.config.name, "became leader");
        self.report("became leader");
    }

    /// Renews the lease; returns when it is lost, with the fence closed, and no later than when it
    /// closes by itself.
    pub async fn hold(&mut self) {
        let term = self.fence.term();
        loop {
            let deadline = self.deadline();
            // Neither a pause nor a renewal that hangs may keep us from noticing that time is up.
            tokio::time::sleep_until(deadline.min(Instant::now() + self.config.retry_period)).await;
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Attempt::Leading) if term.is_some() && self.fence.term() == term => continue,
                Ok(Attempt::Following(holder)) => {
                    tracing::warn!(lease = %self.config.name, %holder, "lease taken by another");
                    break;
                }
                Ok(Attempt::Failed(error)) => {
                    tracing::warn!(%error, lease = %self.config.name, "lease not renewed");
                    if Instant::now() < self.deadline() {
                        continue;
                    }
                }
                // Not at all, or after the fence had closed: what is left of the work belongs to a term
                // that is over.
                Ok(Attempt::Leading) | Err(_) => {}
            }
            tracing::warn!(lease = %self.config.name, "lease not renewed in time");
            break;
        }
        self.step_down();
    }

    /// The lease is lost: no write passes any more.
    pub(crate) fn step_down(&mut self) {
        self.election.step_down();
        self.fence.close();
        self.report("stopped leading");
    }

    /// Gives the lease back if it is held, when the configuration says so. The fence is closed
    /// first: nothing may be written after.
    pub async fn release(&mut self) {
        self.fence.close();
        self.election.step_down();
        if !self.config.release_on_exit {
            return;
        }
        let released = tokio::time::timeout(self.request_timeout(), self.write_release()).await;
        match released {
            Ok(Ok(true)) => tracing::info!(lease = %self.config.name, "lease released"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(%error, lease = %self.config.name, "lease not released"),
            Err(_) => tracing::warn!(lease = %self.config.name, "lease not released in time"),
        }
    }

    fn deadline(&self) -> Instant {
        self.election.valid_until().map_or_else(Instant::now, Instant::from_std)
    }

    fn request_timeout(&self) -> Duration {
        (self.config.renew_deadline / 2).max(Duration::from_secs(1))
    }

    async fn attempt(&mut self) -> Attempt {
        match tokio::time::timeout(self.request_timeout(), self.try_lead()).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => Attempt::Failed(error),
            Err(elapsed) => Attempt::Failed(kube::Error::Service(elapsed.into())),
        }
    }

    async fn try_lead(&mut self) -> Result<Attempt, kube::Error> {
        let current = self.leases.get_opt(&self.config.name).await?;
        let spec = current.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        let now = Instant::now();
        let spec = match self.election.look(spec.as_ref(), now.into_std(), Timestamp::now()) {
            Intent::Write(spec) => spec,
            Intent::Wait { holder } => return Ok(Attempt::Following(holder)),
        };
        let sent = Sent::now();
        let written = self.write(current, spec).await?;
        self.election.written(written, sent.at());
        self.fence.renew(sent, self.config.renew_deadline);
        Ok(Attempt::Leading)
    }

    async fn write_release(&mut self) -> Result<bool, kube::Error> {
        let mut retry = ConflictRetry::new();
        loop {
            let Some(current) = self.leases.get_opt(&self.config.name).await? else {
                return Ok(false);
            };
            let spec = current.spec.clone().unwrap_or_default();
            let Some(spec) = self.election.release(&spec, Timestamp::now()) else {
                return Ok(false);
            };
            match self.write(Some(current), spec).await {
                // A renewal that was cut off may have arrived in between.
                Err(kube::Error::Api(status)) if status.is_conflict() && retry.pause().await => {}
                written => return written.map(|_| true),
            }
        }
    }

    /// Writes the lease, provided that it is as it was read (or not there).
    async fn write(&self, current: Option<Lease>, spec: LeaseSpec) -> Result<LeaseSpec, kube::Error> {
        let params = PostParams::default();
        let lease = if let Some(mut lease) = current {
            lease.spec = Some(spec);
            self.leases.replace(&self.config.name, &params, &lease).await?
        } else {
            let lease = Lease { metadata: self.metadata(), spec: Some(spec) };
            self.leases.create(&params, &lease).await?
        };
        Ok(lease.spec.unwrap_or_default())
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.config.name.clone()),
            namespace: self.config.namespace.clone(),
            ..ObjectMeta::default()
        }
    }

    fn report(&self, what: &str) {
        let lease = Lease { metadata: self.metadata(), spec: None };
        self.recorder.normal(&lease, "LeaderElection", format!("{} {what}", self.config.identity));
    }
}
