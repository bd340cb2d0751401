//! Who may do what: members of `system:masters` everything, everybody else what RBAC allows.
//!
//! ```text
//! roles, bindings ──watch hub──▶ follow ──▶ Policy (immutable, swapped) ◀── every request
//! ```
//!
//! Refusals use upstream's wording. Masters are let through before anything is looked at.

mod bootstrap;
mod escalation;
mod fields;
mod follow;
mod policy;
mod reconcile;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use bootstrap::ensure_defaults;
pub(crate) use escalation::check as check_escalation;
pub(crate) use fields::check_fields;
pub use follow::Rbac;
pub(crate) use policy::{Decision, Policy};
pub(crate) use rules::{Attributes, ResourceTarget, Rule, Target, go_list};

use std::borrow::Cow;

use crate::api::Api;
use crate::field::quote;
use crate::registry::Context;
use crate::request::{Query, ResourcePath, Verb};
use crate::selector::field;
use crate::status::{Qualified, Status};
use crate::validation::names;

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// What is said to a request, and why.
pub(crate) fn decide(api: &Api, attributes: &Attributes<'_>) -> Decision {
    if attributes.user.is_master() {
        return Decision::Allowed(String::new());
    }
    api.rbac.policy().decide(attributes)
}

/// Refuses what nothing allows.
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
pub(crate) fn check_create(context: &Context) -> Result<(), Status> {
    if context.verb == Verb::Create {
        return Ok(());
    }
    let target = Target::Resource(ResourceTarget::of_path(&context.path, context.name()));
    check(&context.api, &Attributes { user: &context.user, verb: "create", target })
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
