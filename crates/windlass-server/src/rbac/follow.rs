//! Keeps the policy in step with the stored roles and bindings.
//!
//! A task follows them through the watch hub and swaps in a new [`Policy`] after each batch of changes.
//! The request that wrote one waits for [`Rbac::catch_up`], so that a change is in effect when its client hears
//! of it. Aggregated ClusterRoles have the rules that are stored: a controller keeps these up to date.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Mutex;
use windlass_store::{Range, Revision, Store, StoreError};

use super::policy::{Kind, Policy};
use crate::codec::json;
use crate::watch::Hub;

/// How many events are taken in at once.
const BATCH: usize = 256;
/// How long a write waits for the watch hub to come round.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// See the module's introduction.
pub struct Rbac {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    policy: ArcSwap<Policy>,
    state: Mutex<State>,
}

/// What has been taken in.
#[derive(Default)]
struct State {
    policy: Policy,
    /// The revision up to which each kind has been.
    seen: [Revision; 4],
}

impl Rbac {
    /// A policy without roles, until it is [opened](Self::open).
    pub(crate) fn new(store: Arc<dyn Store>, hub: Arc<Hub>) -> Self {
        Self { store, hub, policy: ArcSwap::default(), state: Mutex::default() }
    }

    /// The policy in effect.
    pub(crate) fn policy(&self) -> Guard<Arc<Policy>> {
        self.policy.load()
    }

    /// Starts from what is stored.
    pub(crate) async fn open(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        for kind in Kind::ALL {
            self.reload(&mut state, kind).await?;
        }
        self.settle(&state);
        Ok(())
    }

    /// Follows changes until the hub is gone.
    pub(crate) async fn run(&self) {
        let mut newest = Vec::with_capacity(Kind::ALL.len());
        for kind in Kind::ALL {
            let Ok(channel) = self.hub.channel(kind.prefix()).await else { return };
            newest.push(channel.subscribe());
        }
        loop {
            if let Err(error) = self.refresh().await {
                tracing::error!(%error, "roles and bindings no longer take effect: the store cannot be used");
                return;
            }
            // Losing the race cancels a wait, never a change: a receiver remembers what it has not shown.
            let changes = newest.iter_mut().map(|newest| Box::pin(newest.changed()));
            if futures::future::select_all(changes).await.0.is_err() {
                return;
            }
        }
    }

    /// Waits until everything that is stored now is in effect.
    pub(crate) async fn catch_up(&self) {
        let target = *self.store.revision().borrow();
        let mut progress = self.hub.progress();
        let waited = tokio::time::timeout(CATCH_UP_TIMEOUT, progress.wait_for(|progress| *progress >= target)).await;
        if !matches!(waited, Ok(Ok(_))) {
            tracing::warn!("the watch hub lags behind: a change of roles takes effect later");
            return;
        }
        drop(waited);
        if let Err(error) = self.refresh().await {
            tracing::warn!(%error, "a change of roles could not be read");
        }
    }

    /// Takes in what the hub has delivered.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        let mut changed = false;
        for kind in Kind::ALL {
            let channel = self.hub.channel(kind.prefix()).await?;
            loop {
                let Ok(events) = channel.read(state.seen[kind as usize], BATCH) else {
                    self.reload(&mut state, kind).await?;
                    changed = true;
                    continue;
                };
                let Some(last) = events.last() else { break };
                state.seen[kind as usize] = last.event.revision;
                changed = true;
                for event in &events {
                    let event = &event.event;
                    if event.deleted {
                        state.policy.forget(kind, name(kind, &event.key));
                    } else {
                        learn(&mut state.policy, kind, &event.key, &event.entry.value);
                    }
                }
            }
        }
        if changed {
            self.settle(&state);
        }
        Ok(())
    }

    /// Puts into effect what was taken in.
    fn settle(&self, state: &State) {
        self.policy.store(Arc::new(state.policy.clone()));
    }

    async fn reload(&self, state: &mut State, kind: Kind) -> Result<(), StoreError> {
        let snapshot = self.store.range(Range::prefix(kind.prefix()), None, 0).await?;
        state.policy.clear(kind);
        for entry in &snapshot.entries {
            learn(&mut state.policy, kind, &entry.key, &entry.value);
        }
        state.seen[kind as usize] = snapshot.revision;
        Ok(())
    }
}

fn learn(policy: &mut Policy, kind: Kind, key: &[u8], value: &[u8]) {
    let name = name(kind, key);
    match json::parse(value) {
        Ok(parsed) => policy.learn(kind, name, &parsed.value),
        Err(error) => tracing::error!(kind = kind.name(), name, %error, "a stored object cannot be read"),
    }
}

/// `name` or `namespace/name`.
fn name(kind: Kind, key: &[u8]) -> &str {
    key.strip_prefix(kind.prefix().as_bytes()).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default()
}
