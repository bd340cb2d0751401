//! Fields that take more than the right to write their object: the parameters that an admission policy reads, and the
//! allocation and device status of a resource claim.
//!
//! Without these checks the writer of a policy could read any object by way of its expressions, and anybody who may
//! write the status of claims could hand out devices. Upstream's strategies do the same while they validate
//! (`pkg/registry/admissionregistration/*/authz.go`, `pkg/registry/resource/utils.go`), and refuse with a field error.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check, decide};
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::context::Context;
use crate::field::{FieldError, FieldErrors, Path};
use crate::rbac::Decision;
use crate::status::Status;
use crate::stored;
use crate::user::{NODE_NAME, User};
use crate::validation::access::{Access as _, semantically_equal};
use crate::validation::names;

/// The label of namespaces whose claims may have admin access to devices.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// Adds what the user of a request may not write to the `errors` that were found in an object. `old` is the object that
/// is replaced.
pub(crate) async fn check_fields(
    context: &Context,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) -> Result<(), Status> {
    match (&*context.served.group, &*context.served.plural, context.subresource()) {
        // Only what is well-formed says what is to be read.
        ("admissionregistration.k8s.io", _, _) if !errors.is_empty() => {}
        ("admissionregistration.k8s.io", "validatingadmissionpolicies" | "mutatingadmissionpolicies", "") => {
            errors.0.extend(param_kind(context, object, old));
        }
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
            "",
        ) => errors.0.extend(param_ref(context, object).await?),
        ("resource.k8s.io", "resourceclaims" | "resourceclaimtemplates", "") if old.is_none() => {
            let claim = if &*context.served.plural == "resourceclaims" { object } else { object.at("spec") };
            let refused = admin_access(context, requested_admin_access(claim)).await?;
            errors.0.splice(0..0, refused);
        }
        ("resource.k8s.io", "resourceclaims", "status") => {
            let refused = claim_status(context, object.at("status"), old.unwrap_or(&Value::Null).at("status")).await?;
            errors.0.splice(0..0, refused);
        }
        _ => {}
    }
    Ok(())
}

/// A policy may refer to a kind if its writer may read all objects of the kind.
fn param_kind(context: &Context, policy: &Value, old: Option<&Value>) -> Option<FieldError> {
    let kind = policy.at("spec").at("paramKind");
    if kind.is_null() || old.is_some_and(|old| old.at("spec").at("paramKind") == kind) {
        return None;
    }
    let resource = ParamResource::of(context, kind);
    let (group, resource) = (&*resource.group, &*resource.resource);
    let target = ResourceTarget { group, resource, namespace: "*", name: "*", ..ResourceTarget::default() };
    if is_allowed(context, "get", target) {
        return None;
    }
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(&context.user),
        kind.text("kind"),
        kind.text("apiVersion")
    );
    let spec = Path::new("spec");
    Some(FieldError::forbidden(&spec.child("paramKind"), why))
}

/// A binding may refer to objects that its writer may read. Checked on every write, changed or not: upstream compares
/// pointers, which are never the same.
async fn param_ref(context: &Context, binding: &Value) -> Result<Option<FieldError>, Status> {
    let spec = binding.at("spec");
    let reference = spec.at("paramRef");
    if reference.is_null() {
        return Ok(None);
    }
    let name = spec.text("policyName");
    let policy = policy(context, name).await?;
    let kind = policy.as_ref().map_or(&Value::Null, |policy| policy.at("spec").at("paramKind"));
    let resource = ParamResource::of(context, kind);
    let verb = if reference.text("name").is_empty() { "list" } else { "get" };
    let target = ResourceTarget {
        group: &resource.group,
        resource: &resource.resource,
        subresource: "",
        namespace: reference.text("namespace"),
        name: reference.text("name"),
        node: "",
    };
    if is_allowed(context, verb, target) {
        return Ok(None);
    }
    let user = shown(&context.user);
    let all = format!("user {user} does not have \"{verb}\" permission for all groups, versions and resources");
    let kind = format!("&{{{} {}}}", kind.text("apiVersion"), kind.text("kind"));
    let why = match resource.known {
        _ if policy.is_none() => {
            format!("unable to get policy {name} to determine minimum required permissions and {all}")
        }
        Known::Nothing => {
            format!("unable to parse paramKind {kind} to determine minimum required permissions and {all}")
        }
        Known::Group => {
            format!("unable to resolve paramKind {kind} to determine minimum required permissions and {all}")
        }
        // Upstream has the two the wrong way round (`mutatingadmissionpolicybinding/authz.go`).
        Known::Resource if &*context.served.plural == "mutatingadmissionpolicybindings" => {
            format!("user {verb} does not have \"{user}\" permission on the object referenced by paramRef")
        }
        Known::Resource => {
            format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef")
        }
    };
    let spec = Path::new("spec");
    Ok(Some(FieldError::forbidden(&spec.child("paramRef"), why)))
}

/// The policy that a binding names.
async fn policy(context: &Context, name: &str) -> Result<Option<Value>, Status> {
    let plural = match &*context.served.plural {
        "mutatingadmissionpolicybindings" => "mutatingadmissionpolicies",
        _ => "validatingadmissionpolicies",
    };
    let served = context.api.catalog.snapshot().find(&context.served.group, "v1", plural).cloned();
    let Some(served) = served else { return Ok(None) };
    let entry = context.api.store.get(served.key("", name).as_bytes()).await.map_err(Status::internal)?;
    entry.map(|entry| stored::decode(&entry.value)).transpose()
}

/// The resource of a kind that a policy has parameters of, as far as it is known. The rest is everything.
struct ParamResource {
    group: String,
    resource: String,
    known: Known,
}

#[derive(Clone, Copy)]
enum Known {
    Nothing,
    Group,
    Resource,
}

impl ParamResource {
    fn of(context: &Context, kind: &Value) -> Self {
        let all = || "*".to_owned();
        if kind.is_null() {
            return Self { group: all(), resource: all(), known: Known::Resource };
        }
        let api_version = kind.text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.contains('/') {
            return Self { group: all(), resource: all(), known: Known::Nothing };
        }
        let snapshot = context.api.catalog.snapshot();
        let is_kind = |served: &&crate::resource::Resource| {
            (&*served.group, &*served.version, &*served.kind) == (group, version, kind.text("kind"))
        };
        let (resource, known) = match snapshot.resources().find(is_kind) {
            Some(served) => (served.plural.to_string(), Known::Resource),
            None => (all(), Known::Group),
        };
        Self { group: group.to_owned(), resource, known }
    }
}

/// Where a claim asks for admin access.
fn requested_admin_access(claim: &Value) -> Option<String> {
    let requests = claim.below(&["spec", "devices"]).list("requests");
    let i = requests.iter().position(|request| request.at("exactly").flag("adminAccess"))?;
    Some(format!("spec.devices.requests[{i}].adminAccess"))
}

/// Where an allocation gives admin access.
fn given_admin_access(status: &Value) -> Option<String> {
    let results = status.below(&["allocation", "devices"]).list("results");
    let i = results.iter().position(|result| result.flag("adminAccess"))?;
    Some(format!("status.allocation.devices.results[{i}].adminAccess"))
}

/// Admin access takes a namespace that is labelled for it.
async fn admin_access(context: &Context, path: Option<String>) -> Result<Option<FieldError>, Status> {
    let Some(path) = path else { return Ok(None) };
    let key = format!("/registry/namespaces/{}", context.namespace());
    let entry = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)?;
    let namespace = entry.map(|entry| stored::decode(&entry.value)).transpose()?.unwrap_or_default();
    if namespace.below(&["metadata", "labels"]).text(ADMIN_ACCESS) == "true" {
        return Ok(None);
    }
    let why = format!("admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace");
    Ok(Some(FieldError::forbidden(&Path::new(&path), why)))
}

/// The status of a claim: who allocates it binds it, and each driver reports on its own devices.
async fn claim_status(context: &Context, new: &Value, old: &Value) -> Result<Vec<FieldError>, Status> {
    let mut refused = Vec::new();
    if given_admin_access(old).is_none() {
        refused.extend(admin_access(context, given_admin_access(new)).await?);
    }
    let same = |field: &str| semantically_equal(new.at(field), old.at(field));
    if !(same("allocation") && same("reservedFor")) {
        refused.extend(binding(context));
    }
    if new.has("allocation") {
        refused.extend(devices(context, new, old));
    }
    Ok(refused)
}

fn binding(context: &Context) -> Option<FieldError> {
    let target = ResourceTarget { subresource: "binding", namespace: "", name: "", ..claim_target(context) };
    let verb = context.verb.as_str();
    let why = allowed(context, verb, target).err()?.message;
    let why = format!(
        "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
         verb=\"{verb}\" permission: {why}"
    );
    let status = Path::new("status");
    Some(FieldError::forbidden(&status.child("allocation"), why))
}

fn devices(context: &Context, new: &Value, old: &Value) -> Vec<FieldError> {
    let verb = context.verb.as_str();
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if runs_on(&context.user, allocated_node(new.at("allocation"))) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    let status = Path::new("status");
    let path = status.child("devices");
    let refuse = |driver: &str| {
        let target = ResourceTarget { subresource: "driver", name: driver, ..claim_target(context) };
        let mut refusals = Vec::new();
        for verb in &verbs {
            match allowed(context, verb, target) {
                Ok(()) => return None,
                Err(status) => refusals.push(status.message),
            }
        }
        let why = format!(
            "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
            verbs.join(" "),
            refusals.first().map_or("", String::as_str)
        );
        Some(FieldError::forbidden(&path, why))
    };
    changed_drivers(new, old).into_iter().filter_map(refuse).collect()
}

/// The drivers of devices whose status is added, changed or gone.
fn changed_drivers<'v>(new: &'v Value, old: &'v Value) -> BTreeSet<&'v str> {
    let id = |device: &'v Value| ["driver", "pool", "device", "shareID"].map(|field| device.text(field));
    let differs = |device: &&'v Value, others: &'v Value| {
        let other = others.list("devices").iter().find(|other| id(other) == id(device));
        other.is_none_or(|other| !semantically_equal(other, device))
    };
    let added = new.list("devices").iter().filter(|device| differs(device, old));
    let gone = old.list("devices").iter().filter(|device| differs(device, new));
    added.chain(gone).map(|device| device.text("driver")).collect()
}

/// The one node that an allocation is for.
fn allocated_node(allocation: &Value) -> Option<&str> {
    let [term] = allocation.at("nodeSelector").list("nodeSelectorTerms") else { return None };
    let ([], [field]) = (term.list("matchExpressions"), term.list("matchFields")) else { return None };
    match (field.text("key"), field.text("operator"), &*field.texts("values")) {
        ("metadata.name", "In", [node]) => Some(node),
        _ => None,
    }
}

/// Whether a user is a service account whose pod runs on a node.
fn runs_on(user: &User, node: Option<&str>) -> bool {
    let is_account = user.name.starts_with("system:serviceaccount:");
    match (node, user.extra.get(NODE_NAME).map(Vec::as_slice)) {
        (Some(node), Some([own])) => is_account && own == node && names::is_subdomain(own),
        _ => false,
    }
}

fn claim_target(context: &Context) -> ResourceTarget<'_> {
    ResourceTarget::of_path(&context.path, context.name())
}

fn allowed(context: &Context, verb: &str, target: ResourceTarget<'_>) -> Result<(), Status> {
    check(&context.api, &Attributes { user: &context.user, verb, target: Target::Resource(target) })
}

fn is_allowed(context: &Context, verb: &str, target: ResourceTarget<'_>) -> bool {
    let attributes = Attributes { user: &context.user, verb, target: Target::Resource(target) };
    matches!(decide(&context.api, &attributes), Decision::Allowed(_))
}

/// A user as Go's `%v` prints one.
fn shown(user: &User) -> String {
    let mut extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    extra.sort();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
