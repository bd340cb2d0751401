//! Upstream's plugin NodeRestriction: a node writes its own Node, lease and pods, and nothing of other nodes.
//!
//! Mirrors `plugin/pkg/admission/noderestriction/admission.go`. The Node authorizer has let the request through by now;
//! this looks at what it writes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Act, certificates};
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::authz;
use crate::authz::node::{LEASE_NAMESPACE, MIRROR, identity};
use crate::context::Context;
use crate::field::quote;
use crate::rbac::Decision;
use crate::status::{Qualified, Status};
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _, semantically_equal};
use crate::{object, references};

/// Labels with these keys may be set by a kubelet, although they are Kubernetes' own.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// And so may labels whose keys have these prefixes, or one below them.
const KUBELET_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks a write if a node makes it.
pub(super) async fn admit(
    context: &Context,
    act: Act<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Status> {
    let Some(node) = identity(&context.user) else { return Ok(()) };
    // Boxed: few writes are nodes', and all would be as large as one that is.
    match Box::pin(judge(context, node, act, object, old)).await {
        Ok(()) => Ok(()),
        Err(Refusal::Forbidden(why)) => Err(Status::forbidden(context.qualified(), name(context, object), why)),
        Err(Refusal::Other(status)) => Err(*status),
    }
}

/// The name of what is written, as far as it is known.
fn name<'a>(context: &'a Context, object: Option<&'a Value>) -> &'a str {
    let written = object.map(|object| [object::name(object), object::text(object, "generateName")]);
    let names = [context.name()].into_iter().chain(written.into_iter().flatten());
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

enum Refusal {
    Forbidden(String),
    Other(Box<Status>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Other(Box::new(status))
    }
}

fn refuse(why: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal::Forbidden(why.into()))
}

async fn judge(
    context: &Context,
    node: &str,
    act: Act<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    static NOTHING: Value = Value::Null;
    if node.is_empty() {
        return refuse(format!("could not determine node from user {}", quote(&context.user.name)));
    }
    let (new, old) = (object.unwrap_or(&NOTHING), old.unwrap_or(&NOTHING));
    match (&*context.served.group, &*context.served.plural, context.subresource()) {
        ("", "pods", "") => match act {
            Act::Create(_) => create_pod(context, node, new).await,
            Act::Delete(_) if old.at("spec").text("nodeName") == node => Ok(()),
            Act::Delete(_) => {
                refuse(format!("node {} can only delete pods with spec.nodeName set to itself", quote(node)))
            }
            act => refuse(format!(
                "unexpected operation {}, node {} can only create and delete mirror pods",
                quote(act.operation()),
                quote(node)
            )),
        },
        ("", "pods", "status") => pod_status(node, new, old),
        ("", "pods", "eviction") => {
            let key = format!("/registry/pods/{}/{}", context.namespace(), context.name());
            if read(context, "pods", &key).await?.at("spec").text("nodeName") == node {
                return Ok(());
            }
            refuse(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        ("", "pods", other) => {
            refuse(format!("unexpected pod subresource {}, only 'status' and 'eviction' are allowed", quote(other)))
        }
        ("", "nodes", _) => own_node(context, node, act, new, old),
        ("", "persistentvolumeclaims", "status") => claim_status(node, new, old),
        ("", "persistentvolumeclaims", _) => refuse("may only update PVC status"),
        ("", "serviceaccounts", "token") if matches!(act, Act::Create(_)) => token(context, node, new).await,
        ("coordination.k8s.io", "leases", _) => {
            if context.namespace() != LEASE_NAMESPACE {
                return refuse(format!("can only access leases in the {} system namespace", quote(LEASE_NAMESPACE)));
            }
            if name(context, object) == node {
                return Ok(());
            }
            refuse("can only access node lease with the same name as the requesting node")
        }
        ("storage.k8s.io", "csinodes", _) => {
            if name(context, object) == node {
                return Ok(());
            }
            refuse("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => match act {
            Act::Create(_) if new.at("spec").text("nodeName") != node => {
                refuse("can only create ResourceSlice with the same NodeName as the requesting node")
            }
            Act::Delete(_) if old.at("spec").text("nodeName") != node => {
                refuse("can only delete ResourceSlice with the same NodeName as the requesting node")
            }
            _ => Ok(()),
        },
        ("certificates.k8s.io", "certificatesigningrequests", _) if matches!(act, Act::Create(_)) => signing(node, new),
        _ => Ok(()),
    }
}

async fn read(context: &Context, plural: &str, key: &str) -> Result<Value, Status> {
    let Some(entry) = context.api.store.get(key.as_bytes()).await.map_err(Status::internal)? else {
        let name = key.rsplit('/').next().unwrap_or_default();
        return Err(Status::not_found(Qualified { group: "", name: plural }, name));
    };
    stored::decode(&entry.value)
}

/// A node only creates pods that show what it runs on its own.
async fn create_pod(context: &Context, node: &str, pod: &Value) -> Result<(), Refusal> {
    let shown = quote(node);
    if pod.at("metadata").at("annotations").get(MIRROR).is_none() {
        return refuse(format!(
            "pod does not have {} annotation, node {shown} can only create mirror pods",
            quote(MIRROR)
        ));
    }
    if pod.at("spec").text("nodeName") != node {
        return refuse(format!("node {shown} can only create pods with spec.nodeName set to itself"));
    }
    let owner = match pod.at("metadata").list("ownerReferences") {
        [owner] => owner,
        [] => return refuse(format!("node {shown} can only create pods with an owner reference set to itself")),
        _ => return refuse(format!("node {shown} can only create pods with a single owner reference set to itself")),
    };
    if (owner.text("apiVersion"), owner.text("kind"), owner.text("name")) != ("v1", "Node", node) {
        return refuse(format!("node {shown} can only create pods with an owner reference set to itself"));
    }
    if !owner.flag("controller") {
        return refuse(format!("node {shown} can only create pods with a controller owner reference set to itself"));
    }
    if owner.flag("blockOwnerDeletion") {
        return refuse(format!("node {shown} must not set blockOwnerDeletion on an owner reference"));
    }
    let stored = read(context, "nodes", &format!("/registry/minions/{node}")).await?;
    let (claimed, uid) = (owner.text("uid"), object::text(&stored, "uid"));
    if claimed != uid {
        return refuse(format!("node {node} UID mismatch: expected {claimed} got {uid}"));
    }
    match api_reference(pod.at("spec")) {
        Some(what) => refuse(format!("node {shown} can not create pods that reference {what}")),
        None => Ok(()),
    }
}

/// What of the API a pod refers to: upstream's `HasAPIObjectReference`.
fn api_reference(spec: &Value) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    if references::secrets(spec).next().is_some() {
        return Some("secrets");
    }
    if references::config_maps(spec).next().is_some() {
        return Some("configmaps");
    }
    if !spec.list("resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    spec.list("volumes").iter().find_map(|volume| {
        let sources = [
            ("configMap", "configmaps (via configmap volumes)"),
            ("secret", "secrets (via secret volumes)"),
            ("csi", "csidrivers (via CSI volumes)"),
            ("glusterfs", "endpoints (via glusterFS volumes)"),
            ("persistentVolumeClaim", "persistentvolumeclaims"),
            ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
            ("azureFile", "secrets (via azureFile volumes)"),
        ];
        let projections = [
            ("configMap", "configmaps (via projected volumes)"),
            ("secret", "secrets (via projected volumes)"),
            ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
            ("clusterTrustBundle", "clustertrustbundles"),
            ("podCertificate", "podcertificates"),
        ];
        let projected = volume.at("projected").list("sources").iter();
        let of = |value: &Value, all: &[(&str, &'static str)]| {
            all.iter().find(|(field, _)| value.has(field)).map(|(_, what)| *what)
        };
        of(volume, &sources).or_else(|| projected.into_iter().find_map(|source| of(source, &projections)))
    })
}

fn pod_status(node: &str, new: &Value, old: &Value) -> Result<(), Refusal> {
    let shown = quote(node);
    if old.at("spec").text("nodeName") != node {
        return refuse(format!("node {shown} can only update pod status for pods with spec.nodeName set to itself"));
    }
    let changed = |part: &str, field: &str| !semantically_equal(new.at(part).at(field), old.at(part).at(field));
    if changed("metadata", "labels") {
        return refuse(format!("node {shown} cannot update labels through pod status"));
    }
    if changed("status", "resourceClaimStatuses") {
        return refuse(format!("node {shown} cannot update resource claim statues"));
    }
    if changed("status", "extendedResourceClaimStatus") {
        return refuse(format!("node {shown} cannot update extended resource claim status"));
    }
    Ok(())
}

fn claim_status(node: &str, new: &Value, old: &Value) -> Result<(), Refusal> {
    let stripped = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["resourceVersion", "managedFields"] {
            claim.struct_mut("metadata").drop_field(field);
        }
        for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
            claim.struct_mut("status").drop_field(field);
        }
        claim
    };
    if semantically_equal(&stripped(new), &stripped(old)) {
        return Ok(());
    }
    refuse(format!(
        "node {} is not allowed to update fields other than status.quantity and status.conditions",
        quote(node)
    ))
}

fn own_node(context: &Context, node: &str, act: Act<'_>, new: &Value, old: &Value) -> Result<(), Refusal> {
    let (shown, requested) = (quote(node), name(context, Some(new)));
    if requested != node {
        return refuse(format!("node {shown} is not allowed to modify node {}", quote(requested)));
    }
    let changed = |part: &str, field: &str| !semantically_equal(new.at(part).at(field), old.at(part).at(field));
    match act {
        Act::Create(_) => {
            if new.at("spec").has("configSource") {
                return refuse(format!("node {shown} is not allowed to create pods with a non-nil configSource"));
            }
            match forbidden_labels(new, old) {
                labels if labels.is_empty() => Ok(()),
                labels => {
                    refuse(format!("node {shown} is not allowed to set the following labels: {}", labels.join(", ")))
                }
            }
        }
        Act::Update(_) => {
            if new.at("spec").has("configSource") && changed("spec", "configSource") {
                return refuse(format!(
                    "node {shown} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if changed("spec", "taints") {
                return refuse(format!("node {shown} is not allowed to modify taints"));
            }
            if changed("metadata", "ownerReferences") {
                return refuse(format!("node {shown} is not allowed to modify ownerReferences"));
            }
            match forbidden_labels(new, old) {
                labels if labels.is_empty() => Ok(()),
                labels => refuse(format!("is not allowed to modify labels: {}", labels.join(", "))),
            }
        }
        _ => Ok(()),
    }
}

/// The changed labels that would let a node attract pods that are not meant for it.
fn forbidden_labels<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let (new, old) = (new.at("metadata").at("labels"), old.at("metadata").at("labels"));
    let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(|labels| labels.keys());
    let changed: BTreeSet<&str> = keys.map(String::as_str).filter(|key| new.at(key) != old.at(key)).collect();
    changed.into_iter().filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_below =
        |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_kubernetes = is_below("kubernetes.io") || is_below("k8s.io");
    let is_kubelets = KUBELET_LABELS.contains(&key) || KUBELET_PREFIXES.iter().any(|prefix| is_below(prefix));
    is_below("node-restriction.kubernetes.io") || (is_kubernetes && !is_kubelets)
}

/// A node asks for tokens for its pods only.
async fn token(context: &Context, node: &str, request: &Value) -> Result<(), Refusal> {
    let bound = request.at("spec").at("boundObjectRef");
    let is_pod = (bound.text("apiVersion"), bound.text("kind")) == ("v1", "Pod") && !bound.text("name").is_empty();
    if !is_pod {
        return refuse("node requested token not bound to a pod");
    }
    let uid = bound.text("uid");
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let key = format!("/registry/pods/{}/{}", context.namespace(), bound.text("name"));
    let pod = read(context, "pods", &key).await?;
    if object::text(&pod, "uid") != uid {
        return refuse(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod.at("spec").text("nodeName") != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match request.at("spec").texts("audiences")[..] {
        [] => "",
        [audience] => audience,
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if names_audience(context, &pod, audience).await {
        return Ok(());
    }
    let target = ResourceTarget {
        resource: audience,
        namespace: context.namespace(),
        name: context.name(),
        ..ResourceTarget::default()
    };
    let verb = "request-serviceaccounts-token-audience";
    let attributes = Attributes { user: &context.user, verb, target: Target::Resource(target) };
    match authz::decide(&context.api, &attributes) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(_) => {
            let user = &context.user.name;
            refuse(format!("{user} is not authorized to request tokens for audience {}", quote(audience)))
        }
    }
}

/// Whether a volume of a pod needs a token for an audience: a projection, or the driver of a CSI volume.
async fn names_audience(context: &Context, pod: &Value, audience: &str) -> bool {
    let stored = async |key: String| {
        let entry = context.api.store.get(key.as_bytes()).await.ok().flatten()?;
        stored::decode(&entry.value).ok()
    };
    for volume in pod.at("spec").list("volumes") {
        let mut projections =
            volume.at("projected").list("sources").iter().map(|source| source.at("serviceAccountToken"));
        if projections.any(|token| !token.is_null() && token.text("audience") == audience) {
            return true;
        }
        let claim = match volume.at("persistentVolumeClaim").text("claimName") {
            "" if volume.has("ephemeral") => format!("{}-{}", object::name(pod), volume.text("name")),
            claim => claim.to_owned(),
        };
        let mut driver = volume.at("csi").text("driver").to_owned();
        if !claim.is_empty()
            && let Some(claim) =
                stored(format!("/registry/persistentvolumeclaims/{}/{claim}", context.namespace())).await
            && let Some(volume) =
                stored(format!("/registry/persistentvolumes/{}", claim.at("spec").text("volumeName"))).await
        {
            volume.below(&["spec", "csi"]).text("driver").clone_into(&mut driver);
        }
        if !driver.is_empty()
            && let Some(driver) = stored(format!("/registry/csidrivers/{driver}")).await
            && driver.at("spec").list("tokenRequests").iter().any(|request| request.text("audience") == audience)
        {
            return true;
        }
    }
    false
}

/// A node asks for certificates of its own name only.
fn signing(node: &str, request: &Value) -> Result<(), Refusal> {
    let signer = request.at("spec").text("signerName");
    if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
        return Ok(());
    }
    let wanted = format!("system:node:{node}");
    match certificates::common_name(request.at("spec").text("request")) {
        None => refuse("unable to parse csr: asn1: syntax error"),
        Some(name) if name == wanted => Ok(()),
        Some(_) => refuse(format!("can only create a node CSR with CN={wanted}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_harmless_labels_are_the_nodes_own() {
        for key in
            ["own", "example.com/a", "kubernetes.io/hostname", "x.kubelet.kubernetes.io/a", "node.kubernetes.io/b"]
        {
            assert!(!is_forbidden(key), "{key}");
        }
        for key in [
            "node-restriction.kubernetes.io/a",
            "x.node-restriction.kubernetes.io/a",
            "foo.kubernetes.io/a",
            "k8s.io/a",
            "kubernetes.io/role",
        ] {
            assert!(is_forbidden(key), "{key}");
        }
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        let old = labels(json!({"k8s.io/kept": "1", "k8s.io/changed": "1", "k8s.io/gone": "1"}));
        let new = labels(json!({"k8s.io/kept": "1", "k8s.io/changed": "2", "k8s.io/new": "1"}));
        assert_eq!(forbidden_labels(&new, &old), ["k8s.io/changed", "k8s.io/gone", "k8s.io/new"]);
    }

    #[test]
    fn mirror_pods_refer_to_nothing() {
        let check = |spec: Value, expected: Option<&str>| assert_eq!(api_reference(&spec), expected, "{spec}");
        check(json!({"volumes": [{"emptyDir": {}}, {"projected": {"sources": [{"downwardAPI": {}}]}}]}), None);
        check(json!({"serviceAccountName": "a"}), Some("serviceaccounts"));
        check(json!({"volumes": [{"secret": {"secretName": "s"}}]}), Some("secrets"));
        check(json!({"volumes": [{"configMap": {}}]}), Some("configmaps (via configmap volumes)"));
        check(json!({"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}), Some("persistentvolumeclaims"));
        check(
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
            Some("serviceaccounts (via projected volumes)"),
        );
    }

    #[test]
    fn a_node_reports_on_its_own_pods() {
        let pod = |node: &str, label: &str| json!({"metadata": {"labels": {"a": label}}, "spec": {"nodeName": node}});
        let check = |new: &Value, old: &Value, expected: &str| match pod_status("n", new, old) {
            Err(Refusal::Forbidden(why)) => assert_eq!(why, expected),
            Err(Refusal::Other(status)) => panic!("{}", status.message),
            Ok(()) => assert_eq!(expected, ""),
        };
        check(&pod("n", "1"), &pod("n", "1"), "");
        check(&pod("n", "2"), &pod("n", "1"), "node \"n\" cannot update labels through pod status");
        check(
            &pod("o", "1"),
            &pod("o", "1"),
            "node \"n\" can only update pod status for pods with spec.nodeName set to itself",
        );
    }
}
