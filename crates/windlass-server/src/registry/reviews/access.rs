//! May I, may they, what may I: access and rules reviews.

use serde_json::{Map, Value, json};

use super::answer;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authn::User;
use crate::authz;
use crate::context::Context;
use crate::field::{ErrorKind, FieldError, FieldErrors, Path};
use crate::rbac::{Decision, Rule};
use crate::status::{Qualified, Status};
use crate::validation::access::{Access as _, in_order};

/// A review must say what it is about.
pub(super) fn check(context: &Context, review: &Value) -> Result<(), Status> {
    let errors = validate(context, review, is_own(context));
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream has lost the kind by the time it validates.
    Err(Status::invalid(Qualified { group: &context.served.group, name: "" }, "", &errors))
}

fn is_own(context: &Context) -> bool {
    &*context.served.kind == "SelfSubjectAccessReview"
}

/// Whether the user may do what the review says.
pub(super) async fn review(context: &Context, mut review: Value) -> Value {
    let own = is_own(context);
    let spec = review.at("spec");
    let named = (!own).then(|| subject(spec));
    let user = named.as_ref().unwrap_or(&context.user);
    let status = match authz::decide_request(&context.api, &attributes(user, spec)).await {
        Decision::Allowed(reason) => status(true, &reason),
        Decision::NoOpinion(reason) => status(false, &reason),
    };
    review["status"] = status;
    review
}

fn status(allowed: bool, reason: &str) -> Value {
    let mut status = Map::from_iter([("allowed".to_owned(), allowed.into())]);
    if !reason.is_empty() {
        status.insert("reason".into(), reason.into());
    }
    status.into()
}

/// The user a review is about.
fn subject(spec: &Value) -> User {
    let texts = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<String>>();
    let extra = spec.at("extra");
    let extra = spec.entries("extra").into_iter().map(|(key, _)| (key.to_owned(), texts(extra.texts(key)))).collect();
    User {
        name: spec.text("user").to_owned(),
        uid: spec.text("uid").to_owned(),
        groups: texts(spec.texts("groups")),
        extra,
    }
}

fn attributes<'a>(user: &'a User, spec: &'a Value) -> Attributes<'a> {
    if spec.has("nonResourceAttributes") {
        let path = spec.at("nonResourceAttributes");
        return Attributes { user, verb: path.text("verb"), target: Target::Path(path.text("path")) };
    }
    let resource = spec.at("resourceAttributes");
    let target = ResourceTarget {
        group: resource.text("group"),
        resource: resource.text("resource"),
        subresource: resource.text("subresource"),
        namespace: resource.text("namespace"),
        name: resource.text("name"),
        node: selected_node(resource.at("fieldSelector")),
    };
    Attributes { user, verb: resource.text("verb"), target: Target::Resource(target) }
}

/// The node whose objects alone are selected, if the requirements say so.
fn selected_node(selector: &Value) -> &str {
    let mut requirements = selector.list("requirements").iter();
    let node = requirements.find(|one| one.text("key") == "spec.nodeName" && one.text("operator") == "In");
    match node.map(|node| node.texts("values")).as_deref() {
        Some([node]) => node,
        _ => "",
    }
}

fn validate(context: &Context, review: &Value, own: bool) -> FieldErrors {
    let mut errors = FieldErrors::default();
    let spec = review.at("spec");
    let path = Path::new("spec");
    let resource_path = path.child("resourceAttributes");
    let other_path = path.child("nonResourceAttributes");
    let shown = || {
        let other = spec.at("nonResourceAttributes");
        let go = json!({"Path": other.text("path"), "Verb": other.text("verb")});
        in_order(&go, &["Path", "Verb"])
    };
    match (spec.has("resourceAttributes"), spec.has("nonResourceAttributes")) {
        (true, true) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::shown(ErrorKind::Invalid, &other_path, shown(), detail));
        }
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid(&resource_path, Value::Null, detail));
        }
        _ => {}
    }
    if !own && spec.text("user").is_empty() && spec.list("groups").is_empty() {
        let detail = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&path.child("user"), "", detail));
    }
    for field in ["fieldSelector", "labelSelector"] {
        selector(spec.at("resourceAttributes"), field, &resource_path, &mut errors);
    }
    let local = context.served.namespaced;
    let mut metadata = review.at("metadata").clone();
    if let Value::Object(map) = &mut metadata {
        map.retain(|field, value| !value.is_null() && field != "managedFields" && !(local && field == "namespace"));
        if !map.is_empty() {
            let detail = if local { "must be empty except for namespace" } else { "must be empty" };
            errors.push(FieldError::invalid(&Path::new("metadata"), review.at("metadata").clone(), detail));
        }
    }
    if local && spec.has("resourceAttributes") {
        let namespace = spec.at("resourceAttributes").text("namespace");
        if namespace != context.namespace() {
            let detail = "must match metadata.namespace";
            errors.push(FieldError::invalid(&resource_path.child("namespace"), namespace, detail));
        }
    }
    if local && spec.has("nonResourceAttributes") {
        let detail = "disallowed on this kind of request";
        errors.push(FieldError::shown(ErrorKind::Invalid, &other_path, shown(), detail));
    }
    errors
}

/// A selector is text or a list, and one of them.
fn selector(attributes: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if !attributes.has(field) {
        return;
    }
    let selector = attributes.at(field);
    let path = path.child(field);
    match (selector.text("rawSelector"), selector.list("requirements")) {
        ("", []) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(&path.child("requirements"), detail));
        }
        ("", _) | (_, []) => {}
        (raw, _) => {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&path.child("rawSelector"), raw, detail));
        }
    }
}

/// A review of rules must be about some namespace.
pub(super) fn check_rules(review: &Value) -> Result<(), Status> {
    if review.at("spec").text("namespace").is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    Ok(())
}

/// Everything the user may do in a namespace.
pub(super) fn my_rules(context: &Context, review: &Value) -> Value {
    let namespace = review.at("spec").text("namespace");
    let (rules, unresolved) = context.api.rbac.policy().rules_for(&context.user, namespace);
    let of = |kind: fn(&Rule) -> bool| rules.iter().filter(|rule| kind(rule)).map(Rule::to_value).collect::<Value>();
    let mut status = json!({
        "resourceRules": of(Rule::is_for_resources),
        "nonResourceRules": of(Rule::is_for_paths),
        "incomplete": false,
    });
    if !unresolved.is_empty() {
        status["evaluationError"] = unresolved.into();
    }
    answer(context, json!({}), [("spec", json!({})), ("status", status)])
}
