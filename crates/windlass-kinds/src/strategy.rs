//! What a schema cannot say about a built-in kind: one [`Strategy`] per kind, found with
//! [`strategy_of`](crate::strategy_of).
//!
//! Objects are plain JSON values that already decoded against the kind's schema: types are right,
//! so a strategy may index fields freely. A strategy never does I/O. Strategies see objects in the
//! version that is stored (see [`conversion`]).
//!
//! The order of a write, and in it of the calls to a strategy, is documented and tested in `registry.rs` of
//! `windlass-server`. On create the uid, the creation time and a generated name are already there when
//! [`prepare_create`](Strategy::prepare_create) runs: jobs build their selector from them. It and
//! [`default`](Strategy::default) may run again, for another generated name and after admission; both are idempotent.
//! Subresources that write the object (`finalize`, `approval`, `ephemeralcontainers`, `resize`) use
//! [`prepare_subresource`](Strategy::prepare_subresource) and
//! [`validate_subresource`](Strategy::validate_subresource); `scale` is a view, see [`scale`].

use serde_json::Value;

use crate::field::FieldErrors;
use crate::validation::access::AccessMut;
pub use crate::validation::names::NameRule;

pub(crate) mod admission_policy;
pub mod api_service;
pub mod autoscaler;
pub mod certificate;
pub mod config_map;
pub mod conversion;
pub mod daemon_set;
pub mod deployment;
pub mod devices;
pub mod disruption;
pub mod endpoints;
pub mod event;
mod flag;
pub mod flow_control;
pub mod job;
pub mod lease;
pub mod namespace;
pub mod networking;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod quota;
pub mod rbac;
pub mod replication_controller;
pub mod scale;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod service_cidr;
pub mod stateful_set;
pub mod storage;
pub mod webhook;
mod workload;

pub use flag::{Flag, Flags};

/// A CEL expression inside an object, which is to be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// Where it is, as errors name it.
    pub field: String,
    /// The expression.
    pub text: String,
    /// What it is for, and so what it may see and must return.
    pub kind: ExpressionKind,
    /// Whether `params` is in scope.
    pub params: bool,
}

impl Expression {
    fn new(path: &crate::field::Path<'_>, text: &str, kind: ExpressionKind, params: bool) -> Self {
        Self { field: path.to_string(), text: text.to_owned(), kind, params }
    }
}

/// What a CEL expression is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionKind {
    /// Whether a webhook or policy applies: a bool.
    MatchCondition,
    /// Whether a request is allowed: a bool.
    Validation,
    /// Why it is not: a string.
    Message,
    /// A value for the audit log: a string or null.
    AuditAnnotation,
    /// A named value later expressions can use: anything.
    Variable(String),
    /// A partial object to apply.
    ApplyConfiguration,
    /// A list of JSON patch operations.
    JsonPatch,
}

/// Behaviour of a built-in kind. Every method has the default that suits a kind whose schema has a
/// spec and a status, where only controllers write the status.
pub trait Strategy: Send + Sync + 'static {
    /// The warning for a delete without a propagation policy.
    fn orphaning_warning(&self) -> Option<&'static str> {
        None
    }

    /// Fills in what the user left out. Called first on every write, on the decoded body or patch
    /// result, and again after mutating admission. Must be idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Clears what users may not set at create, by default the status. Called after `default`.
    fn prepare_create(&self, object: &mut Value) {
        object.drop_field("status");
    }

    /// Carries over what an update through the main endpoint may not change, by default the status.
    /// Called after `default`, before generation is compared.
    fn prepare_update(&self, object: &mut Value, old: &Value) {
        object.copy_field("status", old);
    }

    /// Carries over what an update through `/status` may not change: by default everything but
    /// `status` and, of the metadata, what upstream lets status updates touch.
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
    }

    /// Carries over what an update through another subresource may not change. Called instead of
    /// `prepare_update`.
    fn prepare_subresource(&self, _subresource: &str, object: &mut Value, old: &Value) {
        self.prepare_update(object, old);
    }

    /// Whether the change from `old` to `object` counts as a change of the desired state. Only asked
    /// of kinds with [`Flag::Generation`], after `prepare_update`.
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        !crate::validation::access::semantically_equal(
            object.get("spec").unwrap_or(&Value::Null),
            old.get("spec").unwrap_or(&Value::Null),
        )
    }

    /// Checks a new object. Metadata is already checked.
    fn validate(&self, _object: &Value, _errors: &mut FieldErrors) {}

    /// Whether [`validate`](Self::validate) or [`validate_update`](Self::validate_update) may take long, so that they
    /// are not to be called by a thread that serves requests. Compiling expressions may.
    fn is_long(&self, object: &Value, _old: Option<&Value>) -> bool {
        !self.expressions(object).is_empty()
    }

    /// Checks a changed object. Metadata is already checked.
    fn validate_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
    }

    /// Checks a status update.
    fn validate_status_update(&self, _object: &Value, _old: &Value, _errors: &mut FieldErrors) {}

    /// Checks an update through another subresource. Called instead of `validate_update`.
    fn validate_subresource(&self, _subresource: &str, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate_update(object, old, errors);
    }

    /// The CEL expressions in an object, to be compiled as part of its validation: an expression that
    /// does not compile is an `Invalid value` at its field. Those an update leaves as they are need
    /// not be compiled again.
    fn expressions(&self, _object: &Value) -> Vec<Expression> {
        Vec::new()
    }

    /// Checks an update through the main endpoint or a subresource. What is wrong but tolerated,
    /// because it was there before, becomes a warning. This is what the registry calls; most kinds
    /// tolerate nothing and implement the three methods above.
    fn check_update(
        &self,
        subresource: &str,
        object: &Value,
        old: &Value,
        errors: &mut FieldErrors,
        _warnings: &mut Vec<String>,
    ) {
        match subresource {
            "" => self.validate_update(object, old, errors),
            "status" => self.validate_status_update(object, old, errors),
            other => self.validate_subresource(other, object, old, errors),
        }
    }

    /// Brings a valid object into its canonical form, just before it is stored.
    fn canonicalize(&self, _object: &mut Value) {}

    /// A warning for each create, refused or not: the kind itself is deprecated.
    fn deprecation(&self) -> Option<&'static str> {
        None
    }

    /// Warnings for the client about an accepted write, e.g. deprecated fields. Asked once
    /// validation passed.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Fields beyond metadata.name and metadata.namespace that field selectors may name. Where there
    /// are any, upstream refuses others with `field label not supported: x`; where there are none,
    /// with `"x" is not a known field selector: only "metadata.name", "metadata.namespace"`.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a selectable field as text; absent values read as their Go zero value.
    fn field_value(&self, object: &Value, field: &str) -> String {
        field_text(object, field)
    }

    /// How long a delete waits when the client does not say; `None` deletes at once.
    fn grace_seconds(&self, _object: &Value) -> Option<i64> {
        None
    }

    /// Whether something beyond `metadata.finalizers` keeps the object from going, e.g. a namespace's
    /// `spec.finalizers`.
    fn holds_deletion(&self, _object: &Value) -> bool {
        false
    }

    /// Called when an object is deleted for the first time, before it is known whether it has to wait:
    /// may add finalizers.
    fn prepare_delete(&self, _object: &mut Value, _now: &str) {}

    /// How long a delete waits, given what the client asked for; `None` deletes at once. Asked when
    /// a delete starts and when a shorter one follows.
    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let default = self.grace_seconds(object)?;
        Some(asked.unwrap_or(default)).filter(|seconds| *seconds > 0)
    }
}

/// A kind with a schema and nothing else, not even a status of its own: what is written is what is
/// stored.
pub struct Plain;

impl Strategy for Plain {
    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}
}

/// A built-in kind with a schema and the behaviour most kinds have: only controllers write the status.
pub(crate) struct Standard;

impl Strategy for Standard {}

/// The value of a field given by its dotted name, as a field selector compares it.
pub(crate) fn field_text(object: &Value, field: &str) -> String {
    let mut value = object;
    for name in field.split('.') {
        match value.get(name) {
            Some(below) => value = below,
            None => return String::new(),
        }
    }
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Restores everything of `old` except `status` and `metadata`, as a status update must. Most of it is the same already:
/// comparing is cheaper than copying.
pub(crate) fn keep_all_but_status(object: &mut Value, old: &Value) {
    const OWN: [&str; 2] = ["status", "metadata"];
    let (Value::Object(map), Value::Object(old)) = (&mut *object, old) else {
        *object = old.clone();
        return;
    };
    map.retain(|field, _| OWN.contains(&field.as_str()) || old.contains_key(field));
    for (field, value) in old {
        let is_kept = match map.get(field) {
            Some(known) => OWN.contains(&field.as_str()) || known == value,
            // An object without metadata gets what it had; a status that was taken away stays away.
            None => field == "status",
        };
        if !is_kept {
            map.insert(field.clone(), value.clone());
        }
    }
}

/// Restores the metadata of `old` that clients write, for subresources that may not change it.
fn keep_metadata(object: &mut Value, old: &Value) {
    let Some(old) = old.get("metadata") else { return };
    let metadata = object.struct_mut("metadata");
    for field in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
        metadata.copy_field(field, old);
    }
}

#[cfg(test)]
mod long_lists;
#[cfg(test)]
mod properties;

#[cfg(test)]
pub(crate) mod testing {
    //! What the table tests of all kinds share.

    use serde_json::Value;

    use super::Strategy;
    use crate::field::FieldErrors;

    /// The object as it is after a create with no admission.
    pub(crate) fn created(strategy: &dyn Strategy, object: &Value) -> Value {
        let mut object = object.clone();
        strategy.default(&mut object);
        strategy.prepare_create(&mut object);
        let mut again = object.clone();
        strategy.default(&mut again);
        assert_eq!(again, object, "defaulting is not idempotent");
        object
    }

    /// The violations of a new object as a client reads them; `[]` if there are none.
    pub(crate) fn create_errors(strategy: &dyn Strategy, object: &Value) -> String {
        let mut errors = FieldErrors::default();
        strategy.validate(&created(strategy, object), &mut errors);
        errors.to_string()
    }

    /// The violations of replacing `old` (as created) by `new`.
    pub(crate) fn update_errors(strategy: &dyn Strategy, old: &Value, new: &Value) -> String {
        let old = created(strategy, old);
        let mut new = new.clone();
        strategy.default(&mut new);
        strategy.prepare_update(&mut new, &old);
        let mut errors = FieldErrors::default();
        strategy.validate_update(&new, &old, &mut errors);
        errors.to_string()
    }

    /// The violations of giving `old` (as created) a status.
    pub(crate) fn status_errors(strategy: &dyn Strategy, old: &Value, status: &Value) -> String {
        let old = created(strategy, old);
        let mut new = old.clone();
        new["status"] = status.clone();
        strategy.default(&mut new);
        strategy.prepare_status_update(&mut new, &old);
        let mut errors = FieldErrors::default();
        strategy.validate_status_update(&new, &old, &mut errors);
        errors.to_string()
    }
}
