//! Who may do what: members of `system:masters` everything, everybody else what RBAC allows.
//!
//! ```text
//! roles, bindings ──watch hub──▶ follow ──▶ Policy (immutable, swapped) ◀── every request
//! ```
//!
//! Refusals use upstream's wording. Masters are let through before anything is looked at.

mod bootstrap;
mod escalation;
mod follow;
mod policy;
mod reconcile;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use bootstrap::ensure_defaults;
pub(crate) use escalation::check as check_escalation;
pub use follow::Rbac;
pub(crate) use policy::{Decision, Policy};
pub(crate) use rules::{Attributes, ResourceTarget, Rule, Target, go_list};

use crate::api::Api;
use crate::authn::User;
use crate::field::quote;
use crate::request::{Query, ResourcePath, Verb};
use crate::selector::field;
use crate::status::{Qualified, Status};

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

/// Checks a request for something that is not a resource.
pub(crate) fn path(api: &Api, user: &User, verb: &str, path: &str) -> Result<(), Status> {
    if user.is_master() {
        return Ok(());
    }
    check(api, &Attributes { user, verb, target: Target::Path(path) })
}

/// Checks a request for a resource; one whose method says nothing is one without a verb.
pub(crate) fn resource(
    api: &Api,
    user: &User,
    verb: Option<Verb>,
    path: &ResourcePath,
    query: &Query,
) -> Result<(), Status> {
    if user.is_master() {
        return Ok(());
    }
    let named = path.name.is_none().then(|| selected_name(verb, query)).flatten();
    let name = path.name.as_deref().or(named.as_deref()).unwrap_or_default();
    let namespace = match (&path.namespace, path.resource.as_str()) {
        (Some(namespace), _) => namespace,
        (None, "namespaces") if path.group.is_empty() => path.name.as_deref().unwrap_or_default(),
        (None, _) => "",
    };
    let target = ResourceTarget {
        group: &path.group,
        resource: &path.resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        namespace,
        name,
    };
    let verb = verb.map_or("", Verb::as_str);
    check(api, &Attributes { user, verb, target: Target::Resource(target) })
}

/// The one name that a collection request selects, which then counts as the request's.
fn selected_name(verb: Option<Verb>, query: &Query) -> Option<String> {
    if !matches!(verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection)) {
        return None;
    }
    let selector = field::FieldSelector::parse(query.get("fieldSelector")?).ok()?;
    selector.requires("metadata.name").map(str::to_owned)
}

fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
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
