«header»//! Looks after each «kind», a kind that another project declares.

use std::sync::Arc;

use windlass::controller::{CompleteController, Reconcile};
use windlass::{Context, Controller, Outcome};

use «types»;

/// The controller, as the manager runs it.
pub fn controller() -> CompleteController {
«complete»
}

struct Reconciler;

impl Reconcile<«type»> for Reconciler {
    /// Called when the «kind» may differ from the state of the cluster.
«reconcile» {
        // Replace this with what the operator does for «article» «kind».
        tracing::debug!(uid = «variable».metadata.uid, controller = ctx.controller(), "seen");
        Ok(Outcome::Done)
    }
}
