//! What a schema cannot say about a built-in kind: one [`Strategy`] per kind, found with [`of`].
//!
//! Objects are plain JSON values that already decoded against the kind's schema: types are right,
//! so a strategy may index fields freely. A strategy never does I/O. Strategies see objects in the
//! version that is stored (see [`conversion`]).
//!
//! The registry calls a strategy in this order:
//!
//! | create | update | update of `/status` |
//! |---|---|---|
//! | [`default`](Strategy::default) | `default` | `default` |
//! | [`prepare_create`](Strategy::prepare_create) | [`prepare_update`](Strategy::prepare_update) | [`prepare_status_update`](Strategy::prepare_status_update) |
//! | generation = 1 | generation + 1 if [`desired_state_changed`](Strategy::desired_state_changed) | |
//! | mutating admission, `default` again | mutating admission, `default` again | mutating admission |
//! | allocation of cluster IPs and node ports | the same | |
//! | [`metadata::validate`], [`validate`](Strategy::validate) | [`metadata::validate_update`], [`validate_update`](Strategy::validate_update) | `metadata::validate_update`, [`validate_status_update`](Strategy::validate_status_update) |
//! | [`warnings`](Strategy::warnings) | `warnings` | |
//! | [`canonicalize`](Strategy::canonicalize) | `canonicalize` | `canonicalize` |
//! | validating admission, storage | validating admission, storage | validating admission, storage |
//!
//! On create the uid, the creation time and a generated name are already there when `prepare_create`
//! runs: jobs build their selector from them. Prepare and default may run again after admission; both are idempotent. Other subresources that
//! write the object (`finalize`, `approval`, `ephemeralcontainers`, `resize`) use
//! [`prepare_subresource`](Strategy::prepare_subresource) and
//! [`validate_subresource`](Strategy::validate_subresource); `scale` is a view, see [`scale`].
//!
//! [`metadata::validate`]: crate::validation::metadata::validate
//! [`metadata::validate_update`]: crate::validation::metadata::validate_update

use serde_json::Value;

use crate::field::FieldErrors;
use crate::validation::access::AccessMut;
use crate::validation::metadata::Rules;

pub mod config_map;
pub mod conversion;
pub mod daemon_set;
pub mod deployment;
pub mod event;
pub mod job;
pub mod lease;
pub mod namespace;
pub mod persistent_volume_claim;
pub mod pod;
pub mod quota;
pub mod replication_controller;
pub mod scale;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod stateful_set;
mod workload;

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

/// Behaviour of a built-in kind. Every method has the default that suits a kind whose schema has a
/// spec and a status, where only controllers write the status.
pub trait Strategy: Send + Sync + 'static {
    /// Which names are allowed. Asked on create.
    fn name_rule(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether a finalizer without a domain must be one of Kubernetes' own. Asked on every write.
    fn standard_finalizers(&self) -> bool {
        true
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

    /// Fields of the main resource that a client cannot set, so that server-side apply does not
    /// record them as owned.
    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    /// The same for `/status`.
    fn status_reset_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    /// Whether deleting an object leaves its dependents alone when the client does not say.
    fn orphans_dependents(&self) -> bool {
        false
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
    /// when [`has_generation`](Self::has_generation), after `prepare_update`.
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        !crate::validation::access::semantically_equal(
            object.get("spec").unwrap_or(&Value::Null),
            old.get("spec").unwrap_or(&Value::Null),
        )
    }

    /// Checks a new object. Metadata is already checked.
    fn validate(&self, _object: &Value, _errors: &mut FieldErrors) {}

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
    /// How long a delete waits, given what the client asked for; `None` deletes at once. Asked when
    /// a delete starts and when a shorter one follows.
    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let default = self.grace_seconds(object)?;
        Some(asked.unwrap_or(default)).filter(|seconds| *seconds > 0)
    }
}

impl Rules {
    /// What a kind's strategy asks of metadata.
    pub fn of(strategy: &dyn Strategy, namespaced: bool) -> Self {
        Self { namespaced, name: strategy.name_rule(), standard_finalizers: strategy.standard_finalizers() }
    }
}

/// A kind with a schema and nothing else: what is written is what is stored.
pub struct Plain;

impl Strategy for Plain {
    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    fn reset_fields(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The value of a field given by its dotted name, as a field selector compares it.
pub fn field_text(object: &Value, field: &str) -> String {
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
pub fn of(group: &str, kind: &str) -> &'static dyn Strategy {
    match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &crate::crd::definition::Definition,
        ("", "ConfigMap") => &config_map::ConfigMap,
        ("", "Secret") => &secret::Secret,
        ("", "Namespace") => &namespace::Namespace,
        ("", "Service") => &service::Service,
        ("", "ServiceAccount") => &service_account::ServiceAccount,
        ("", "Pod") => &pod::Pod,
        ("", "PersistentVolumeClaim") => &persistent_volume_claim::PersistentVolumeClaim,
        ("", "PodTemplate") => &replication_controller::PodTemplate,
        ("", "ReplicationController") => &replication_controller::ReplicationController,
        ("", "LimitRange") => &quota::LimitRange,
        ("", "ResourceQuota") => &quota::ResourceQuota,
        ("apps", "Deployment") => &deployment::Deployment,
        ("apps", "ReplicaSet") => &deployment::ReplicaSet,
        ("apps", "StatefulSet") => &stateful_set::StatefulSet,
        ("apps", "ControllerRevision") => &stateful_set::ControllerRevision,
        ("apps", "DaemonSet") => &daemon_set::DaemonSet,
        ("batch", "Job") => &job::Job,
        ("batch", "CronJob") => &job::CronJob,
        ("", "Event") => &event::Event,
        ("events.k8s.io", "Event") => &event::StrictEvent,
        ("coordination.k8s.io", "Lease") => &lease::Lease,
        _ => &Plain,
    }
}

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
}
