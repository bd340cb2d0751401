«header»//! Looks after each «kind», a kind that another project declares.

use std::sync::Arc;

use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, Outcome};

use «types»;

/// The controller, as the manager runs it.
pub fn controller() -> CompleteController {
    Controller::<«type»>::new("«controller»").complete(Reconciler)
}

struct Reconciler;

impl Reconcile<«type»> for Reconciler {
    /// Called when the «kind» may differ from the state of the cluster.
    async fn reconcile(&self, «variable»: Arc<«type»>, ctx: Context) -> windlass::Result {
        // Replace this with what the operator does for a «kind».
        tracing::debug!(uid = «variable».metadata.uid, controller = ctx.controller(), "seen");
        Ok(Outcome::Done)
    }
}
