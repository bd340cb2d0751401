//! Says in the status of ValidatingAdmissionPolicies what is doubtful about their expressions.
//!
//! Mirrors upstream's `pkg/controller/validatingadmissionpolicystatus/controller.go`: each generation is
//! looked at once, with the kinds that are served at that time.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass::manager::ManagerError;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome, Reconcile};

/// The name of the controller, and the name under which it owns the status.
const NAME: &str = "validatingadmissionpolicy-status";

/// Tells what is doubtful about a policy.
pub(crate) type Check = Arc<dyn Fn(&Value) -> Vec<(String, String)> + Send + Sync>;

pub(super) fn add(manager: &mut Manager, check: Check) -> Result<(), ManagerError> {
    manager.add(Controller::<ValidatingAdmissionPolicy>::new(NAME).complete(PolicyStatus { check }))
}

struct PolicyStatus {
    check: Check,
}

impl Reconcile<ValidatingAdmissionPolicy> for PolicyStatus {
    async fn reconcile(&self, policy: Arc<ValidatingAdmissionPolicy>, ctx: Context) -> windlass::Result {
        let key = ObjectKey::of(&*policy);
        let generation = policy.metadata.generation.unwrap_or_default();
        let seen = policy.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
        if generation <= seen {
            return Ok(Outcome::Done);
        }
        let warnings = (self.check)(&serde_json::to_value(&*policy)?);
        let warnings: Vec<Value> = warnings
            .into_iter()
            .map(|(field_ref, warning)| json!({"fieldRef": field_ref, "warning": warning}))
            .collect();
        let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let status = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": key.name()},
            "status": {"observedGeneration": generation, "typeChecking": checking},
        });
        let how = PatchParams::apply(NAME).force();
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(ctx.client().kube().clone());
        match policies.patch_status(key.name(), &how, &Patch::Apply(status)).await {
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Outcome::Done),
            outcome => outcome.map(|_| Outcome::Done).map_err(Into::into),
        }
    }
}
