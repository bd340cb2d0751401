//! Admission policies and their bindings. Their expressions are listed here and compiled elsewhere.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::webhook::{default_rules, match_condition_expressions, match_conditions, rule_with_operations};
use super::{Expression, ExpressionKind, Strategy, keep_all_but_status, keep_metadata};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{conditions, names, selector, values};
use windlass_api::jsonpath::JsonPath;

const NEEDS_ITEMS: &str = "validations or auditAnnotations must contain at least one item";
const MUTATING_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];

/// The strategy of ValidatingAdmissionPolicies and MutatingAdmissionPolicies.
pub(crate) struct AdmissionPolicy {
    /// Whether the policy may change objects.
    pub mutating: bool,
}

/// The strategy of the bindings of both.
pub(crate) struct AdmissionPolicyBinding {
    /// Whether the policy may change objects.
    pub mutating: bool,
}

impl Strategy for AdmissionPolicy {
    fn default(&self, object: &mut Value) {
        let spec = object.struct_mut("spec");
        spec.fill("failurePolicy", "Fail");
        if let Some(constraints) = spec.child_mut("matchConstraints") {
            default_match_resources(constraints);
        }
    }

    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        self.specification(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.specification(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        let path = Path::new("status");
        let checking = path.child("typeChecking");
        let warnings = checking.child("expressionWarnings");
        let found = object.below(&["status", "typeChecking"]).list("expressionWarnings");
        for (i, warning) in found.iter().enumerate() {
            let path = warnings.index(i);
            values::required(warning, "warning", &path, errors);
            let (field, path) = (warning.text("fieldRef").trim(), path.child("fieldRef"));
            if field.is_empty() {
                errors.push(FieldError::required(&path, ""));
            } else if let Err(why) = JsonPath::parse(field) {
                errors.push(FieldError::invalid(&path, field, format!("invalid JSONPath: {why}")));
            }
        }
        conditions::validate(object.at("status"), &path, errors);
    }

    fn expressions(&self, object: &Value) -> Vec<Expression> {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let params = spec.has("paramKind");
        let mut out = Vec::new();
        match_condition_expressions(spec, &path, params, &mut out);
        let mut list = |list: &str, field: &[&str], kind: fn(&Value) -> ExpressionKind| {
            let list_path = path.child(list);
            for (i, item) in spec.list(list).iter().enumerate() {
                let text = item.below(field).as_str().unwrap_or_default();
                if text.trim().is_empty() {
                    continue;
                }
                let place = format!("{}.{}", list_path.index(i), field.join("."));
                out.push(Expression { field: place, text: text.to_owned(), kind: kind(item), params });
            }
        };
        list("variables", &["expression"], |item| ExpressionKind::Variable(item.text("name").to_owned()));
        list("validations", &["expression"], |_| ExpressionKind::Validation);
        list("validations", &["messageExpression"], |_| ExpressionKind::Message);
        list("auditAnnotations", &["valueExpression"], |_| ExpressionKind::AuditAnnotation);
        list("mutations", &["applyConfiguration", "expression"], |_| ExpressionKind::ApplyConfiguration);
        list("mutations", &["jsonPatch", "expression"], |_| ExpressionKind::JsonPatch);
        out
    }
}

impl AdmissionPolicy {
    fn specification(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        values::required_one_of(spec, "failurePolicy", &["Fail", "Ignore"], &path, errors);
        if spec.has("paramKind") {
            param_kind(spec.at("paramKind"), &path.child("paramKind"), errors);
        }
        let constraints_path = path.child("matchConstraints");
        let constraints = spec.at("matchConstraints");
        if constraints.is_null() {
            errors.push(FieldError::required(&constraints_path, ""));
        } else {
            match_resources(constraints, &constraints_path, errors);
            if constraints.list("resourceRules").is_empty() {
                errors.push(FieldError::required(&constraints_path.child("resourceRules"), ""));
            }
            if self.mutating {
                mutating_operations(constraints, &constraints_path, errors);
            }
        }
        let unchanged = old.map(|old| old.at("spec")).is_some_and(|old| {
            old.at("paramKind") == spec.at("paramKind") && old.at("matchConditions") == spec.at("matchConditions")
        });
        if !unchanged {
            match_conditions(spec, &path, errors);
        }
        let variables_path = path.child("variables");
        for (i, variable) in spec.list("variables").iter().enumerate() {
            self::variable(variable, &variables_path.index(i), errors);
        }
        if self.mutating {
            mutations(spec, &path, errors);
        } else {
            validations(object, &path, errors);
        }
    }
}

impl Strategy for AdmissionPolicyBinding {
    fn default(&self, object: &mut Value) {
        if let Some(resources) = object.child_mut("spec").and_then(|spec| spec.child_mut("matchResources")) {
            default_match_resources(resources);
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        values::required_text(spec, "policyName", names::subdomain, &path, errors);
        if spec.has("paramRef") {
            param_ref(spec.at("paramRef"), &path.child("paramRef"), errors);
        }
        let resources = spec.at("matchResources");
        let resources_path = path.child("matchResources");
        if !resources.is_null() {
            match_resources(resources, &resources_path, errors);
        }
        if self.mutating {
            mutating_operations(resources, &resources_path, errors);
        } else {
            validation_actions(spec, &path.child("validationActions"), errors);
        }
    }
}

fn default_match_resources(resources: &mut Value) {
    resources.fill("matchPolicy", "Equivalent");
    resources.fill("namespaceSelector", json!({}));
    resources.fill("objectSelector", json!({}));
    default_rules(resources, "resourceRules");
    default_rules(resources, "excludeResourceRules");
}

fn match_resources(resources: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    values::required_one_of(resources, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        if resources.has(field) {
            selector::validate(resources.at(field), &path.child(field), errors);
        } else {
            errors.push(FieldError::required(&path.child(field), ""));
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let rules_path = path.child(field);
        for (i, rule) in resources.list(field).iter().enumerate() {
            let path = rules_path.index(i);
            let names_path = path.child("resourceNames");
            let mut seen = HashSet::new();
            for (j, name) in rule.texts("resourceNames").into_iter().enumerate() {
                let path = names_path.index(j);
                values::invalid_for_each(&path, name, names::path_segment(name, false), errors);
                if !seen.insert(name) {
                    errors.push(FieldError::duplicate(&path, name));
                }
            }
            rule_with_operations(rule, &path, errors);
        }
    }
}

/// What is deleted cannot be changed.
fn mutating_operations(resources: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("resourceRules");
    let path = path.child("operations");
    for rule in resources.list("resourceRules") {
        for operation in rule.texts("operations") {
            if !MUTATING_OPERATIONS.contains(&operation) {
                errors.push(FieldError::not_supported(&path, operation, MUTATING_OPERATIONS));
            }
        }
    }
}

fn param_kind(kind: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let version_path = path.child("apiVersion");
    let api_version = kind.text("apiVersion");
    if api_version.is_empty() {
        errors.push(FieldError::required(&version_path, ""));
    } else if api_version.matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(&version_path, api_version, detail));
    } else {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut joined = |value: &str, reasons: names::Reasons| {
            if !reasons.is_empty() {
                errors.push(FieldError::invalid(&version_path, value, reasons.join(",")));
            }
        };
        if !group.is_empty() {
            joined(group, names::subdomain(group));
        }
        if version.is_empty() {
            joined(api_version, vec!["version must be specified".to_owned()]);
        } else {
            joined(version, names::dns1035_label(version));
        }
    }
    let name = kind.text("kind");
    let reasons = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("kind"), ""));
    } else if !reasons.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", reasons.join(","));
        errors.push(FieldError::invalid(&path.child("kind"), name, detail));
    }
}

fn variable(variable: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = variable.text("name");
    if name.trim().is_empty() {
        errors.push(FieldError::required(&path.child("name"), "name is not specified"));
    } else if !names::c_identifier(name).is_empty() {
        errors.push(FieldError::invalid(&path.child("name"), name, "must be a valid CEL identifier"));
    }
    if variable.text("expression").trim().is_empty() {
        errors.push(FieldError::required(&path.child("expression"), "expression is not specified"));
    }
}

fn validations(object: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let spec = object.at("spec");
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    let (validations_path, annotations_path) = (path.child("validations"), path.child("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.push(FieldError::required(&validations_path, NEEDS_ITEMS));
        errors.push(FieldError::required(&annotations_path, NEEDS_ITEMS));
        return;
    }
    for (i, validation) in validations.iter().enumerate() {
        self::validation(validation, &validations_path.index(i), errors);
    }
    if annotations.len() > 20 {
        let shown = spec.at("auditAnnotations").clone();
        errors.push(FieldError::invalid(&annotations_path, shown, "must not have more than 20 auditAnnotations"));
    }
    let policy = object.at("metadata").text("name");
    let mut seen = HashSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let path = annotations_path.index(i);
        let key = annotation.text("key");
        let qualified = format!("{policy}/{key}");
        values::invalid_for_each(&path.child("key"), &qualified, names::qualified_name(&qualified), errors);
        let text = annotation.text("valueExpression").trim();
        if text.is_empty() {
            errors.push(FieldError::required(&path.child("valueExpression"), "valueExpression is not specified"));
        } else if text.len() > 5 * 1024 {
            let detail = "must not exceed 5120 bytes in length";
            errors.push(FieldError::required(&path.child("valueExpression"), detail));
        }
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&path.child("key"), key));
        }
    }
}

fn validation(validation: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if validation.text("expression").trim().is_empty() {
        errors.push(FieldError::required(&path.child("expression"), "expression is not specified"));
    }
    for field in ["messageExpression", "message"] {
        let text = validation.text(field);
        if !text.is_empty() && text.trim().is_empty() {
            errors.push(FieldError::invalid(&path.child(field), text, "must be non-empty if specified"));
        }
    }
    let message = validation.text("message");
    if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(&path.child("message"), message, "must not contain line breaks"));
    }
    if validation.has("reason") {
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        values::one_of(validation, "reason", &reasons, path, errors);
    }
}

fn mutations(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let list_path = path.child("mutations");
    if spec.list("mutations").is_empty() {
        errors.push(FieldError::required(&list_path, "mutations must contain at least one item"));
    }
    for (i, mutation) in spec.list("mutations").iter().enumerate() {
        let path = list_path.index(i);
        let kind = mutation.text("patchType");
        let (wanted, other) = match kind {
            "" => {
                errors.push(FieldError::required(&path.child("patchType"), ""));
                continue;
            }
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            _ => {
                values::one_of(mutation, "patchType", &["ApplyConfiguration", "JSONPatch"], &path, errors);
                continue;
            }
        };
        let wanted_path = path.child(wanted);
        if !mutation.has(wanted) {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(FieldError::required(&wanted_path, detail));
        } else if mutation.at(wanted).text("expression").trim().is_empty() {
            errors.push(FieldError::required(&wanted_path.child("expression"), ""));
        }
        if mutation.has(other) {
            let detail = format!("must not be specified when patchType is {kind}");
            errors.push(FieldError::invalid(&path.child(other), format!("{{{other}}}"), detail));
        }
    }
    values::required_one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
}

fn param_ref(reference: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = reference.text("name");
    let selected = reference.has("selector");
    if !name.is_empty() {
        values::invalid_for_each(&path.child("name"), name, names::path_segment(name, false), errors);
        if selected {
            errors.push(FieldError::forbidden(&path.child("name"), EXCLUSIVE));
        }
    }
    if selected {
        selector::validate(reference.at("selector"), &path.child("selector"), errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&path.child("selector"), EXCLUSIVE));
        }
    }
    if name.is_empty() && !selected {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    values::required_one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], path, errors);
}

fn validation_actions(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let actions = spec.texts("validationActions");
    let mut seen = HashSet::new();
    for (i, action) in actions.iter().enumerate() {
        if !["Audit", "Deny", "Warn"].contains(action) {
            errors.push(FieldError::not_supported(&path.index(i), *action, &["Audit", "Deny", "Warn"]));
        }
        if !seen.insert(action) {
            errors.push(FieldError::duplicate(&path.index(i), *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, spec.at("validationActions").clone(), detail));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created, status_errors};
    use super::*;

    const POLICY: AdmissionPolicy = AdmissionPolicy { mutating: false };
    const BINDING: AdmissionPolicyBinding = AdmissionPolicyBinding { mutating: false };

    #[test]
    fn a_warning_says_what_about_which_field() {
        let status = json!({"typeChecking": {"expressionWarnings": [
            {"fieldRef": "spec.validations[0].expression", "warning": "w"}, {"fieldRef": " "}, {"fieldRef": "[", "warning": "w"},
        ]}, "conditions": [{"type": "X", "status": "True", "reason": "Y"}]});
        let errors = status_errors(&POLICY, &policy(&json!([])), &status);
        let warnings = "status.typeChecking.expressionWarnings";
        let expected = format!(
            "[{warnings}[1].warning: Required value, {warnings}[1].fieldRef: Required value, {warnings}[2].fieldRef: \
             Invalid value: \"[\": invalid JSONPath: unterminated array, status.conditions[0].lastTransitionTime: \
             Required value]"
        );
        assert_eq!(errors, expected);
    }

    fn policy(validations: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"validations": validations, "matchConstraints": {"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}}})
    }

    #[test]
    fn policies() {
        let check =
            |validations: Value, expected: &str| assert_eq!(create_errors(&POLICY, &policy(&validations)), expected);
        check(json!([{"expression": "true"}]), "[]");
        check(
            json!([]),
            "[spec.validations: Required value: validations or auditAnnotations must contain at least one item, \
             spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]",
        );
        check(
            json!([{"expression": "true", "reason": "Because"}]),
            r#"spec.validations[0].reason: Unsupported value: "Because": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
        );
        let made = created(&POLICY, &policy(&json!([])));
        assert_eq!(made["spec"]["failurePolicy"], "Fail");
        assert_eq!(made["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
    }

    #[test]
    fn bindings() {
        let check = |actions: Value, expected: &str| {
            let object = json!({"spec": {"policyName": "p", "validationActions": actions}});
            assert_eq!(create_errors(&BINDING, &object), expected);
        };
        check(json!(["Deny"]), "[]");
        check(json!([]), "spec.validationActions: Required value: at least one validation action is required");
        check(
            json!(["Deny", "Warn"]),
            r#"spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
        );
    }

    #[test]
    fn expressions_are_found_with_their_paths() {
        let object = json!({"spec": {"paramKind": {}, "variables": [{"name": "n", "expression": "1"}],
            "validations": [{"expression": "true", "messageExpression": "'x'"}]}});
        let found: Vec<(String, bool)> =
            POLICY.expressions(&object).into_iter().map(|expression| (expression.field, expression.params)).collect();
        assert_eq!(
            found,
            [
                ("spec.variables[0].expression".to_owned(), true),
                ("spec.validations[0].expression".to_owned(), true),
                ("spec.validations[0].messageExpression".to_owned(), true)
            ]
        );
    }
}
