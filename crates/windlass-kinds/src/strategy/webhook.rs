//! Webhook configurations, and the rules and expressions they share with admission policies.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Expression, ExpressionKind, Strategy};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, selector, values};

const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// The strategy of ValidatingWebhookConfigurations and MutatingWebhookConfigurations.
pub(crate) struct WebhookConfiguration {
    /// Whether the webhooks may change objects.
    pub mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn desired_state_changed(&self, object: &Value, old: &Value) -> bool {
        object.at("webhooks") != old.at("webhooks")
    }

    fn default(&self, object: &mut Value) {
        for hook in object.items_mut("webhooks") {
            hook.fill("failurePolicy", "Fail");
            hook.fill("matchPolicy", "Equivalent");
            hook.fill("namespaceSelector", json!({}));
            hook.fill("objectSelector", json!({}));
            hook.fill("timeoutSeconds", 10);
            if self.mutating {
                hook.fill("reinvocationPolicy", "Never");
            }
            default_rules(hook, "rules");
            if let Some(service) = hook.child_mut("clientConfig").and_then(|client| client.child_mut("service")) {
                service.fill("port", 443);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        self.webhooks(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        self.webhooks(object, Some(old), errors);
    }

    fn expressions(&self, object: &Value) -> Vec<Expression> {
        let path = Path::new("webhooks");
        let mut out = Vec::new();
        for (i, hook) in object.list("webhooks").iter().enumerate() {
            match_condition_expressions(hook, &path.index(i), false, &mut out);
        }
        out
    }
}

impl WebhookConfiguration {
    /// What old objects already do wrong, they may go on doing.
    fn webhooks(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let path = Path::new("webhooks");
        let hooks = object.list("webhooks");
        let old_hooks = old.map(|old| old.list("webhooks")).unwrap_or_default();
        let harmless = |hook: &Value| ["None", "NoneOnDryRun"].contains(&hook.text("sideEffects"));
        let no_side_effects = old_hooks.iter().all(harmless);
        let known_version = |hook: &Value| {
            let versions = hook.texts("admissionReviewVersions");
            versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
        };
        let recognized = old_hooks.iter().all(known_version);
        let same_conditions = old.is_some()
            && old_hooks.len() == hooks.len()
            && hooks.iter().zip(old_hooks).all(|(a, b)| a.at("matchConditions") == b.at("matchConditions"));
        let mut seen = HashSet::new();
        for (i, hook) in hooks.iter().enumerate() {
            let path = path.index(i);
            self.webhook(hook, no_side_effects, &path, errors);
            if !same_conditions {
                match_conditions(hook, &path, errors);
            }
            review_versions(hook, recognized, &path.child("admissionReviewVersions"), errors);
            let name = hook.text("name");
            if !name.is_empty() && !seen.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        }
    }

    fn webhook(&self, hook: &Value, no_side_effects: bool, path: &Path<'_>, errors: &mut FieldErrors) {
        qualified_name(hook.text("name"), &path.child("name"), errors);
        let rules_path = path.child("rules");
        for (i, rule) in hook.list("rules").iter().enumerate() {
            rule_with_operations(rule, &rules_path.index(i), errors);
        }
        values::optional_one_of(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
        values::optional_one_of(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
        let classes: &[&str] =
            if no_side_effects { &["None", "NoneOnDryRun"] } else { &["None", "NoneOnDryRun", "Some", "Unknown"] };
        if hook.has("sideEffects") {
            values::one_of(hook, "sideEffects", classes, path, errors);
        } else {
            let detail = format!("must specify one of {}", classes.join(", "));
            errors.push(FieldError::required(&path.child("sideEffects"), detail));
        }
        if let Some(seconds) = hook.int_opt("timeoutSeconds")
            && !(1..=30).contains(&seconds)
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(&path.child("timeoutSeconds"), seconds, detail));
        }
        for field in ["namespaceSelector", "objectSelector"] {
            selector::validate(hook.at(field), &path.child(field), errors);
        }
        if self.mutating {
            values::optional_one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
        }
        client_config(hook.at("clientConfig"), &path.child("clientConfig"), errors);
    }
}

/// Rules match every scope unless they say so.
pub(super) fn default_rules(owner: &mut Value, field: &str) {
    for rule in owner.items_mut(field) {
        rule.fill("scope", "*");
    }
}

/// Checks a name that must be a domain of at least three parts.
fn qualified_name(name: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let reasons = names::subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !reasons.is_empty() {
        errors.push(FieldError::invalid(path, name, reasons.join(",")));
    } else if !names::has_dots(name, 3) {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn review_versions(hook: &Value, recognized: bool, path: &Path<'_>, errors: &mut FieldErrors) {
    let versions = hook.texts("admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        if seen.insert(version) {
            values::invalid_for_each(&path.index(i), version, names::dns1035_label(version), errors);
        } else {
            errors.push(FieldError::invalid(&path.index(i), *version, "duplicate version"));
        }
    }
    if recognized && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let shown = hook.at("admissionReviewVersions").clone();
        errors.push(FieldError::invalid(path, shown, "must include at least one of v1, v1beta1"));
    }
}

/// Checks operations, groups, versions and resources a webhook or policy is about.
pub(super) fn rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let operations_path = path.child("operations");
    let operations = rule.texts("operations");
    if operations.is_empty() {
        errors.push(FieldError::required(&operations_path, ""));
    }
    alone(rule, "operations", "operations", path, errors);
    for (i, operation) in operations.into_iter().enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.push(FieldError::not_supported(&operations_path.index(i), operation, OPERATIONS));
        }
    }
    if rule.list("apiGroups").is_empty() {
        errors.push(FieldError::required(&path.child("apiGroups"), ""));
    }
    alone(rule, "apiGroups", "API groups", path, errors);
    let versions_path = path.child("apiVersions");
    if rule.list("apiVersions").is_empty() {
        errors.push(FieldError::required(&versions_path, ""));
    }
    alone(rule, "apiVersions", "API versions", path, errors);
    for (i, version) in rule.texts("apiVersions").into_iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(&versions_path.index(i), ""));
        }
    }
    rule_resources(rule, &path.child("resources"), errors);
    if rule.has("scope") {
        values::one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
    }
}

/// `*` stands alone.
fn alone(rule: &Value, field: &str, what: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let listed = rule.texts(field);
    if listed.len() > 1 && listed.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(&path.child(field), rule.at(field).clone(), detail));
    }
}

fn rule_resources(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let listed = rule.texts("resources");
    if listed.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut all_below, mut all_of) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for (i, text) in listed.iter().enumerate() {
        if text.is_empty() {
            errors.push(FieldError::required(&path.index(i), ""));
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            plain = *text != "*";
            continue;
        };
        for (covered, rule) in [
            (all_below.contains(resource), format!("{resource}/*")),
            (all_of.contains(subresource), format!("*/{subresource}")),
        ] {
            if covered {
                let detail = format!("if '{rule}' is present, must not specify {text}");
                errors.push(FieldError::invalid(&path.index(i), *text, detail));
            }
        }
        if subresource == "*" {
            all_below.insert(resource);
        }
        if resource == "*" {
            all_of.insert(subresource);
        }
    }
    let mut invalid = |detail: &str| errors.push(FieldError::invalid(path, rule.at("resources").clone(), detail));
    if listed.len() > 1 && listed.contains(&"*/*") {
        invalid("if '*/*' is present, must not specify other resources");
    }
    if listed.contains(&"*") && plain {
        invalid("if '*' is present, must not specify other resources without subresources");
    }
}

fn client_config(config: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match (config.text_opt("url"), config.has("service")) {
        (Some(url), false) => webhook_url(url, &path.child("url"), errors),
        (None, true) => webhook_service(config.at("service"), &path.child("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

/// Checks the URL of a webhook: https, a host, and nothing after the path.
pub(crate) fn webhook_url(url: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.push(FieldError::invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}")));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() || scheme.is_empty() {
        errors.push(FieldError::invalid(path, "", format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        // Upstream shows the password as well. The error goes to the audit log, among other places.
        let shown = user.split_once(':').map_or_else(|| user.to_owned(), |(name, _)| format!("{name}:xxxxx"));
        errors.push(FieldError::invalid(path, shown, "user information is not permitted in the URL"));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
}

/// Checks the service of a webhook.
pub(crate) fn webhook_service(service: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    // Upstream's callers hand over name and namespace the wrong way round.
    for (field, reported) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(field).is_empty() {
            errors.push(FieldError::required(&path.child(reported), ""));
        }
    }
    let port = service.int_opt("port").unwrap_or(443);
    let reasons = names::port_number(port);
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    let text = service.text("path");
    if text.is_empty() || text == "/" {
        return;
    }
    let path = path.child("path");
    if text == "//" {
        errors.push(FieldError::invalid(&path, text, "segment[0] may not be empty"));
        return;
    }
    if !text.starts_with('/') {
        errors.push(FieldError::invalid(&path, text, "must start with a '/'"));
    }
    let mut rest = text.chars();
    rest.next();
    let steps = rest.as_str();
    let steps = steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate();
    let details = steps.flat_map(|(i, step)| match step {
        "" => vec![format!("segment[{i}] may not be empty")],
        step => names::subdomain(step).into_iter().map(|reason| format!("segment[{i}]: {reason}")).collect(),
    });
    for detail in details.take(values::MOST_QUOTED) {
        errors.push(FieldError::invalid(&path, text, detail));
    }
}

/// Checks `matchConditions`, expressions aside.
pub(super) fn match_conditions(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("matchConditions");
    let conditions = owner.list("matchConditions");
    if conditions.len() > 64 {
        errors.push(FieldError::too_many(&path, conditions.len(), 64));
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        if condition.text("expression").trim().is_empty() {
            errors.push(FieldError::required(&path.child("expression"), ""));
        }
        values::required_text(condition, "name", names::qualified_name, &path, errors);
        let name = condition.text("name");
        if !name.is_empty() && !seen.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
    }
}

/// The expressions of `matchConditions`.
pub(super) fn match_condition_expressions(owner: &Value, path: &Path<'_>, params: bool, out: &mut Vec<Expression>) {
    let path = path.child("matchConditions");
    for (i, condition) in owner.list("matchConditions").iter().enumerate() {
        let text = condition.text("expression").trim();
        if !text.is_empty() {
            let kind = ExpressionKind::MatchCondition;
            out.push(Expression::new(&path.index(i).child("expression"), text, kind, params));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{create_errors, created};
    use super::*;

    const VALIDATING: WebhookConfiguration = WebhookConfiguration { mutating: false };

    fn hook(name: &str, changes: &Value) -> Value {
        let mut hook = json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/x"},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
        for (key, value) in changes.as_object().into_iter().flatten() {
            hook[key] = value.clone();
        }
        hook
    }

    #[test]
    fn a_webhook_gets_its_defaults() {
        let made = created(&VALIDATING, &json!({"webhooks": [hook("a.example.com", &json!({}))]}));
        let hook = &made["webhooks"][0];
        assert_eq!(hook["failurePolicy"], "Fail");
        assert_eq!(hook["timeoutSeconds"], 10);
        assert_eq!(hook["rules"][0]["scope"], "*");
        assert_eq!(hook["namespaceSelector"], json!({}));
        assert!(hook.get("reinvocationPolicy").is_none());
    }

    #[test]
    fn webhooks() {
        let check = |name: &str, changes: Value, expected: &str| {
            assert_eq!(create_errors(&VALIDATING, &json!({"webhooks": [hook(name, &changes)]})), expected);
        };
        check("a.example.com", json!({}), "[]");
        check(
            "a.example.com",
            json!({"sideEffects": "Some"}),
            r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#,
        );
        check(
            "a.example.com",
            json!({"clientConfig": {"url": "http://x/y"}}),
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired \
             format: https://host[/path]",
        );
        check(
            "a.example.com",
            json!({"clientConfig": {"url": "https://x/y", "service": {"name": "a", "namespace": "b"}}}),
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        );
        check(
            "short",
            json!({"failurePolicy": "Maybe", "timeoutSeconds": 31, "admissionReviewVersions": ["v9"]}),
            r#"[webhooks[0].name: Invalid value: "short": should be a domain with at least three segments separated by dots, webhooks[0].failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore", webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds, webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1]"#,
        );
        let twice = json!({"webhooks": [hook("u.example.com", &json!({})), hook("u.example.com", &json!({}))]});
        assert_eq!(create_errors(&VALIDATING, &twice), "webhooks[1].name: Duplicate value: \"u.example.com\"");
    }

    #[test]
    fn expressions_are_found_with_their_paths() {
        let object = json!({"webhooks": [{"matchConditions": [{"name": "a", "expression": "true "}]}]});
        let expressions = VALIDATING.expressions(&object);
        assert_eq!(expressions[0].field, "webhooks[0].matchConditions[0].expression");
        assert_eq!(expressions[0].text, "true");
    }
}
