//! Who may do what: members of `system:masters` everything, everybody health and version,
//! authenticated users discovery.
//!
//! Anything else is refused with upstream's wording.

use crate::authn::User;
use crate::field::quote;
use crate::request::{ResourcePath, Verb};
use crate::status::{Qualified, Status};

/// Paths that need no credentials.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// Paths (and everything below) that any authenticated user may read.
const DISCOVERY: [&str; 4] = ["/api", "/apis", "/openapi", "/.well-known"];

/// Checks a request for something that is not a resource.
pub(crate) fn path(user: &User, verb: &str, path: &str) -> Result<(), Status> {
    let below = |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    let allowed = user.is_master()
        || PUBLIC.iter().any(|root| below(root))
        || (!user.is_anonymous() && verb == "get" && (path == "/" || DISCOVERY.iter().any(|root| below(root))));
    if allowed {
        return Ok(());
    }
    let why = format!("User {} cannot {verb} path {}", quote(&user.name), quote(path));
    Err(Status::forbidden(Qualified { group: "", name: "" }, "", why))
}

/// Checks a request for a resource.
pub(crate) fn resource(user: &User, verb: Verb, target: &ResourcePath) -> Result<(), Status> {
    if user.is_master() {
        return Ok(());
    }
    let resource = match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", target.resource),
        None => target.resource.clone(),
    };
    let namespace = match (&target.namespace, target.resource.as_str(), &target.name) {
        (Some(namespace), ..) => Some(namespace),
        (None, "namespaces", Some(name)) if target.group.is_empty() => Some(name),
        _ => None,
    };
    let scope = match namespace {
        Some(namespace) => format!("in the namespace {}", quote(namespace)),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User {} cannot {} resource {} in API group {} {scope}",
        quote(&user.name),
        verb.as_str(),
        quote(&resource),
        quote(&target.group),
    );
    let qualified = Qualified { group: &target.group, name: &target.resource };
    Err(Status::forbidden(qualified, target.name.as_deref().unwrap_or_default(), why))
}
