//! Where a pod may run: node selectors, affinity, tolerations, topology spread, scheduling gates.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, selector, values};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity`.
pub(super) fn affinity(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let affinity = spec.at("affinity");
    let path = path.child("affinity");
    let node_path = path.child("nodeAffinity");
    let node = affinity.at("nodeAffinity");
    if node.has(REQUIRED) {
        node_selector(node.at(REQUIRED), &node_path.child(REQUIRED), errors);
    }
    let preferred_path = node_path.child(PREFERRED);
    for (i, term) in node.list(PREFERRED).iter().enumerate() {
        let path = preferred_path.index(i);
        weight(term, &path, errors);
        node_selector_term(term.at("preference"), true, &path.child("preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = affinity.at(kind);
        let path = path.child(kind);
        let required_path = path.child(REQUIRED);
        for (i, term) in terms.list(REQUIRED).iter().enumerate() {
            pod_affinity_term(term, &required_path.index(i), errors);
        }
        let preferred_path = path.child(PREFERRED);
        for (i, term) in terms.list(PREFERRED).iter().enumerate() {
            let path = preferred_path.index(i);
            weight(term, &path, errors);
            pod_affinity_term(term.at("podAffinityTerm"), &path.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let weight = term.int("weight");
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(&path.child("weight"), weight, "must be in the range 1-100"));
    }
}

/// Checks a NodeSelector: at least one term.
pub(crate) fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("nodeSelectorTerms");
    let terms = selector.list("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(&path, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_selector_term(term, false, &path.index(i), errors);
    }
}

fn node_selector_term(term: &Value, any_value: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let expressions = path.child("matchExpressions");
    for (i, requirement) in term.list("matchExpressions").iter().enumerate() {
        node_requirement(requirement, any_value, &expressions.index(i), errors);
    }
    let fields = path.child("matchFields");
    for (i, requirement) in term.list("matchFields").iter().enumerate() {
        node_field_requirement(requirement, &fields.index(i), errors);
    }
}

fn node_requirement(requirement: &Value, any_value: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let values_path = path.child("values");
    let listed = requirement.texts("values");
    match requirement.text("operator") {
        "In" | "NotIn" if listed.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values_path, detail));
        }
        "Exists" | "DoesNotExist" if !listed.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values_path, detail));
        }
        "Gt" | "Lt" if listed.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(&values_path, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = requirement.text("key");
    values::invalid_for_each(&path.child("key"), key, names::qualified_name(key), errors);
    if !any_value {
        for (i, value) in listed.into_iter().enumerate() {
            values::invalid_for_each(&values_path.index(i), value, names::label_value(value), errors);
        }
    }
}

fn node_field_requirement(requirement: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let values_path = path.child("values");
    let listed = requirement.texts("values");
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if listed.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(&values_path, detail));
            }
        }
        other => errors.push(FieldError::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    let key = requirement.text("key");
    if key == "metadata.name" {
        for (i, name) in listed.into_iter().enumerate() {
            values::invalid_for_each(&values_path.index(i), name, names::subdomain(name), errors);
        }
    } else {
        errors.push(FieldError::invalid(&path.child("key"), key, "not a valid field selector key"));
    }
}

fn pod_affinity_term(term: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    selector::validate(term.at("labelSelector"), &path.child("labelSelector"), errors);
    selector::validate(term.at("namespaceSelector"), &path.child("namespaceSelector"), errors);
    for namespace in term.texts("namespaces") {
        values::invalid_for_each(&path.child("namespace"), namespace, names::label(namespace), errors);
    }
    label_keys(term, path, errors);
    let key = term.text("topologyKey");
    let path = path.child("topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&path, "can not be empty"));
    }
    values::invalid_for_each(&path, key, names::qualified_name(key), errors);
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys` of a term or spread constraint.
fn label_keys(term: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let label_selector = term.at("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let path = path.child(field);
        let keys = term.texts(field);
        if keys.is_empty() {
            continue;
        }
        if label_selector.is_null() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(&path, detail));
            continue;
        }
        for (i, key) in keys.into_iter().enumerate() {
            values::invalid_for_each(&path.index(i), key, names::qualified_name(key), errors);
        }
    }
    let keys = term.texts("matchLabelKeys");
    let mut selected: HashSet<&str> =
        label_selector.text_entries("matchLabels").into_iter().map(|(key, _)| key).collect();
    let places: HashMap<&str, usize> = keys.iter().enumerate().rev().map(|(i, key)| (*key, i)).collect();
    for expression in label_selector.list("matchExpressions") {
        let key = expression.text("key");
        if let Some(i) = places.get(key)
            && selected.contains(key)
        {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(&path.index(*i), key, detail));
        }
        selected.insert(key);
    }
    let mismatched: HashSet<&str> = term.texts("mismatchLabelKeys").into_iter().collect();
    let path = path.child("matchLabelKeys");
    for (i, key) in keys.into_iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(FieldError::invalid(&path.index(i), key, detail));
    }
}

/// Checks `tolerations`.
pub(crate) fn tolerations(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("tolerations");
    for (i, toleration) in owner.list("tolerations").iter().enumerate() {
        let path = path.index(i);
        values::optional_text(toleration, "key", names::qualified_name, &path, errors);
        let operator = toleration.text("operator");
        let operator_path = path.child("operator");
        if toleration.text("key").is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&operator_path, operator, detail));
        }
        let effect = toleration.text("effect");
        if toleration.has("tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&path.child("effect"), effect, detail));
        }
        let value = toleration.text("value");
        match operator {
            "Equal" | "" => {
                let reasons = names::label_value(value);
                if !reasons.is_empty() {
                    errors.push(FieldError::invalid(&operator_path, value, reasons.join(";")));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(&operator_path, value, detail));
                }
            }
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.push(FieldError::not_supported(&operator_path, operator, &supported));
            }
            other => errors.push(FieldError::not_supported(&operator_path, other, &["Equal", "Exists"])),
        }
        values::optional_one_of(toleration, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], &path, errors);
    }
}

/// Checks `topologySpreadConstraints`.
pub(super) fn topology_spread(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("topologySpreadConstraints");
    let constraints = spec.list("topologySpreadConstraints");
    // Each that comes again later is told.
    let mut later = HashMap::new();
    for constraint in constraints {
        *later.entry((constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"))).or_insert(0_usize) += 1;
    }
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        let greater = |value: i64, path: &Path<'_>, errors: &mut FieldErrors| {
            if value <= 0 {
                errors.push(FieldError::invalid(path, value, "must be greater than zero"));
            }
        };
        greater(constraint.int("maxSkew"), &path.child("maxSkew"), errors);
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            errors.push(FieldError::required(&path.child("topologyKey"), "can not be empty"));
        }
        let action = constraint.text("whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        values::one_of(constraint, "whenUnsatisfiable", &actions, &path, errors);
        let left = later.entry((key, action)).or_default();
        *left = left.saturating_sub(1);
        if *left > 0 {
            let path = path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(&path, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint.int_opt("minDomains") {
            let path = path.child("minDomains");
            greater(domains, &path, errors);
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(&path, domains, detail));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if constraint.has(field) {
                values::one_of(constraint, field, &["Honor", "Ignore"], &path, errors);
            }
        }
        label_keys(constraint, &path, errors);
        selector::validate(constraint.at("labelSelector"), &path.child("labelSelector"), errors);
    }
}

/// Checks `schedulingGates` and `readinessGates`.
pub(super) fn gates(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let readiness = path.child("readinessGates");
    for (i, gate) in spec.list("readinessGates").iter().enumerate() {
        let kind = gate.text("conditionType");
        let path = readiness.index(i);
        values::invalid_for_each(&path.child("conditionType"), kind, names::qualified_name(kind), errors);
    }
    let scheduling = path.child("schedulingGates");
    let mut seen = HashSet::new();
    for (i, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        let path = scheduling.index(i);
        values::invalid_for_each(&path, name, names::qualified_name(name), errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
}
