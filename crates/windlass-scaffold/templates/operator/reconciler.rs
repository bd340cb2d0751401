«header»//! Brings the cluster into the state that each «kind» asks for.

use std::sync::Arc;

use windlass::controller::CompleteController;
use windlass::finalizer::{Finalize, Finalizer};
use windlass::{Context, Controller, Outcome};

use «types»;

/// Holds a deleted «kind» until `cleanup` has succeeded.
«finalizer»

/// The controller, as the manager runs it.
pub fn controller() -> CompleteController {
«complete»
}

struct Reconciler;

impl Finalize<«type»> for Reconciler {
    /// Called when the «kind» may differ from the state of the cluster.
«reconcile» {
        // Write the children here, `ctx.children(&«variable»).apply(..)`, and watch them with `.owns::<..>()` above.
        let mut draft = ctx.draft(&«variable»);
        draft.condition("Ready", true, "Reconciled", "the cluster is as the spec asks");
        if draft.commit(&ctx).await?.status {
            ctx.recorder().normal(&«variable», "Reconciled", "the cluster is as the spec asks");
        }
        Ok(Outcome::Done)
    }

    /// Called before the «kind» goes. Children with an owner reference are deleted by Kubernetes.
«cleanup» {
        Ok(Outcome::Done)
    }
}
