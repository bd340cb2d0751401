//! FlowSchema and PriorityLevelConfiguration.

use serde_json::Value;

use super::Strategy;
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

const MAX_PRECEDENCE: i64 = 10_000;

/// The strategy of FlowSchemas.
pub(crate) struct FlowSchema;

/// The strategy of PriorityLevelConfigurations.
pub(crate) struct PriorityLevel;

impl Strategy for FlowSchema {
    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.struct_mut("spec").fill_int("matchingPrecedence", 1000);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let precedence = spec.int("matchingPrecedence");
        let precedence_path = path.child("matchingPrecedence");
        if precedence <= 0 {
            errors.push(FieldError::invalid(&precedence_path, precedence, "must be a positive value"));
        }
        if precedence > MAX_PRECEDENCE {
            let detail = format!("must not be greater than {MAX_PRECEDENCE}");
            errors.push(FieldError::invalid(&precedence_path, precedence, detail));
        }
        if precedence == 1 && object.at("metadata").text("name") != "exempt" {
            let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
            errors.push(FieldError::invalid(&precedence_path, precedence, detail));
        }
        let method = spec.at("distinguisherMethod");
        if !method.is_null() {
            let path = path.child("distinguisherMethod");
            values::one_of(method, "type", &["ByNamespace", "ByUser"], &path, errors);
        }
        let level_path = path.child("priorityLevelConfiguration");
        let level = spec.at("priorityLevelConfiguration").text("name");
        if level.is_empty() {
            errors.push(FieldError::required(&level_path.child("name"), "must reference a priority level"));
        } else {
            values::invalid_for_each(&level_path.child("name"), level, names::subdomain(level), errors);
        }
        let rules_path = path.child("rules");
        for (i, rule) in spec.list("rules").iter().enumerate() {
            flow_rule(rule, &rules_path.index(i), errors);
        }
    }
}

impl Strategy for PriorityLevel {
    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let Some(spec) = object.child_mut("spec") else { return };
        if let Some(exempt) = spec.child_mut("exempt") {
            exempt.fill("nominalConcurrencyShares", 0);
            exempt.fill("lendablePercent", 0);
        }
        if let Some(limited) = spec.child_mut("limited") {
            limited.fill("nominalConcurrencyShares", 30);
            limited.fill("lendablePercent", 0);
            if let Some(queuing) = limited.child_mut("limitResponse").and_then(|response| response.child_mut("queuing"))
            {
                queuing.fill_int("handSize", 8);
                queuing.fill_int("queues", 64);
                queuing.fill_int("queueLengthLimit", 50);
            }
        }
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let path = Path::new("spec");
        let spec = object.at("spec");
        let kind = spec.text("type");
        if (object.at("metadata").text("name") == "exempt") != (kind == "Exempt") {
            let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
            errors.push(FieldError::invalid(&path.child("type"), kind, detail));
        }
        match kind {
            "Exempt" => {
                if spec.has("limited") {
                    let detail = "must be nil if the type is not Limited";
                    errors.push(FieldError::forbidden(&path.child("limited"), detail));
                }
            }
            "Limited" => {
                if spec.has("exempt") {
                    let detail = "must be nil if the type is Limited";
                    errors.push(FieldError::forbidden(&path.child("exempt"), detail));
                }
                if spec.has("limited") {
                    limited(spec.at("limited"), &path.child("limited"), errors);
                } else {
                    let detail = "must not be empty when type is Limited";
                    errors.push(FieldError::required(&path.child("limited"), detail));
                }
            }
            _ => values::required_one_of(spec, "type", &["Exempt", "Limited"], &path, errors),
        }
    }
}

fn flow_rule(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let subjects_path = path.child("subjects");
    if rule.list("subjects").is_empty() {
        errors.push(FieldError::required(&subjects_path, "subjects must contain at least one value"));
    }
    for (i, subject) in rule.list("subjects").iter().enumerate() {
        flow_subject(subject, &subjects_path.index(i), errors);
    }
    let (resources, urls) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && urls.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, detail));
    }
    let resources_path = path.child("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        let path = resources_path.index(i);
        filled(rule, "verbs", "verbs must contain at least one value", "verbs", &path, errors);
        let groups = "resource rules must supply at least one api group";
        filled(rule, "apiGroups", groups, "api groups", &path, errors);
        let resource = "resource rules must supply at least one resource";
        filled(rule, "resources", resource, "resources", &path, errors);
        if rule.list("namespaces").is_empty() && !rule.flag("clusterScope") {
            let detail = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(FieldError::required(&path.child("namespaces"), detail));
        }
    }
    let urls_path = path.child("nonResourceRules");
    for (i, rule) in urls.iter().enumerate() {
        let path = urls_path.index(i);
        filled(rule, "verbs", "verbs must contain at least one value", "verbs", &path, errors);
        let url = "nonResourceURLs must contain at least one value";
        filled(rule, "nonResourceURLs", url, "non-resource URLs", &path, errors);
    }
}

/// A list that must have items, of which `*` stands alone.
fn filled(rule: &Value, field: &str, empty: &str, what: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    let listed = rule.texts(field);
    let path = path.child(field);
    if listed.is_empty() {
        errors.push(FieldError::required(&path, empty));
    } else if listed.len() > 1 && listed.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(&path, rule.at(field).clone(), detail));
    }
}

fn flow_subject(subject: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let kinds = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.text("kind");
    let Some((_, wanted)) = kinds.iter().find(|(name, _)| *name == kind) else {
        values::one_of(subject, "kind", &["Group", "ServiceAccount", "User"], path, errors);
        return;
    };
    let wanted_path = path.child(wanted);
    if subject.has(wanted) {
        values::required(subject.at(wanted), "name", &wanted_path, errors);
        if *wanted == "serviceAccount" && subject.at(wanted).text("namespace").is_empty() {
            let detail = "must specify namespace for service account";
            errors.push(FieldError::required(&wanted_path.child("namespace"), detail));
        }
    } else {
        let detail = format!("{wanted} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(&wanted_path, detail));
    }
    for (name, field) in kinds.iter().filter(|(name, field)| *name != kind && subject.has(field)) {
        let detail = format!("{field} is forbidden when subject kind is not '{name}'");
        errors.push(FieldError::forbidden(&path.child(field), detail));
    }
}

fn limited(limited: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let shares = limited.int("nominalConcurrencyShares");
    if shares < 0 {
        let detail = "must be a non-negative integer";
        errors.push(FieldError::invalid(&path.child("nominalConcurrencyShares"), shares, detail));
    }
    let lendable = limited.int("lendablePercent");
    if !(0..=100).contains(&lendable) {
        let detail = "must be between 0 and 100, inclusive";
        errors.push(FieldError::invalid(&path.child("lendablePercent"), lendable, detail));
    }
    let response_path = path.child("limitResponse");
    let response = limited.at("limitResponse");
    let queuing_path = response_path.child("queuing");
    match response.text("type") {
        "Reject" => {
            if response.has("queuing") {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(FieldError::forbidden(&queuing_path, detail));
            }
        }
        "Queue" => {
            if !response.has("queuing") {
                let detail = "must not be empty if limited.limitResponse.type is Limited";
                errors.push(FieldError::required(&queuing_path, detail));
            }
        }
        _ => values::required_one_of(response, "type", &["Queue", "Reject"], &response_path, errors),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, created};
    use super::*;

    #[test]
    fn flow_schemas() {
        let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "global-default"}, "rules": [
            {"subjects": [{"kind": "Group", "group": {"name": "g"}}],
             "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}});
        assert_eq!(created(&FlowSchema, &schema)["spec"]["matchingPrecedence"], 1000);
        assert_eq!(create_errors(&FlowSchema, &schema), "[]");
        assert_eq!(
            create_errors(&FlowSchema, &json!({"spec": {}})),
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"
        );
    }

    #[test]
    fn priority_levels() {
        let level = json!({"metadata": {"name": "x"}, "spec": {"type": "Limited",
            "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}});
        let made = created(&PriorityLevel, &level);
        assert_eq!(made["spec"]["limited"]["nominalConcurrencyShares"], 30);
        assert_eq!(made["spec"]["limited"]["limitResponse"]["queuing"]["queues"], 64);
        assert_eq!(create_errors(&PriorityLevel, &level), "[]");
    }
}
