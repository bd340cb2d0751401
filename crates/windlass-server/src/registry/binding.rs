//! `pods/binding`: a scheduler assigns a pod to a node.
//!
//! A Binding is never stored. What it says becomes part of the pod, whose strategy is not asked: neither upstream's
//! (`pkg/registry/core/pod/storage/storage.go`).

use serde_json::{Map, Value, json};

use super::strategy::pod;
use super::{Answer, Context, create, subresource, update};
use crate::admission::{self, Act};
use crate::codec::Expected;
use crate::field::{FieldErrors, quote};
use crate::object::{self, metadata_mut};
use crate::options::WriteOptions;
use crate::status::{Qualified, Status};
use crate::validation::access::{Access as _, AccessMut as _};

/// Conflicts of a pod's state with a Binding name the subresource.
const RESOURCE: Qualified<'static> = Qualified { group: "", name: "pods/binding" };

/// Assigns the pod that the body names to a node: `bindings` is `pods/binding` without the name in the path. Nor
/// does it know the uid as a precondition. Admission sees the resource of the request.
pub(crate) async fn bind_named(context: &mut Context) -> Result<Answer, Status> {
    bind_to(context, false).await
}

/// Assigns the pod that the path names to a node.
pub(super) async fn bind(context: &mut Context) -> Result<Answer, Status> {
    bind_to(context, true).await
}

/// `is_of_pod` says whether the path names the pod.
async fn bind_to(context: &mut Context, is_of_pod: bool) -> Result<Answer, Status> {
    let options = WriteOptions::parse(&context.query, "CreateOptions", false)?;
    let expected = Expected { group: "", version: "v1", kind: "Binding", custom: false };
    let mut binding = super::decode::view(context, expected, options.field_validation)?;
    if !is_of_pod {
        metadata_mut(&mut binding).remove("uid");
    }
    create::place(context, &mut binding)?;
    admission::mutate_view(context, Act::Create(&options), &mut binding, None).await?;
    if is_of_pod && object::name(&binding) != context.name() {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let mut errors = FieldErrors::default();
    pod::validate_binding(&binding, &mut errors);
    if !errors.is_empty() {
        return Err(Status::unclassified(errors.to_string()));
    }
    admission::validate(context, Act::Create(&options), Some(&binding), None).await?;
    if !is_of_pod {
        let pods = context.api.catalog.snapshot().find("", "v1", "pods").cloned();
        context.served = pods.ok_or_else(Status::no_such_resource)?;
        context.path.resource = "pods".into();
        context.path.name = Some(object::name(&binding).to_owned());
    }
    context.path.subresource = Some("binding".into());
    let now = object::time(context.now);
    let change = update::Change {
        transform: |context: &Context, live: &Value| {
            check_preconditions(context, &binding, live)?;
            check_unassigned(live)?;
            Ok(assigned(live, &binding, &now))
        },
        manager: None,
        options: &options,
        uid_is_precondition: false,
        admitted: update::Admitted::Already,
    };
    update::update(context, change).await?;
    Ok(subresource::created(context))
}

/// The uid and the version that a Binding names must be the pod's.
fn check_preconditions(context: &Context, binding: &Value, live: &Value) -> Result<(), Status> {
    for (field, name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (object::text(binding, field), object::text(live, field));
        if !wanted.is_empty() && wanted != found {
            let why = format!("Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {found}");
            return Err(update::failed_precondition(context, &why));
        }
    }
    Ok(())
}

/// A pod is assigned once, and only when it may be scheduled.
fn check_unassigned(live: &Value) -> Result<(), Status> {
    let (name, spec) = (object::name(live), live.at("spec"));
    let node = spec.text("nodeName");
    let why = if object::is_deleting(live) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !node.is_empty() {
        format!("pod {name} is already assigned to node {}", quote(node))
    } else if !spec.list("schedulingGates").is_empty() {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(Status::conflict(RESOURCE, name, why))
}

/// The pod on its node, with the labels and annotations of the Binding.
fn assigned(live: &Value, binding: &Value, now: &str) -> Value {
    let mut assigned = live.clone();
    assigned.struct_mut("spec").put("nodeName", binding.at("target").text("name"));
    for field in ["annotations", "labels"] {
        let given = binding.at("metadata").entries(field);
        if given.is_empty() {
            continue;
        }
        let all = metadata_mut(&mut assigned).entry(field).or_insert_with(|| Map::new().into());
        for (key, value) in given {
            all.put(key, value.clone());
        }
    }
    // Nor does anybody else take these away. The spec keeps what it has.
    pod::gates::drop_disabled(&mut assigned, live);
    if assigned.at("metadata").entries("annotations").is_empty() {
        metadata_mut(&mut assigned).remove("annotations");
    }
    let status = assigned.struct_mut("status");
    status.drop_field("nominatedNodeName");
    let mut conditions = status.list("conditions").to_vec();
    let mut scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
    match conditions.iter_mut().find(|condition| condition.text("type") == "PodScheduled") {
        Some(condition) => {
            if condition.text("status") == "True" {
                scheduled.copy_field("lastTransitionTime", condition);
            }
            *condition = scheduled;
        }
        None => conditions.push(scheduled),
    }
    status.put("conditions", conditions);
    assigned
}
