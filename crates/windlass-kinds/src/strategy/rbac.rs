//! Roles and role bindings.

use serde_json::Value;

use super::Strategy;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut, semantically_equal};
use crate::validation::selector::{self, Selector};
use crate::validation::{names, values};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The strategy of Roles and ClusterRoles.
pub(crate) struct Role {
    /// Whether this is a Role of a namespace.
    pub namespaced: bool,
}

/// The strategy of RoleBindings and ClusterRoleBindings.
pub(crate) struct RoleBinding {
    /// Whether this is a RoleBinding of a namespace.
    pub namespaced: bool,
}

impl Strategy for Role {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("rules");
        for (i, rule) in object.list("rules").iter().enumerate() {
            policy_rule(rule, self.namespaced, &path.index(i), errors);
        }
        if object.has("aggregationRule") {
            aggregation(object.at("aggregationRule"), errors);
        }
    }
}

impl Strategy for RoleBinding {
    fn default(&self, object: &mut Value) {
        object.struct_mut("roleRef").fill_text("apiGroup", GROUP);
        for subject in object.items_mut("subjects") {
            if ["User", "Group"].contains(&subject.text("kind")) {
                subject.fill_text("apiGroup", GROUP);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("roleRef");
        let role = object.at("roleRef");
        values::one_of(role, "apiGroup", &[GROUP], &path, errors);
        let kinds: &[&str] = if self.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
        values::one_of(role, "kind", kinds, &path, errors);
        values::required_text(role, "name", |name| names::path_segment(name, false), &path, errors);
        let path = Path::new("subjects");
        for (i, subject) in object.list("subjects").iter().enumerate() {
            self.subject(subject, &path.index(i), errors);
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(object, errors);
        let role = object.at("roleRef");
        if !semantically_equal(role, old.at("roleRef")) {
            // Upstream prints its internal type.
            let shown = format!(
                r#"{{"APIGroup":{},"Kind":{},"Name":{}}}"#,
                Value::from(role.text("apiGroup")),
                Value::from(role.text("kind")),
                Value::from(role.text("name"))
            );
            let path = Path::new("roleRef");
            errors.push(FieldError::shown(ErrorKind::Invalid, &path, shown, "cannot change roleRef"));
        }
    }
}

impl RoleBinding {
    fn subject(&self, subject: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
        values::required(subject, "name", path, errors);
        match subject.text("kind") {
            "ServiceAccount" => {
                values::optional_text(subject, "name", names::subdomain, path, errors);
                values::one_of(subject, "apiGroup", &[""], path, errors);
                if !self.namespaced {
                    values::required(subject, "namespace", path, errors);
                }
            }
            "User" | "Group" => values::one_of(subject, "apiGroup", &[GROUP], path, errors),
            _ => values::one_of(subject, "kind", &["ServiceAccount", "User", "Group"], path, errors),
        }
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    if rule.list("verbs").is_empty() {
        errors.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
    }
    let has = |field: &str| !rule.list(field).is_empty();
    if has("nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let mut refuse = |detail: &str| {
            errors.push(FieldError::invalid(&path, rule.at("nonResourceURLs").clone(), detail));
        };
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !has("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(&path.child("apiGroups"), detail));
    }
    if !has("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(&path.child("resources"), detail));
    }
}

fn aggregation(rule: &Value, errors: &mut FieldErrors) {
    let path = Path::new("aggregationRule");
    let path = path.child("clusterRoleSelectors");
    let selectors = rule.list("clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(&path, detail));
    }
    for (i, label_selector) in selectors.iter().enumerate() {
        selector::validate(label_selector, &path.index(i), errors);
        if Selector::from_object(label_selector).is_none() {
            errors.push(FieldError::invalid(&path.index(i), Value::Null, "invalid label selector."));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, created, update_errors};
    use super::*;

    const ROLE: Role = Role { namespaced: true };
    const BINDING: RoleBinding = RoleBinding { namespaced: true };

    fn binding(subjects: &Value) -> Value {
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects})
    }

    #[test]
    fn roles() {
        let check = |rule: Value, expected: &str| assert_eq!(create_errors(&ROLE, &json!({"rules": [rule]})), expected);
        check(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}), "[]");
        check(
            json!({"apiGroups": [""], "resources": ["pods"]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        );
        check(
            json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}),
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        );
    }

    #[test]
    fn bindings() {
        let made = created(&BINDING, &binding(&json!([{"kind": "User", "name": "u"}])));
        assert_eq!(made["subjects"][0]["apiGroup"], GROUP);
        assert_eq!(made["roleRef"]["apiGroup"], GROUP);
        assert_eq!(
            create_errors(
                &BINDING,
                &binding(&json!([{"kind": "ServiceAccount", "name": "sa"}, {"kind": "Robot", "name": "r"}]))
            ),
            r#"subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group""#
        );
        let mut new = binding(&json!([]));
        new["roleRef"]["name"] = "other".into();
        assert_eq!(
            update_errors(&BINDING, &binding(&json!([])), &new),
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: cannot change roleRef"#
        );
    }
}
