//! FlowSchema and PriorityLevelConfiguration, checked as upstream's `flowcontrol/validation` does.

pub mod mandatory;

use std::collections::HashSet;

use serde_json::Value;

use super::Strategy;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::validation::access::{Access, AccessMut};
use crate::validation::{names, values};

const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
/// So many bits of a flow's hash are there to deal a hand of queues.
const MAX_HASH_BITS: i64 = 60;
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
/// The annotation by which v1beta3, which is not served, kept 0 shares apart from none.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// The strategy of FlowSchemas.
pub(crate) struct FlowSchema;

/// The strategy of PriorityLevelConfigurations.
pub(crate) struct PriorityLevel;

impl Strategy for FlowSchema {
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
        if !method.is_null() && !["ByNamespace", "ByUser"].contains(&method.text("type")) {
            let path = path.child("distinguisherMethod");
            let detail = r#"supported values: "ByNamespace", "ByUser""#;
            let shown = mandatory::shown_method(method);
            errors.push(FieldError::shown(ErrorKind::NotSupported, &path.child("type"), shown, detail));
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
        mandatory::check_schema(object.at("metadata").text("name"), spec, &path, errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        conditions(object, errors);
    }
}

impl Strategy for PriorityLevel {
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
        if object.at("metadata").at("annotations").has(ZERO_SHARES) {
            let detail = format!("annotation '{ZERO_SHARES}' is forbidden");
            errors.push(FieldError::forbidden(&Path::new("metadata").child("annotations"), detail));
        }
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
                let (exempt, path) = (spec.at("exempt"), path.child("exempt"));
                shares(exempt, &path, errors);
                lendable(exempt, &path, errors);
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
        mandatory::check_level(object.at("metadata").text("name"), spec, &path, errors);
    }

    fn validate_status_update(&self, object: &Value, _old: &Value, errors: &mut FieldErrors) {
        conditions(object, errors);
    }
}

/// Each condition has a type of its own.
fn conditions(object: &Value, errors: &mut FieldErrors) {
    let mut seen = HashSet::new();
    let path = Path::new("status");
    let path = path.child("conditions");
    for (i, condition) in object.at("status").list("conditions").iter().enumerate() {
        let path = path.index(i);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&path.child("type"), kind));
        }
        values::required(condition, "type", &path, errors);
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
        verbs(rule, &path, errors);
        let groups = "resource rules must supply at least one api group";
        filled(rule, "apiGroups", groups, "api groups", &path, errors);
        let resource = "resource rules must supply at least one resource";
        filled(rule, "resources", resource, "resources", &path, errors);
        namespaces(rule, &path, errors);
    }
    let urls_path = path.child("nonResourceRules");
    for (i, rule) in urls.iter().enumerate() {
        let path = urls_path.index(i);
        verbs(rule, &path, errors);
        let url = "nonResourceURLs must contain at least one value";
        if filled(rule, "nonResourceURLs", url, "non-resource URLs", &path, errors) {
            let path = path.child("nonResourceURLs");
            for (i, url) in rule.texts("nonResourceURLs").into_iter().enumerate() {
                if let Some(problem) = url_problem(url) {
                    errors.push(FieldError::invalid(&path.index(i), url, problem));
                }
            }
        }
    }
}

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let filled = filled(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    if filled && !rule.texts("verbs").iter().all(|verb| VERBS.contains(verb)) {
        errors.push(FieldError::not_supported(&path.child("verbs"), rule.at("verbs").clone(), &VERBS));
    }
}

fn namespaces(rule: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let path = path.child("namespaces");
    let listed = rule.texts("namespaces");
    if listed.is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(FieldError::required(&path, detail));
    } else if listed.contains(&"*") {
        if listed.len() > 1 {
            let detail = "if '*' is present, must not specify other namespaces";
            errors.push(FieldError::invalid(&path, rule.at("namespaces").clone(), detail));
        }
    } else {
        for (i, namespace) in listed.into_iter().enumerate() {
            for reason in names::label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {reason}");
                errors.push(FieldError::invalid(&path.index(i), namespace, detail));
            }
        }
    }
}

/// Why a path, which may end in a wildcard, cannot match any request.
fn url_problem(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ => match url.matches('*').count() {
            0 => None,
            1 if url.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

/// A list that must have items, of which `*` stands alone. Returns whether there are items that are not `*`, to be checked
/// one by one.
fn filled(rule: &Value, field: &str, empty: &str, what: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let listed = rule.texts(field);
    let path = path.child(field);
    let has_wildcard = listed.contains(&"*");
    if listed.is_empty() {
        errors.push(FieldError::required(&path, empty));
    } else if has_wildcard && listed.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(&path, rule.at(field).clone(), detail));
    }
    !listed.is_empty() && !has_wildcard
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
        if *wanted == "serviceAccount" {
            service_account(subject.at(wanted), &wanted_path, errors);
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

fn service_account(account: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let name = account.text("name");
    if !name.is_empty() && name != "*" {
        values::invalid_for_each(&path.child("name"), name, names::subdomain(name), errors);
    }
    let (namespace, path) = (account.text("namespace"), path.child("namespace"));
    if namespace.is_empty() {
        errors.push(FieldError::required(&path, "must specify namespace for service account"));
    } else {
        values::invalid_for_each(&path, namespace, names::label(namespace), errors);
    }
}

fn shares(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let shares = owner.int("nominalConcurrencyShares");
    if shares < 0 {
        let detail = "must be a non-negative integer";
        errors.push(FieldError::invalid(&path.child("nominalConcurrencyShares"), shares, detail));
    }
}

fn lendable(owner: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let percent = owner.int("lendablePercent");
    if !(0..=100).contains(&percent) {
        let detail = "must be between 0 and 100, inclusive";
        errors.push(FieldError::invalid(&path.child("lendablePercent"), percent, detail));
    }
}

fn limited(limited: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    shares(limited, path, errors);
    limit_response(limited.at("limitResponse"), &path.child("limitResponse"), errors);
    lendable(limited, path, errors);
    let borrowed = limited.int("borrowingLimitPercent");
    if borrowed < 0 {
        let detail = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(&path.child("borrowingLimitPercent"), borrowed, detail));
    }
}

fn limit_response(response: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    let queuing_path = path.child("queuing");
    match response.text("type") {
        "Reject" => {
            if response.has("queuing") {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(FieldError::forbidden(&queuing_path, detail));
            }
        }
        "Queue" if response.has("queuing") => queuing(response.at("queuing"), &queuing_path, errors),
        "Queue" => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(&queuing_path, detail));
        }
        _ => values::required_one_of(response, "type", &["Queue", "Reject"], path, errors),
    }
}

fn queuing(queuing: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    const POSITIVE: &str = "must be positive";
    let mut refuse = |field: &str, detail: &str| {
        errors.push(FieldError::invalid(&path.child(field), queuing.int(field), detail));
    };
    let (queues, hand) = (queuing.int("queues"), queuing.int("handSize"));
    if queuing.int("queueLengthLimit") <= 0 {
        refuse("queueLengthLimit", POSITIVE);
    }
    if queues <= 0 {
        refuse("queues", POSITIVE);
    } else if queues > MAX_QUEUES {
        refuse("queues", &format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        refuse("handSize", POSITIVE);
    } else if hand > queues {
        refuse("handSize", &format!("should not be greater than queues ({queues})"));
    } else if required_entropy_bits(queues, hand) > MAX_HASH_BITS {
        let hand_size = format!("required entropy bits of deckSize {queues} and handSize {hand}");
        refuse("handSize", &format!("{hand_size} should not be greater than {MAX_HASH_BITS}"));
    }
}

/// How many bits of a hash dealing `hand` of `queues` queues consumes. Mirrors `shufflesharding.RequiredEntropyBits` of
/// upstream, in floating-point numbers as well: both are 32-bit integers.
fn required_entropy_bits(queues: i64, hand: i64) -> i64 {
    ((queues as f64).log2() * hand as f64).ceil() as i64
}

#[cfg(test)]
mod tests;
