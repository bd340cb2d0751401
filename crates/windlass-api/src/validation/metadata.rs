//! `metadata`: what upstream's `ValidateObjectMeta` and `ValidateObjectMetaUpdate` check.
//!
//! The registry calls [`validate`] on create and [`validate_update`] on update, before the strategy's
//! own checks, once names are generated and system fields are filled in. Upstream checks metadata
//! twice on update (once for every kind, once in the kind's own validation), so a violation appears
//! twice among the causes; that is kept.

use std::collections::HashSet;

use serde_json::Value;

use super::access::{Access, in_order};
use super::{names, values};
use crate::field::{ErrorKind, FieldError, FieldErrors, Path, quote};
use crate::validation::names::NameRule;

/// What keys and values of all annotations may add up to.
const ANNOTATIONS_MAX: usize = 256 * 1024;
const FIELD_MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const OWNER_FIELDS: &[&str] = &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

/// What a kind asks of its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// How names look.
    pub name: NameRule,
    /// Whether a finalizer without a domain must be one of Kubernetes' own: built-in kinds ask for
    /// it, custom resources, CRDs and APIServices do not.
    pub standard_finalizers: bool,
}

/// Checks the metadata of a new object.
pub fn validate(object: &Value, rules: Rules, errors: &mut FieldErrors) {
    let path = Path::new("metadata");
    let meta = object.at("metadata");
    check(meta, rules.namespaced, rules.name, &path, errors);
    if rules.standard_finalizers {
        qualified_finalizers(meta, &path, errors);
    }
}

/// Checks the metadata of a changed object against the stored one.
pub fn validate_update(object: &Value, old: &Value, rules: Rules, errors: &mut FieldErrors) {
    let path = Path::new("metadata");
    let (meta, old) = (object.at("metadata"), old.at("metadata"));
    check(meta, rules.namespaced, NameRule::PathSegment, &path, errors);
    check_update(meta, old, &path, errors);
    check_update(meta, old, &path, errors);
    if rules.standard_finalizers {
        qualified_finalizers(meta, &path, errors);
    }
}

/// Checks the metadata of any object, wherever it sits.
pub(crate) fn check(meta: &Value, namespaced: bool, rule: NameRule, path: &Path<'_>, errors: &mut FieldErrors) {
    let generate_name = meta.text("generateName");
    if !generate_name.is_empty() {
        let path = path.child("generateName");
        values::invalid_for_each(&path, generate_name, names::object_name(rule, generate_name, true), errors);
    }
    let name = meta.text("name");
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), "name or generateName is required"));
    } else {
        values::invalid_for_each(&path.child("name"), name, names::object_name(rule, name, false), errors);
    }
    let namespace = meta.text("namespace");
    if !namespaced {
        if !namespace.is_empty() {
            errors.push(FieldError::forbidden(&path.child("namespace"), "not allowed on this type"));
        }
    } else if namespace.is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), ""));
    } else {
        values::invalid_for_each(&path.child("namespace"), namespace, names::label(namespace), errors);
    }
    values::not_negative(meta.int("generation"), &path.child("generation"), errors);
    labels(meta, "labels", path, errors);
    annotations(meta, path, errors);
    owner_references(meta, path, errors);
    finalizers(meta, path, errors);
    managed_fields(meta, path, errors);
}

fn check_update(meta: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if old.has("deletionTimestamp") {
        no_new_finalizers(meta, old, path, errors);
    }
    if meta.text("resourceVersion").is_empty() {
        errors.push(FieldError::invalid(&path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = meta.int("generation");
    values::not_negative(generation, &path.child("generation"), errors);
    if generation < old.int("generation") {
        errors.push(FieldError::invalid(&path.child("generation"), generation, "must not be decremented"));
    }
    for field in ["name", "namespace", "uid"] {
        if meta.text(field) != old.text(field) {
            errors.push(FieldError::invalid(&path.child(field), meta.text(field), values::IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        values::immutable(meta, old, field, path, errors);
    }
    labels(meta, "labels", path, errors);
    annotations(meta, path, errors);
    owner_references(meta, path, errors);
    managed_fields(meta, path, errors);
}

/// Checks a map of labels: `metadata.labels`, a selector's `matchLabels`, a node selector.
pub fn labels(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child(field);
    for (key, value) in owner.text_entries(field) {
        values::invalid_for_each(&path, key, names::qualified_name(key), errors);
        values::invalid_for_each(&path, value, names::label_value(value), errors);
    }
}

/// Checks `annotations`: keys in any case, and the size of all of them together.
pub fn annotations(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("annotations");
    let mut size = 0;
    for (key, value) in meta.text_entries("annotations") {
        values::invalid_for_each(&path, key, names::qualified_name(&key.to_lowercase()), errors);
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(&path, ANNOTATIONS_MAX));
    }
}

fn owner_references(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("ownerReferences");
    let mut controller: Option<String> = None;
    for owner in meta.list("ownerReferences") {
        owner_reference(owner, &path, errors);
        if !owner.flag("controller") {
            continue;
        }
        let name = format!("{}/{}", owner.text("kind"), owner.text("name"));
        if let Some(first) = &controller {
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
            );
            let shown = in_order(meta.at("ownerReferences"), OWNER_FIELDS);
            errors.push(FieldError::shown(ErrorKind::Invalid, &path, shown, detail));
        } else {
            controller = Some(name);
        }
    }
}

fn owner_reference(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let api_version = owner.text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if version.is_empty() || version.contains('/') {
        errors.push(FieldError::invalid(&path.child("apiVersion"), api_version, "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if owner.text(field).is_empty() {
            errors.push(FieldError::invalid(&path.child(field), "", "must not be empty"));
        }
    }
    if (group, version, owner.text("kind")) == ("", "v1", "Event") {
        let shown = in_order(owner, OWNER_FIELDS);
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::shown(ErrorKind::Invalid, path, shown, detail));
    }
}

fn finalizers(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("finalizers");
    let finalizers = meta.texts("finalizers");
    for name in &finalizers {
        values::invalid_for_each(&path, name, names::qualified_name(name), errors);
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(&path, meta.at("finalizers").clone(), detail));
    }
}

fn qualified_finalizers(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("finalizers");
    for (i, name) in meta.texts("finalizers").into_iter().enumerate() {
        if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path.index(i), name, detail));
        }
    }
}

fn no_new_finalizers(meta: &Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let before: HashSet<&str> = old.texts("finalizers").into_iter().collect();
    let mut added = meta.texts("finalizers");
    added.retain(|name| !before.contains(name));
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let added: Vec<String> = added.into_iter().map(quote).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden(&path.child("finalizers"), detail));
    }
}

fn managed_fields(meta: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("managedFields");
    for (i, entry) in meta.list("managedFields").iter().enumerate() {
        let path = path.index(i);
        let operation = entry.text("operation");
        if !["Apply", "Update"].contains(&operation) {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(&path.child("operation"), operation, detail));
        }
        let fields_type = entry.text("fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(FieldError::invalid(&path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        field_manager(entry.text("manager"), &path.child("manager"), errors);
        if entry.text("subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(&path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
}

/// Checks the name of a field manager: short and printable.
pub(crate) fn field_manager(manager: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (position, character) in manager.char_indices() {
        if character.is_control() {
            let detail = format!("invalid character U+{:04X} (at position {position})", character as u32);
            errors.push(FieldError::invalid(path, manager, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CONFIG_MAP: Rules = Rules { namespaced: true, name: NameRule::Subdomain, standard_finalizers: true };

    fn check(metadata: &Value, expected: &str) {
        let mut metadata = metadata.clone();
        metadata["namespace"] = "ns".into();
        let mut errors = FieldErrors::default();
        validate(&json!({ "metadata": metadata }), CONFIG_MAP, &mut errors);
        assert_eq!(errors.to_string(), expected);
    }

    #[test]
    fn new_objects() {
        const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
                                 and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
                                 regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        check(&json!({}), "metadata.name: Required value: name or generateName is required");
        check(
            &json!({"name": "a", "labels": {"bad key": "v"}}),
            &format!("metadata.labels: Invalid value: \"bad key\": {QUALIFIED}"),
        );
        check(
            &json!({"name": "a", "annotations": {"/x": "v"}}),
            "metadata.annotations: Invalid value: \"/x\": prefix part must be non-empty",
        );
        check(
            &json!({"name": "a", "annotations": {"k": "x".repeat(262_145)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        );
        check(
            &json!({"name": "a", "finalizers": ["not qualified"]}),
            &format!(
                "[metadata.finalizers: Invalid value: \"not qualified\": {QUALIFIED}, metadata.finalizers[0]: Invalid \
                 value: \"not qualified\": name is neither a standard finalizer name nor is it fully qualified]"
            ),
        );
        check(
            &json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "", "uid": ""}]}),
            "[metadata.ownerReferences.kind: Invalid value: \"\": must not be empty, metadata.ownerReferences.name: \
             Invalid value: \"\": must not be empty, metadata.ownerReferences.uid: Invalid value: \"\": must not be \
             empty]",
        );
        check(
            &json!({"name": "a", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "y", "uid": "2", "controller": true}]}),
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1","controller":true},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"2","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for Pod/x and Pod/y"#,
        );
    }

    #[test]
    fn changed_objects() {
        let base = json!({"name": "a", "namespace": "ns", "uid": "1", "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2020-01-01T00:00:00Z"});
        let check = |change: &dyn Fn(&mut Value), expected: &[&str]| {
            let mut new = base.clone();
            change(&mut new);
            let mut errors = FieldErrors::default();
            validate_update(&json!({ "metadata": new }), &json!({ "metadata": base }), CONFIG_MAP, &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        };
        check(&|_| {}, &[]);
        // Upstream reports every one twice.
        check(&|meta| meta["uid"] = "2".into(), &["metadata.uid: Invalid value: \"2\": field is immutable"; 2]);
        check(
            &|meta| meta["generation"] = 1.into(),
            &["metadata.generation: Invalid value: 1: must not be decremented"; 2],
        );
        check(
            &|meta| meta["resourceVersion"] = "".into(),
            &["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"; 2],
        );
    }

    #[test]
    fn no_new_finalizers_while_being_deleted() {
        let meta = json!({"name": "a", "namespace": "ns", "resourceVersion": "1", "finalizers": ["e.com/one"],
            "deletionTimestamp": "2020-01-01T00:00:00Z"});
        let mut new = meta.clone();
        new["finalizers"] = json!(["e.com/one", "e.com/three"]);
        let mut errors = FieldErrors::default();
        validate_update(&json!({ "metadata": new }), &json!({ "metadata": meta }), CONFIG_MAP, &mut errors);
        assert_eq!(
            errors.to_string(),
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
             finalizers []string{\"e.com/three\"}"
        );
    }
}
