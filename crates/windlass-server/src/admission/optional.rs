//! Upstream's plugins that are off by default: what they change, and what they refuse.
//!
//! Each mirrors a directory of `plugin/pkg/admission`. Those that need a configuration file are not here, and PodNodeSelector
//! is without the part that comes from one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_kinds::strategy::pod::resources;

use super::{Act, namespace_key, no_namespace, refused};
use crate::admission_config::AdmissionPlugin;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authz;
use crate::codec::peek::Raw;
use crate::context::Context;
use crate::field::{FieldError, Path, aggregate, quote};
use crate::object;
use crate::rbac::Decision;
use crate::status::Status;
use crate::validation::access::{Access as _, AccessMut as _, semantically_equal};
use crate::validation::names;

/// The node selector of a namespace.
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The only topology that pods may have to be apart in.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The lists of containers of a pod, in the order in which upstream visits them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Creates the namespace of the request if there is none.
pub(super) async fn provide_namespace(context: &Context, object: &Value) -> Result<(), Status> {
    let (api, name) = (&context.api, context.namespace());
    if api.store.get(&namespace_key(name)).await.map_err(Status::internal)?.is_some() {
        return Ok(());
    }
    match (api.create_namespace)(Arc::clone(api), name.to_owned()).await {
        Err(status) if status.reason == "Forbidden" => Err(status),
        Err(status) if status.reason != "AlreadyExists" => Err(refused(context, object, status.message)),
        _ => Ok(()),
    }
}

/// Changes a new pod, before its priority is computed.
pub(super) async fn create(context: &Context, pod: &mut Value) -> Result<(), Status> {
    if context.runs(AdmissionPlugin::AlwaysPullImages) {
        pull_always(pod);
    }
    if !context.runs(AdmissionPlugin::PodNodeSelector) {
        return Ok(());
    }
    let selector = node_selector(context).await?;
    if conflicts(&selector, pod) {
        return Err(refused_selector(context, pod));
    }
    if !selector.is_empty() {
        let all = pod.struct_mut("spec").struct_mut("nodeSelector");
        for (key, value) in selector {
            all.put(&key, value);
        }
    }
    Ok(())
}

/// Changes a changed pod.
pub(super) fn update(context: &Context, pod: &mut Value, live: &Value) {
    if context.runs(AdmissionPlugin::AlwaysPullImages) && has_new_images(pod, live) {
        pull_always(pod);
    }
}

/// Lets a pod tolerate the taints of nodes that have the extended resources that it asks for.
pub(super) fn tolerate_resources(context: &Context, pod: &mut Value) {
    if !context.runs(AdmissionPlugin::ExtendedResourceToleration) {
        return;
    }
    let spec = pod.at("spec");
    let containers = spec.list("containers").iter().chain(spec.list("initContainers"));
    let requests = containers.flat_map(|container| container.at("resources").entries("requests"));
    let names = requests.map(|(name, _)| name.to_owned()).filter(|name| resources::is_extended(name));
    for name in names.collect::<BTreeSet<_>>() {
        tolerate(pod, &name);
    }
}

fn tolerate(pod: &mut Value, key: &str) {
    let toleration = json!({"key": key, "operator": "Exists", "effect": "NoSchedule"});
    let spec = pod.struct_mut("spec");
    let is_same =
        |known: &Value| ["key", "operator", "effect", "value"].iter().all(|f| known.text(f) == toleration.text(f));
    let mut is_known = false;
    for known in spec.items_mut("tolerations").iter_mut().filter(|known| is_same(known)) {
        *known = toleration.clone();
        is_known = true;
    }
    if !is_known {
        let mut all = spec.list("tolerations").to_vec();
        all.push(toleration.clone());
        spec.put("tolerations", all);
    }
}

fn pull_always(pod: &mut Value) {
    let Some(spec) = pod.child_mut("spec") else { return };
    for list in CONTAINERS {
        for container in spec.items_mut(list) {
            container.put("imagePullPolicy", "Always");
        }
    }
    for volume in spec.items_mut("volumes") {
        if let Some(image) = volume.child_mut("image") {
            image.put("pullPolicy", "Always");
        }
    }
}

/// Whether a pod has an image that it did not have before.
fn has_new_images(pod: &Value, live: &Value) -> bool {
    let images = |pod: &Value| -> BTreeSet<String> {
        let lists = CONTAINERS.iter().flat_map(|list| pod.at("spec").list(list));
        lists.map(|container| container.text("image").to_owned()).collect()
    };
    !images(pod).is_subset(&images(live))
}

/// Refuses what one of the plugins is against.
pub(super) async fn validate(
    context: &Context,
    act: Act<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    if context.runs(AdmissionPlugin::NamespaceExists) && context.served.namespaced && !matches!(act, Act::Connect) {
        let namespace = context.namespace();
        if context.api.store.get(&namespace_key(namespace)).await.map_err(Status::internal)?.is_none() {
            return Err(no_namespace(namespace));
        }
    }
    let (Some(object), Act::Create(_) | Act::Update(_)) = (object, act) else { return Ok(()) };
    match (&*context.served.group, &*context.served.plural, context.subresource()) {
        ("", "pods", "") => pod(context, act, object, old).await?,
        ("", "services", "") if context.runs(AdmissionPlugin::DenyServiceExternalIPs) => {
            let known = old.map(|old| old.at("spec").texts("externalIPs")).unwrap_or_default();
            if object.at("spec").texts("externalIPs").iter().any(|address| !known.contains(address)) {
                return Err(refused(context, object, "Use of external IPs is denied by admission control"));
            }
        }
        _ => {}
    }
    if context.runs(AdmissionPlugin::OwnerReferencesPermissionEnforcement) {
        owners(context, act, object, old).await?;
    }
    Ok(())
}

async fn pod(context: &Context, act: Act<'_>, pod: &Value, old: Option<&Value>) -> Result<(), Status> {
    if context.runs(AdmissionPlugin::LimitPodHardAntiAffinityTopology) {
        let terms = pod.below(&["spec", "affinity", "podAntiAffinity"]);
        let terms = terms.list("requiredDuringSchedulingIgnoredDuringExecution").iter();
        if let Some(key) = terms.map(|term| term.text("topologyKey")).find(|key| *key != HOSTNAME) {
            let why = format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
            );
            return Err(Status::forbidden(context.qualified(), object::name(pod), why));
        }
    }
    if context.runs(AdmissionPlugin::AlwaysPullImages) && old.is_none_or(|old| has_new_images(pod, old)) {
        // Upstream returns an aggregate, which is no Status.
        let problems: Vec<String> = unpulled(pod).iter().map(|why| refused(context, pod, why).message).collect();
        if !problems.is_empty() {
            return Err(Status::unclassified(aggregate(&problems)));
        }
    }
    if context.runs(AdmissionPlugin::PodNodeSelector)
        && matches!(act, Act::Create(_))
        && conflicts(&node_selector(context).await?, pod)
    {
        return Err(refused_selector(context, pod));
    }
    Ok(())
}

/// The images that a pod does not always pull.
fn unpulled(pod: &Value) -> Vec<FieldError> {
    let (mut found, root) = (Vec::new(), Path::new("spec"));
    let mut check = |path: &Path<'_>, policy: &str| {
        if policy != "Always" {
            found.push(FieldError::not_supported(path, policy, &["Always"]));
        }
    };
    for list in CONTAINERS {
        let path = root.child(list);
        for (i, container) in pod.at("spec").list(list).iter().enumerate() {
            check(&path.index(i).child("imagePullPolicy"), container.text("imagePullPolicy"));
        }
    }
    let path = root.child("volumes");
    for (i, volume) in pod.at("spec").list("volumes").iter().enumerate().filter(|(_, volume)| volume.has("image")) {
        check(&path.index(i).child("image").child("pullPolicy"), volume.at("image").text("pullPolicy"));
    }
    found
}

/// The labels that nodes of the namespace's pods have.
async fn node_selector(context: &Context) -> Result<BTreeMap<String, String>, Status> {
    let entry = context.api.store.get(&namespace_key(context.namespace())).await.map_err(Status::internal)?;
    let Some(entry) = entry else {
        return Err(Status::internal(format!("namespace {} does not exist", context.namespace())));
    };
    let annotation = Raw::new(&entry.value).path(&["metadata", "annotations", NODE_SELECTOR]);
    let text = annotation.and_then(|annotation| annotation.as_str()).unwrap_or_default();
    labels(&text).map_err(Status::unclassified)
}

/// Labels as `key=value,key=value`: `ConvertSelectorToLabelsMap` of `apimachinery/pkg/labels`.
fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut all = BTreeMap::new();
    for label in text.split(',').filter(|_| !text.is_empty()) {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = *parts else { return Err(format!("invalid selector: [{}]", parts.join(" "))) };
        let (key, value) = (key.trim(), value.trim());
        let problem = |path: &str, value: &str, reasons: names::Reasons| {
            (!reasons.is_empty()).then(|| format!("{path}: Invalid value: {}: {}", quote(value), reasons.join("; ")))
        };
        let wrong = problem("<nil>", key, names::qualified_name(key));
        if let Some(wrong) = wrong.or_else(|| problem(&format!("[{key}]"), value, names::label_value(value))) {
            return Err(wrong);
        }
        all.insert(key.to_owned(), value.to_owned());
    }
    Ok(all)
}

fn conflicts(selector: &BTreeMap<String, String>, pod: &Value) -> bool {
    let own = pod.at("spec").at("nodeSelector");
    selector.iter().any(|(key, value)| own.text_opt(key).is_some_and(|own| own != value))
}

fn refused_selector(context: &Context, pod: &Value) -> Status {
    let why = "pod node label selector conflicts with its namespace node label selector";
    Status::forbidden(context.qualified(), object::name(pod), why)
}

/// Refuses owners that the user may not give to the object.
async fn owners(context: &Context, act: Act<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let of = |object: &'_ Value| object.at("metadata").list("ownerReferences").to_vec();
    let (owners, known) = (of(object), old.map(of).unwrap_or_default());
    let is_status = (&*context.served.group, &*context.served.plural, context.subresource()) == ("", "pods", "status");
    let is_same = owners.len() == known.len() && owners.iter().zip(&known).all(|(a, b)| semantically_equal(a, b));
    if is_status || is_same {
        return Ok(());
    }
    if matches!(act, Act::Update(_)) {
        let target = ResourceTarget {
            group: &context.served.group,
            resource: &context.served.plural,
            subresource: context.subresource(),
            namespace: context.namespace(),
            name: context.name(),
            node: "",
        };
        if let Some(reason) = denied(context, "delete", target).await {
            let why = format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>");
            return Err(refused(context, object, why));
        }
    }
    let blocks = |owner: &&Value| owner.flag("blockOwnerDeletion");
    let was_blocked = |owner: &&Value| known.iter().filter(blocks).any(|known| known.text("uid") == owner.text("uid"));
    let blocked: Vec<&Value> = owners.iter().filter(blocks).filter(|owner| !was_blocked(owner)).collect();
    let anything =
        ResourceTarget { group: "*", resource: "*", subresource: "finalizers", name: "*", ..Default::default() };
    if blocked.is_empty() || denied(context, "update", anything).await.is_none() {
        return Ok(());
    }
    for owner in blocked {
        owner_may_be_kept(context, object, owner).await?;
    }
    Ok(())
}

/// Refuses to keep an owner whose finalizers the user may not set.
async fn owner_may_be_kept(context: &Context, object: &Value, owner: &Value) -> Result<(), Status> {
    let (api_version, kind) = (owner.text("apiVersion"), owner.text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let snapshot = context.api.catalog.snapshot();
    let is_owner = |resource: &&crate::resource::Resource| {
        (&*resource.group, &*resource.version, &*resource.kind) == (group, version, kind)
    };
    let found: Vec<(String, bool)> =
        snapshot.resources().filter(is_owner).map(|found| (found.plural.to_string(), found.namespaced)).collect();
    drop(snapshot);
    if found.is_empty() {
        let why = if version.contains('/') {
            format!("unexpected GroupVersion string: {api_version}")
        } else {
            format!("no matches for kind {} in version {}", quote(kind), quote(api_version))
        };
        let why = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind \
             {kind}: {why}"
        );
        return Err(refused(context, object, why));
    }
    for (resource, namespaced) in &found {
        let namespace = if *namespaced { context.namespace() } else { "" };
        let name = owner.text("name");
        let target = ResourceTarget { group, resource, subresource: "finalizers", namespace, name, node: "" };
        if let Some(reason) = denied(context, "update", target).await {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
                 {reason}, <nil>"
            );
            return Err(refused(context, object, why));
        }
    }
    Ok(())
}

/// Why the user may not do something; `None` if allowed.
async fn denied(context: &Context, verb: &str, target: ResourceTarget<'_>) -> Option<String> {
    let attributes = Attributes { user: &context.user, verb, target: Target::Resource(target) };
    match authz::decide_request(&context.api, &attributes).await {
        Decision::Allowed(_) => None,
        Decision::NoOpinion(reason) => Some(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_selectors_of_namespaces_are_parsed_as_upstream_does() {
        let check = |text: &str, expected: Result<&[(&str, &str)], &str>| {
            let found = labels(text);
            let found = found.as_ref().map(|all| all.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect::<Vec<_>>());
            assert_eq!(found.as_deref().map_err(|why| why.as_str()), expected, "{text:?}");
        };
        check("", Ok(&[]));
        check("env=test, zone = a", Ok(&[("env", "test"), ("zone", "a")]));
        check("env", Err("invalid selector: [env]"));
        check("a=b=c", Err("invalid selector: [a b c]"));
        check("a=b,", Err("invalid selector: []"));
        assert!(labels("a b=c").expect_err("no key").starts_with("<nil>: Invalid value: \"a b\": name part must"));
        assert!(labels("a=b c").expect_err("no value").starts_with("[a]: Invalid value: \"b c\": a valid label must"));
    }

    #[test]
    fn images_that_are_not_always_pulled_are_named() {
        let pod = json!({"spec": {
            "initContainers": [{"imagePullPolicy": "Never"}],
            "containers": [{"imagePullPolicy": "Always"}, {"imagePullPolicy": "IfNotPresent"}],
            "volumes": [{"name": "a"}, {"name": "b", "image": {"pullPolicy": "Never"}}],
        }});
        let found: Vec<String> = unpulled(&pod).iter().map(ToString::to_string).collect();
        let unsupported = |path: &str, policy: &str| {
            format!("spec.{path}: Unsupported value: \"{policy}\": supported values: \"Always\"")
        };
        assert_eq!(
            found,
            [
                unsupported("initContainers[0].imagePullPolicy", "Never"),
                unsupported("containers[1].imagePullPolicy", "IfNotPresent"),
                unsupported("volumes[1].image.pullPolicy", "Never"),
            ]
        );
        let mut pulled = pod.clone();
        pull_always(&mut pulled);
        assert!(unpulled(&pulled).is_empty(), "{pulled}");
    }
}
