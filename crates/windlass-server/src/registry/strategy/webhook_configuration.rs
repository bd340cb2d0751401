//! Admission webhook configurations.

use serde_json::{Value, json};

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::webhook::{webhook_service, webhook_url};
use crate::validation::{names, selector, values};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MOST_CONDITIONS: usize = 64;

/// The strategy of MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
pub struct WebhookConfiguration {
    /// Whether the webhooks change objects.
    pub mutating: bool,
}

/// What an update does not insist on, because the stored object already breaks it.
#[derive(Clone, Copy)]
struct Options {
    conditions: bool,
    no_side_effects: bool,
    known_review_version: bool,
    unique_names: bool,
    valid_selectors: bool,
}

impl Strategy for WebhookConfiguration {
    fn unconditional_update(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &[]
    }

    fn default(&self, object: &mut Value) {
        for hook in object.items_mut("webhooks") {
            hook.fill_text("failurePolicy", "Fail");
            hook.fill_text("matchPolicy", "Equivalent");
            hook.fill("namespaceSelector", json!({}));
            hook.fill("objectSelector", json!({}));
            hook.fill("timeoutSeconds", 10);
            if self.mutating {
                hook.fill_text("reinvocationPolicy", "Never");
            }
            for rule in hook.items_mut("rules") {
                rule.fill_text("scope", "*");
            }
            let service = hook.child_mut("clientConfig").and_then(|config| config.child_mut("service"));
            if let Some(service) = service.filter(|service| service.is_object()) {
                service.fill("port", 443);
            }
        }
    }

    fn prepare_create(&self, _object: &mut Value) {}

    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        object.at("webhooks") != old.at("webhooks")
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let options = Options {
            conditions: true,
            no_side_effects: true,
            known_review_version: true,
            unique_names: true,
            valid_selectors: true,
        };
        self.validate_with(object, options, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate_with(object, Options::given(object, old), errors);
    }
}

impl Options {
    /// What an update of `old` must fulfil.
    fn given(object: &Value, old: &Value) -> Self {
        let (new, old) = (object.list("webhooks"), old.list("webhooks"));
        let selectors_are_valid = |hook: &Value| {
            ["namespaceSelector", "objectSelector"].iter().all(|field| {
                let mut errors = FieldErrors::default();
                if hook.has(field) {
                    selector::validate(hook.at(field), &Path::new(field), &mut errors);
                }
                errors.is_empty()
            })
        };
        let same_conditions = new.len() == old.len()
            && new.iter().zip(old).all(|(new, old)| new.at("matchConditions") == old.at("matchConditions"));
        Self {
            conditions: !same_conditions,
            no_side_effects: old.iter().all(|hook| NO_SIDE_EFFECTS.contains(&hook.text("sideEffects"))),
            known_review_version: old.iter().all(|hook| knows_review_version(&hook.texts("admissionReviewVersions"))),
            unique_names: old
                .iter()
                .enumerate()
                .all(|(i, hook)| old[..i].iter().all(|earlier| earlier.text("name") != hook.text("name"))),
            valid_selectors: old.iter().all(selectors_are_valid),
        }
    }
}

impl WebhookConfiguration {
    fn validate_with(&self, object: &Value, options: Options, errors: &mut FieldErrors) {
        let path = Path::new("webhooks");
        let hooks = object.list("webhooks");
        for (i, hook) in hooks.iter().enumerate() {
            let path = path.index(i);
            self.webhook(hook, options, &path, errors);
            let versions = hook.texts("admissionReviewVersions");
            review_versions(&versions, options, &path.child("admissionReviewVersions"), errors);
            let name = hook.text("name");
            let taken = hooks[..i].iter().any(|earlier| earlier.text("name") == name);
            if options.unique_names && !name.is_empty() && taken {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
    }

    fn webhook(&self, hook: &Value, options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
        qualified_name(hook.text("name"), &path.child("name"), errors);
        let rules_path = path.child("rules");
        for (i, one) in hook.list("rules").iter().enumerate() {
            rule(one, &rules_path.index(i), errors);
        }
        values::optional_one_of(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
        values::optional_one_of(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
        let allowed: &[&str] = if options.no_side_effects { &NO_SIDE_EFFECTS } else { &SIDE_EFFECTS };
        match hook.text_opt("sideEffects") {
            None => {
                let detail = format!("must specify one of {}", allowed.join(", "));
                errors.push(FieldError::required(&path.child("sideEffects"), detail));
            }
            Some(class) if !allowed.contains(&class) => {
                errors.push(FieldError::not_supported(&path.child("sideEffects"), class, allowed));
            }
            Some(_) => {}
        }
        if let Some(seconds) = hook.int_opt("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, detail));
        }
        for field in ["namespaceSelector", "objectSelector"] {
            if hook.has(field) && options.valid_selectors {
                selector::validate(hook.at(field), &path.child(field), errors);
            }
        }
        if self.mutating {
            values::optional_one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
        }
        client_config(hook.at("clientConfig"), &path.child("clientConfig"), errors);
        if options.conditions {
            conditions(hook.list("matchConditions"), &path.child("matchConditions"), errors);
        }
    }
}

/// A name with at least three parts.
fn qualified_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let reasons = names::subdomain(name);
    if !reasons.is_empty() {
        errors.push(FieldError::invalid(path, name, reasons.join(",")));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn client_config(config: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match (config.text_opt("url"), config.has("service")) {
        (Some(url), false) => webhook_url(url, &path.child("url"), errors),
        (None, true) => webhook_service(config.at("service"), &path.child("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn review_versions(versions: &[&str], options: Options, path: &Path<'_>, errors: &mut FieldErrors) {
    if versions.is_empty() {
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::required(path, detail));
        return;
    }
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        if versions[..i].contains(version) {
            errors.push(FieldError::invalid(&at, *version, "duplicate version"));
        } else {
            values::invalid_for_each(&at, version, names::dns1035_label(version), errors);
        }
    }
    if options.known_review_version && !knows_review_version(versions) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
}

fn knows_review_version(versions: &[&str]) -> bool {
    versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
}

fn rule(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let operations = rule.texts("operations");
    wildcard_stands_alone(&operations, "operations", "operations", path, errors);
    let at = path.child("operations");
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.push(FieldError::not_supported(&at.index(i), *operation, &OPERATIONS));
        }
    }
    wildcard_stands_alone(&rule.texts("apiGroups"), "apiGroups", "API groups", path, errors);
    let versions = rule.texts("apiVersions");
    wildcard_stands_alone(&versions, "apiVersions", "API versions", path, errors);
    let at = path.child("apiVersions");
    for (i, _) in versions.iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.push(FieldError::required(&at.index(i), ""));
    }
    resources(&rule.texts("resources"), &path.child("resources"), errors);
    values::optional_one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

fn wildcard_stands_alone(items: &[&str], field: &str, what: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if items.is_empty() {
        errors.push(FieldError::required(&path.child(field), ""));
    } else if items.len() > 1 && items.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(&path.child(field), items.to_vec(), detail));
    }
}

fn resources(resources: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut any_subresource_of, mut subresource_of_any): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    let mut without_subresource = false;
    for (i, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(FieldError::required(&path.index(i), ""));
            continue;
        }
        let Some((name, subresource)) = resource.split_once('/') else {
            without_subresource = *resource != "*";
            continue;
        };
        let mut refuse = |pattern: String| {
            let detail = format!("if '{pattern}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(&path.index(i), *resource, detail));
        };
        if any_subresource_of.contains(&name) {
            refuse(format!("{name}/*"));
        }
        if subresource_of_any.contains(&subresource) {
            refuse(format!("*/{subresource}"));
        }
        if subresource == "*" {
            any_subresource_of.push(name);
        }
        if name == "*" {
            subresource_of_any.push(subresource);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, resources.to_vec(), detail));
    }
    if resources.contains(&"*") && without_subresource {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, resources.to_vec(), detail));
    }
}

fn conditions(conditions: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    if conditions.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len(), MOST_CONDITIONS));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let at = path.index(i);
        if condition.text("expression").trim().is_empty() {
            errors.push(FieldError::required(&at.child("expression"), ""));
        }
        let name = condition.text("name");
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
            continue;
        }
        values::invalid_for_each(&at.child("name"), name, names::qualified_name(name), errors);
        if conditions[..i].iter().any(|earlier| earlier.text("name") == name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::strategy::testing::{create_errors, created, update_errors};

    const MUTATING: WebhookConfiguration = WebhookConfiguration { mutating: true };

    fn hook(more: Value) -> Value {
        let mut hook = json!({
            "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        });
        if let (Value::Object(hook), Value::Object(more)) = (&mut hook, more) {
            hook.extend(more);
        }
        json!({"metadata": {"name": "c"}, "webhooks": [hook]})
    }

    #[test]
    fn defaults_are_filled_in() {
        let made = created(&MUTATING, &hook(json!({})));
        let made = &made["webhooks"][0];
        assert_eq!(made["failurePolicy"], "Fail");
        assert_eq!(made["matchPolicy"], "Equivalent");
        assert_eq!(made["timeoutSeconds"], 10);
        assert_eq!(made["reinvocationPolicy"], "Never");
        assert_eq!(made["rules"][0]["scope"], "*");
        assert_eq!(made["clientConfig"]["service"]["port"], 443);
        assert_eq!(made["objectSelector"], json!({}));
    }

    #[test]
    fn violations_are_upstreams() {
        let check = |more: Value, expected: &str| assert_eq!(create_errors(&MUTATING, &hook(more)), expected);
        check(json!({}), "[]");
        check(
            json!({"name": "a.b"}),
            "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
        );
        check(
            json!({"sideEffects": "Some"}),
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        );
        check(
            json!({"timeoutSeconds": 31}),
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        );
        check(
            json!({"clientConfig": {}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        );
        check(
            json!({"admissionReviewVersions": []}),
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        );
        let rules =
            json!([{"apiGroups": ["*", "a"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*", "a"]}]);
        check(
            json!({"rules": rules}),
            "[webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other \
             API groups, webhooks[0].rules[0].resources: Invalid value: [\"*\",\"a\"]: if '*' is present, must not \
             specify other resources without subresources]",
        );
    }

    #[test]
    fn what_was_broken_may_stay_broken() {
        let old = hook(json!({"sideEffects": "Some"}));
        assert_eq!(update_errors(&MUTATING, &old, &old), "[]");
    }
}
