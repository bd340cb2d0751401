//! What users may do: members of `system:masters` everything, nodes what their pods need, all others what [RBAC](crate::rbac)
//! allows.
//!
//! Refusals use upstream's wording. Masters are let through before anything is looked at.

mod bootstrap;
mod escalation;
mod fields;
pub(crate) mod node;
mod reconcile;
#[cfg(test)]
mod tests;

pub(crate) use bootstrap::ensure_defaults;
pub(crate) use escalation::check as check_escalation;
pub(crate) use fields::check_fields;

use std::borrow::Cow;

use crate::api::Api;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::context::Context;
use crate::field::quote;
use crate::rbac::Decision;
use crate::request::{Query, ResourcePath, Verb};
use crate::selector::field;
use crate::status::{Qualified, Status};
use crate::validation::names;

/// What is said to a request, and why.
pub(crate) fn decide(api: &Api, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.is_master() {
        return Decision::Allowed(String::new());
    }
    api.rbac.policy().decide(attributes)
}

/// What is said to a request, and why. Nodes are judged by what they run; see [`node`].
pub(crate) async fn decide_request(api: &Api, attributes: &Attributes<'_>) -> Decision {
    let Some(node) = node::identity(attributes.user).filter(|_| !attributes.user.is_master()) else {
        return decide(api, attributes);
    };
    // Boxed: few requests are nodes', and all would be as large as one that is.
    let reason = match Box::pin(node::decide(api, node, attributes)).await {
        Decision::NoOpinion(reason) => reason,
        allowed @ Decision::Allowed(_) => return allowed,
    };
    match decide(api, attributes) {
        Decision::NoOpinion(also) if reason.is_empty() || also.is_empty() => Decision::NoOpinion(reason + &also),
        Decision::NoOpinion(also) => Decision::NoOpinion(format!("{reason}\n{also}")),
        allowed @ Decision::Allowed(_) => allowed,
    }
}

/// Refuses a request that nothing allows.
pub(crate) async fn check_request(api: &Api, attributes: &Attributes<'_>) -> Result<(), Status> {
    match decide_request(api, attributes).await {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// Refuses what no role allows.
pub(crate) fn check(api: &Api, attributes: &Attributes<'_>) -> Result<(), Status> {
    match decide(api, attributes) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// Refuses what creates an object by another verb, PUT or server-side apply, without the right to create it.
///
/// Mirrors `withAuthorization` of upstream's `endpoints/handlers/update.go`: the attributes are those of the request
/// with another verb, and the check comes after the object is valid and before validating admission.
pub(crate) async fn check_create(context: &Context) -> Result<(), Status> {
    if context.verb == Verb::Create {
        return Ok(());
    }
    let target = Target::Resource(ResourceTarget::of_path(&context.path, context.name()));
    check_request(&context.api, &Attributes { user: &context.user, verb: "create", target }).await
}

/// The name that rules see: that of the path, or the only one that a list or watch selects.
///
/// Mirrors `NewRequestInfo` of upstream's `endpoints/request/requestinfo.go`: a deletecollection has no name, whatever
/// it selects, nor has a watch that is asked for in the path.
pub(crate) fn requested_name<'a>(verb: Option<Verb>, path: &'a ResourcePath, query: &Query) -> Cow<'a, str> {
    if let Some(name) = &path.name {
        return name.into();
    }
    if path.watch_prefix || !matches!(verb, Some(Verb::List | Verb::Watch)) {
        return "".into();
    }
    let selector = query.get("fieldSelector").and_then(|text| field::FieldSelector::parse(text).ok());
    let name = selector.as_ref().and_then(|selector| selector.requires("metadata.name"));
    let name = name.filter(|name| names::path_segment(name, false).is_empty());
    name.unwrap_or_default().to_owned().into()
}

/// The node whose objects alone a list, watch or deletecollection selects; empty if it selects others too.
pub(crate) fn requested_node(path: &ResourcePath, query: &Query) -> String {
    if !matches!(path.resource.as_str(), "pods" | "resourceslices") || path.name.is_some() {
        return String::new();
    }
    let selector = query.get("fieldSelector").and_then(|text| field::FieldSelector::parse(text).ok());
    selector.and_then(|selector| selector.requires("spec.nodeName").map(str::to_owned)).unwrap_or_default()
}

/// 403 for what nothing allows.
pub(crate) fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let user = quote(&attributes.user.name);
    let verb = attributes.verb;
    let (mut why, qualified, name) = match &attributes.target {
        Target::Path(path) => {
            (format!("User {user} cannot {verb} path {}", quote(path)), Qualified { group: "", name: "" }, "")
        }
        Target::Resource(target) => {
            let resource = match target.subresource {
                "" => target.resource.to_owned(),
                subresource => format!("{}/{subresource}", target.resource),
            };
            let scope = match target.namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {}", quote(namespace)),
            };
            let group = quote(target.group);
            let why = format!("User {user} cannot {verb} resource {} in API group {group} {scope}", quote(&resource));
            (why, Qualified { group: target.group, name: target.resource }, target.name)
        }
    };
    why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Status::forbidden(qualified, name, why)
}
