//! No user gives away more than they have: checks on writes of roles and bindings.
//!
//! As upstream's `pkg/registry/rbac`: a role may hold what its writer may do, unless the writer may
//! `escalate` it; a binding may refer to a role whose rules its writer holds, or that they may `bind`.

use serde_json::Value;

use super::decide;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::cel::go::quote_list;
use crate::context::Context;
use crate::field::quote;
use crate::object::{self, metadata_mut};
use crate::rbac::{Decision, GROUP, Rule, missing};
use crate::status::Status;
use crate::validation::access::Access as _;

/// Checks a write of a role or binding; `old` is what is replaced. Any other object passes.
pub(crate) fn check(context: &Context, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    if context.user.is_master() || *context.served.group != *GROUP {
        return Ok(());
    }
    if old.is_some_and(|old| only_housekeeping(new, old)) {
        return Ok(());
    }
    match &*context.served.plural {
        "roles" | "clusterroles" => role(context, new, old),
        "rolebindings" | "clusterrolebindings" => binding(context, new),
        _ => Ok(()),
    }
}

/// Whether only fields changed that decide when the object is deleted.
fn only_housekeeping(new: &Value, old: &Value) -> bool {
    let [new, old] = [new, old].map(|object| {
        let mut object = object.clone();
        let metadata = metadata_mut(&mut object);
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
        object
    });
    new == old
}

fn role(context: &Context, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    if may(context, "escalate", &context.served.plural, context.name()) {
        return Ok(());
    }
    held(context, new, &Rule::of_role(new))?;
    let aggregates = |role: &Value| !role.at("aggregationRule").list("clusterRoleSelectors").is_empty();
    if !(aggregates(new) || old.is_some_and(aggregates)) {
        return Ok(());
    }
    held(context, new, &Rule::full_authority()).map_err(|_| {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        Status::forbidden(context.qualified(), object::name(new), why)
    })
}

fn binding(context: &Context, new: &Value) -> Result<(), Status> {
    let reference = new.at("roleRef");
    let name = reference.text("name");
    let (cluster_role, plural) = match reference.text("kind") {
        "ClusterRole" => (true, "clusterroles"),
        "Role" => (false, "roles"),
        kind => return Err(Status::unclassified(format!("unsupported role reference kind: {}", quote(kind)))),
    };
    if may(context, "bind", plural, name) {
        return Ok(());
    }
    let rules = context.api.rbac.policy().rules_of(cluster_role, context.namespace(), name);
    // Upstream names the resource of the request, not that of the missing role.
    let rules = rules.map_err(|_| Status::not_found(context.qualified(), name))?;
    held(context, new, &rules)
}

fn may(context: &Context, verb: &str, resource: &str, name: &str) -> bool {
    let target =
        ResourceTarget { group: GROUP, resource, namespace: context.namespace(), name, ..ResourceTarget::default() };
    let attributes = Attributes { user: &context.user, verb, target: Target::Resource(target) };
    matches!(decide(&context.api, &attributes), Decision::Allowed(_))
}

/// Refuses rules that the user does not hold.
fn held(context: &Context, object: &Value, rules: &[Rule]) -> Result<(), Status> {
    let user = &context.user;
    let (owned, unresolved) = context.api.rbac.policy().rules_for(user, context.namespace());
    let missing = missing(&owned, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quote_list(&user.groups),
        missing.join("\n")
    );
    if !unresolved.is_empty() {
        why.push_str("; resolution errors: [");
        why.push_str(&unresolved);
        why.push(']');
    }
    Err(Status::forbidden(context.qualified(), object::name(object), why))
}
