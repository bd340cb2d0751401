//! What a schema cannot say about a built-in kind: one [`Strategy`] per kind.
//!
//! The registry calls a strategy in this order. On create: [`default`](Strategy::default),
//! [`prepare_create`](Strategy::prepare_create), admission, [`validate`](Strategy::validate). On update:
//! `default`, [`prepare_update`](Strategy::prepare_update), admission,
//! [`validate_update`](Strategy::validate_update). Metadata (names, labels, owner references, immutable
//! fields) is the registry's own business and is not repeated here.
//!
//! Objects are plain JSON values that already decoded against the kind's schema: types are right,
//! so a strategy may index fields freely. A strategy never does I/O.

use serde_json::Value;

use crate::field::FieldErrors;

/// How `metadata.name` must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 label: namespaces and others.
    Label,
    /// A DNS-1035 label.
    Dns1035Label,
    /// Anything that can be one path segment: RBAC kinds.
    PathSegment,
}

/// Behaviour of a built-in kind. Every method has the default that suits a kind which only has a
/// schema.
pub trait Strategy: Send + Sync + 'static {
    /// Which names are allowed.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether PUT on a missing object creates it.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether an update without resourceVersion is allowed.
    fn unconditional_update(&self) -> bool {
        true
    }

    /// Whether the kind counts spec changes in `metadata.generation`.
    fn has_generation(&self) -> bool {
        false
    }

    /// Fills in what the user left out. Must be idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Clears what users may not set at create, e.g. status.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Carries over what an update through the main endpoint may not change, e.g. status.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Carries over what an update through `/status` may not change: by default everything but
    /// `status` and, of the metadata, what upstream lets status updates touch.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    /// Whether the change from `old` to `object` counts as a change of the desired state. Only asked
    /// when [`has_generation`](Self::has_generation).
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        object.get("spec") != old.get("spec")
    }

    /// Checks a new object.
    fn validate(&self, _object: &Value, _errors: &mut FieldErrors) {}

    /// Checks a changed object.
    fn validate_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
    }

    /// Checks a status update.
    fn validate_status_update(&self, _object: &Value, _old: &Value, _errors: &mut FieldErrors) {}

    /// Warnings for the client about an accepted write, e.g. deprecated fields.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Fields beyond metadata.name and metadata.namespace that field selectors may name.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field as text; absent values read as their Go zero value.
    fn field_value(&self, object: &Value, field: &str) -> String {
        let pointer = format!("/{}", field.replace('.', "/"));
        match object.pointer(&pointer) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    /// How long a delete waits when the client does not say; `None` deletes at once.
    fn grace_seconds(&self, _object: &Value) -> Option<i64> {
        None
    }

    /// Whether a delete answers with the object instead of a Status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// Whether something beyond `metadata.finalizers` keeps the object from going, e.g. a namespace's
    /// `spec.finalizers`.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Called once, when an object that has to wait is marked as being deleted.
    fn prepare_delete(&self, _object: &mut Value) {}

    /// Called on an object that goes at once, before its last state is answered and sent to watchers.
    fn mark_gone(&self, _object: &mut Value, _time: &str) {}
}

/// A kind with a schema and nothing else.
pub struct Plain;

impl Strategy for Plain {}

/// Restores everything of `old` except `status`, as a status update must.
pub fn keep_all_but_status(object: &mut Value, old: &Value) {
    let status = object.get("status").cloned();
    let metadata = object.get("metadata").cloned();
    *object = old.clone();
    if let Value::Object(map) = object {
        match status {
            Some(status) => map.insert("status".into(), status),
            None => map.remove("status"),
        };
        if let Some(metadata) = metadata {
            map.insert("metadata".into(), metadata);
        }
    }
}

/// The strategy of a built-in kind.
pub fn of(_group: &str, _kind: &str) -> &'static dyn Strategy {
    &Plain
}
