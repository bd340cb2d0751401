//! Nothing is created behind the back of a CRD that goes.
//!
//! A create that has looked at its CRD and is about to be stored could land after the CRD's objects were deleted, and
//! stay behind. So it passes a gate that the CRD's deletion shuts before it looks for objects, and shutting waits for
//! those that are passing.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{RwLock, RwLockReadGuard};

/// What creates of a CRD's objects pass through, and its deletion shuts. All states of one CRD share one.
#[derive(Debug, Default)]
pub struct Gate {
    shut: AtomicBool,
    passing: RwLock<()>,
}

impl Gate {
    /// Held while an object is stored; `None` when the CRD is going.
    pub async fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let passing = self.passing.read().await;
        (!self.shut.load(Ordering::SeqCst)).then_some(passing)
    }

    /// Lets no create in any more, and waits until all are out.
    pub async fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        drop(self.passing.write().await);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn creates_that_are_in_are_waited_for_and_none_follow() {
        let gate = Gate::default();
        let passing = gate.enter().await;
        assert!(passing.is_some());
        assert!(gate.shut().now_or_never().is_none(), "somebody is still passing");
        assert!(gate.enter().await.is_none());
        drop(passing);
        gate.shut().now_or_never().expect("nobody is left");
    }
}
