//! Pods that have a node: upstream's plugins PodTopologyLabels, PodResizeValidator and NodeDeclaredFeatureValidator.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::Act;
use crate::admission_config::AdmissionPlugin;
use crate::codec::peek::Raw;
use crate::codec::quantity::Quantity;
use crate::context::Context;
use crate::field::quote;
use crate::object::{self, metadata_mut};
use crate::quota::{Amounts, add, amounts, together};
use crate::status::{Cause, Status};
use crate::stored;
use crate::validation::access::{Access as _, semantically_equal};
use windlass_kinds::strategy::pod::resources;

/// The labels of a node that its pods get.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Gives a new pod that names its node the topology labels of that node.
pub(super) async fn label_pod(context: &Context, pod: &mut Value) -> Result<(), Status> {
    let node = pod.at("spec").text("nodeName").to_owned();
    label(context, &node, pod).await
}

/// Gives a Binding the topology labels of its node; from there they get to the pod.
pub(super) async fn label_binding(context: &Context, binding: &mut Value) -> Result<(), Status> {
    let target = binding.at("target");
    let node = if target.text("kind") == "Node" { target.text("name").to_owned() } else { String::new() };
    label(context, &node, binding).await
}

async fn label(context: &Context, node: &str, object: &mut Value) -> Result<(), Status> {
    if node.is_empty() {
        return Ok(());
    }
    let key = format!("/registry/minions/{node}");
    let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else { return Ok(()) };
    let Some(labels) = Raw::new(&entry.value).path(&["metadata", "labels"]) else { return Ok(()) };
    for key in TOPOLOGY {
        if let Some(value) = labels.field(key).and_then(|value| value.to_value()) {
            let all = metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
            all[key] = value;
        }
    }
    Ok(())
}

/// Refuses a change of a pod that its node has no room for or does not support.
pub(super) async fn validate(context: &Context, act: Act<'_>, pod: &Value, old: Option<&Value>) -> Result<(), Status> {
    let is_pod = (&*context.served.group, &*context.served.plural) == ("", "pods");
    let (true, Act::Update(_), Some(old), "" | "resize") = (is_pod, act, old, context.subresource()) else {
        return Ok(());
    };
    // The generation grows with every change of the spec.
    let node_name = pod.at("spec").text("nodeName");
    if node_name.is_empty() || pod.at("metadata").int("generation") == old.at("metadata").int("generation") {
        return Ok(());
    }
    let runs_features = context.runs(AdmissionPlugin::NodeDeclaredFeatureValidator);
    let needed = if runs_features { needed_features(pod.at("spec"), old.at("spec")) } else { Vec::new() };
    let is_resize = context.subresource() == "resize" && context.runs(AdmissionPlugin::PodResizeValidator);
    if needed.is_empty() && !is_resize {
        return Ok(());
    }
    let refused = |why: String| Status::forbidden(context.qualified(), object::name(pod), why);
    let key = format!("/registry/minions/{node_name}");
    let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
        return Err(refused(format!("node {} not found", quote(node_name))));
    };
    let node = stored::decode(&entry.value)?;
    let declared = node.at("status").texts("declaredFeatures");
    let missing: Vec<&str> = needed.into_iter().filter(|feature| !declared.contains(feature)).collect();
    if !missing.is_empty() {
        let (missing, node_name) = (missing.join(", "), quote(node_name));
        return Err(refused(format!(
            "pod update requires features {missing} which are not available on node {node_name}"
        )));
    }
    if !is_resize {
        return Ok(());
    }
    check_resize(pod, &node).map_err(|(reason, why)| {
        let mut status = refused(why);
        let cause = Cause { reason: reason.to_owned(), message: String::new(), field: String::new() };
        status.details.get_or_insert_default().causes.push(cause);
        status
    })
}

/// What a node must declare so that a pod on it may change in this way, sorted.
fn needed_features(spec: &Value, old: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if !semantically_equal(spec.at("resources"), old.at("resources")) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let pairs = old.list("initContainers").iter().zip(spec.list("initContainers"));
    let is_resized = |(old, new): (&Value, &Value)| {
        old.text("restartPolicy") != "Always" && !semantically_equal(old.at("resources"), new.at("resources"))
    };
    if pairs.into_iter().any(is_resized) {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    needed
}

/// Why a node cannot take a pod of this size, and the reason of the cause.
fn check_resize(pod: &Value, node: &Value) -> Result<(), (&'static str, String)> {
    let (name, system) = (object::name(node), node.at("metadata").at("labels").text_opt("kubernetes.io/os"));
    if let Some(system) = system.filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {} is {}", quote(name), quote(system));
        return Err(("UnsupportedPlatform", why));
    }
    let (requests, allocatable) = (requests(pod), amounts(node.at("status"), "allocatable"));
    let zero = Quantity::from_int(0);
    let of = |all: &Amounts, name: &str| all.get(name).copied().unwrap_or(zero);
    let mut short = Vec::new();
    for (name, unit) in [("cpu", Quantity::milli_value as fn(&Quantity) -> i128), ("memory", Quantity::value)] {
        let (wanted, there) = (of(&requests, name), of(&allocatable, name));
        if wanted.cmp(&there) == Ordering::Greater {
            short.push(format!("{name}, requested: {}, allocatable: {}", unit(&wanted), unit(&there)));
        }
    }
    if short.is_empty() {
        return Ok(());
    }
    Err(("NodeCapacity", format!("node didn't have enough allocatable resources: {}", short.join("; "))))
}

/// What the spec of a pod asks for, whatever its status says.
fn requests(pod: &Value) -> Amounts {
    let spec = pod.at("spec");
    let mut total = together(pod, |container| amounts(container.at("resources"), "requests"));
    let whole = amounts(spec.at("resources"), "requests");
    total.extend(whole.into_iter().filter(|(name, _)| resources::is_pod_level(name)));
    add(&mut total, amounts(spec, "overhead"));
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_must_fit_onto_the_node() {
        let check = |cpu: &str, memory: &str, expected: Result<(), (&'static str, &str)>| {
            let requests = json!({"requests": {"cpu": cpu, "memory": memory}});
            let pod = json!({"spec": {"containers": [{"resources": requests}, {"resources": {"requests": {"cpu": "1"}}}],
                "overhead": {"memory": "1Ki"}}});
            let node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}},
                "status": {"allocatable": {"cpu": "2", "memory": "1Mi"}}});
            let found = check_resize(&pod, &node);
            let found = found.as_ref().map_err(|(reason, why)| (*reason, why.as_str()));
            assert_eq!(found.copied(), expected);
        };
        check("1", "1023Ki", Ok(()));
        let why = "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000";
        check("1001m", "1Ki", Err(("NodeCapacity", why)));
        let both = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, \
                    requested: 1049600, allocatable: 1048576";
        check("2", "1Mi", Err(("NodeCapacity", both)));
    }

    #[test]
    fn only_linux_nodes_resize_pods() {
        let node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": "windows"}}});
        let why = "pod resize is only supported on linux nodes, node \"n\" is \"windows\"".to_owned();
        assert_eq!(check_resize(&json!({}), &node), Err(("UnsupportedPlatform", why)));
    }

    #[test]
    fn some_changes_need_what_nodes_declare() {
        let check = |old: Value, new: Value, expected: &[&str]| assert_eq!(needed_features(&new, &old), expected);
        let one = json!({"requests": {"cpu": "1"}});
        check(json!({}), json!({}), &[]);
        check(json!({}), json!({"resources": one}), &["InPlacePodLevelResourcesVerticalScaling"]);
        let init = |policy: &str, resources: &Value| json!({"initContainers": [{"name": "i", "restartPolicy": policy, "resources": resources}]});
        check(init("Always", &json!({})), init("Always", &one), &[]);
        check(init("", &json!({})), init("", &one), &["InPlacePodVerticalScalingInitContainers"]);
    }
}
