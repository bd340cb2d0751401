//! ServiceAccount: references to secrets keep only their names.

use serde_json::{Value, json};

use super::Strategy;
use crate::validation::access::{Access, AccessMut};

const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// The strategy of ServiceAccounts.
pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn prepare_create(&self, object: &mut Value) {
        for secret in object.items_mut("secrets") {
            *secret = match secret.text("name") {
                "" => json!({}),
                name => json!({ "name": name }),
            };
        }
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        self.prepare_create(object);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = |object: &Value| object.below(&["metadata", "annotations"]).has(ENFORCE_MOUNTABLE);
        if !annotated(object) || old.is_some_and(annotated) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{ENFORCE_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate \
             access to mounted secrets"
        )]
    }
}
