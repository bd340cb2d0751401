//! The state under its lock, and the signals by which handlers, decisions and writes wake each other.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use windlass::metrics::Registry;

use crate::state::State;

/// What handlers, the loop and writes share.
pub(crate) struct SharedState {
    pub(crate) state: Mutex<State>,
    /// Wakes the loop.
    pub(crate) wake: Notify,
    /// Changes when claims have.
    pub(crate) claims: watch::Sender<()>,
    /// Whether the scheduler has stopped.
    pub(crate) ended: AtomicBool,
}

impl SharedState {
    /// A state of an empty cluster.
    pub(crate) fn new(profiles: &BTreeSet<String>, metrics: &Registry) -> Self {
        let state = Mutex::new(State::new(profiles, metrics));
        Self { state, wake: Notify::new(), claims: watch::Sender::new(()), ended: AtomicBool::new(false) }
    }

    /// Applies a change, and sees to it that the loop looks at it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.wake.notify_one();
    }
}

/// The clock of the runtime, so that tests can move it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
