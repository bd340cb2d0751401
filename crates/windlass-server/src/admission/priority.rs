//! Upstream's plugin Priority: a pod's priority comes from its class, and there is one default class at most.

use serde_json::{Value, json};

use super::{Act, refused};
use crate::codec::peek::Raw;
use crate::context::Context;
use crate::status::Status;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _};

/// The priority classes of a new cluster, and what they are for.
pub(crate) const SYSTEM_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// The priority of a pod comes from its class, or the default class, or is 0. A pod may repeat it, but not
/// contradict.
pub(super) async fn create(context: &Context, pod: &mut Value) -> Result<(), Status> {
    let name = pod.at("spec").text("priorityClassName").to_owned();
    let class = match name.as_str() {
        "" => default_class(context).await?.unwrap_or_else(|| json!({})),
        "system-cluster-critical" => json!({"value": 2_000_000_000}),
        "system-node-critical" => json!({"value": 2_000_001_000}),
        name => {
            let key = format!("/registry/priorityclasses/{name}");
            let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
                return Err(refused(context, pod, format!("no PriorityClass with name {name} was found")));
            };
            stored::decode(&entry.value)?
        }
    };
    let priority = class.int("value");
    if let Some(given) = pod.at("spec").int_opt("priority").filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        );
        return Err(refused(context, pod, why));
    }
    let policy = match class.text("preemptionPolicy") {
        "" => "PreemptLowerPriority",
        policy => policy,
    };
    if let Some(given) = pod.at("spec").text_opt("preemptionPolicy").filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(refused(context, pod, why));
    }
    let spec = pod.struct_mut("spec");
    spec.put("priority", priority);
    spec.put("preemptionPolicy", policy);
    if name.is_empty() && !class.at("metadata").text("name").is_empty() {
        spec.put("priorityClassName", class.at("metadata").text("name"));
    }
    Ok(())
}

/// A change may leave out what the pod was given.
pub(super) fn update(pod: &mut Value, live: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if live.at("spec").has(field) {
            pod.struct_mut("spec").fill(field, live.at("spec").at(field).clone());
        }
    }
}

/// Refuses a second default class.
pub(super) async fn validate(context: &Context, act: Act<'_>, object: &Value) -> Result<(), Status> {
    let is_class = (&*context.served.group, &*context.served.kind) == ("scheduling.k8s.io", "PriorityClass");
    if !is_class || !object.flag("globalDefault") {
        return Ok(());
    }
    let Some(default) = default_class(context).await? else { return Ok(()) };
    let name = default.at("metadata").text("name");
    let refuses = match act {
        Act::Create(_) => true,
        Act::Update(_) => name != object.at("metadata").text("name"),
        _ => false,
    };
    if refuses {
        let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
        return Err(refused(context, object, why));
    }
    Ok(())
}

/// The class that is the default, if one is; of several, the one with the lowest priority.
async fn default_class(context: &Context) -> Result<Option<Value>, Status> {
    let range = windlass_store::Range::prefix("/registry/priorityclasses/");
    let snapshot = context.api.store.range(range, None, 0).await.map_err(Status::internal)?;
    let is_default =
        |value: &[u8]| Raw::new(value).field("globalDefault").is_some_and(|field| field.bytes() == b"true");
    let defaults = snapshot.entries.iter().filter(|entry| is_default(&entry.value));
    Ok(defaults.filter_map(|entry| stored::decode(&entry.value).ok()).min_by_key(|class| class.int("value")))
}

/// Whether every cluster has a PriorityClass of this name.
pub(crate) fn is_system_class(name: &str) -> bool {
    SYSTEM_CLASSES.iter().any(|(known, ..)| *known == name)
}
