//! What nodes may do: upstream's Node authorizer.
//!
//! A node reads its own Node object and lease, the pods that are bound to it, and what those pods use: secrets,
//! ConfigMaps, claims with their volumes, service accounts. Everything else that nodes need is granted by fixed rules,
//! those of the ClusterRole `system:node`. Mirrors `plugin/pkg/auth/authorizer/node/node_authorizer.go`.
//!
//! Upstream keeps a graph of all objects that pods refer to. Here only the pods of each node are kept
//! ([`node_pods`](crate::node_pods)); what they refer to is looked up when a node asks for an object, in those of its pods
//! whose text contains the object's name.

use std::sync::LazyLock;

use memchr::memmem;
use serde_json::Value;

use super::bootstrap;
use crate::api::Api;
use crate::attributes::{Attributes, ResourceTarget, Target};
use crate::codec::peek::Raw;
use crate::field::quote;
use crate::rbac::{Decision, Rule};
use crate::references;
use crate::stored;
use crate::user::User;
use crate::validation::access::Access as _;

const GROUP: &str = "system:nodes";
const NAME_PREFIX: &str = "system:node:";
/// The namespace of the leases by which nodes show that they are alive.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The annotation of pods that a node shows but does not take from the API.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| bootstrap::rules_of("system:node"));

/// The node that a user is, if it is one. The name is empty where it is not known which.
pub(crate) fn identity(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(NAME_PREFIX)?;
    user.groups.iter().any(|group| group == GROUP).then_some(name)
}

/// What the authorizer says about a request: allowed, or why it has no opinion.
type Opinion = Result<(), String>;

/// What the node authorizer says to a request of the node `node`.
pub(super) async fn decide(api: &Api, node: &str, attributes: &Attributes<'_>) -> Decision {
    match opinion(api, node, attributes).await {
        Ok(()) => Decision::Allowed(String::new()),
        Err(reason) => Decision::NoOpinion(reason),
    }
}

async fn opinion(api: &Api, node: &str, attributes: &Attributes<'_>) -> Opinion {
    if node.is_empty() {
        return Err(format!("unknown node for user {}", quote(&attributes.user.name)));
    }
    let by_rule = || {
        let is_allowed = RULES.iter().any(|rule| rule.allows(attributes.verb, &attributes.target));
        is_allowed.then_some(()).ok_or_else(String::new)
    };
    let Target::Resource(target) = &attributes.target else { return by_rule() };
    let request = Request { api, node, verb: attributes.verb, target };
    match (target.group, target.resource) {
        ("", "secrets") => request.read(Wanted::Secret).await,
        ("", "configmaps") => request.read(Wanted::ConfigMap).await,
        ("", "persistentvolumeclaims") if target.subresource == "status" => request.claim_status().await,
        ("", "persistentvolumeclaims") => request.get(Wanted::Claim).await,
        ("", "persistentvolumes") => request.get(Wanted::Volume).await,
        ("resource.k8s.io", "resourceclaims") => request.get(Wanted::ResourceClaim).await,
        ("storage.k8s.io", "volumeattachments") => request.get(Wanted::OfNode("/registry/volumeattachments/")).await,
        ("", "serviceaccounts") => request.service_account().await,
        ("coordination.k8s.io", "leases") => request.lease(),
        ("storage.k8s.io", "csinodes") => request.csi_node(),
        ("resource.k8s.io", "resourceslices") => request.slice().await,
        ("", "nodes") => request.node(),
        ("", "pods") => request.pod().await,
        ("certificates.k8s.io", "podcertificaterequests") => Err(String::new()),
        _ => by_rule(),
    }
}

/// An object that has to be related to the node.
#[derive(Clone, Copy)]
enum Wanted {
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ResourceClaim,
    ServiceAccount,
    Pod,
    /// An object below this prefix whose `spec.nodeName` says which node it belongs to.
    OfNode(&'static str),
}

struct Request<'a> {
    api: &'a Api,
    node: &'a str,
    verb: &'a str,
    target: &'a ResourceTarget<'a>,
}

fn refuse(reason: &str) -> Opinion {
    Err(reason.to_owned())
}

impl Request<'_> {
    async fn read(&self, wanted: Wanted) -> Opinion {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !self.target.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if self.target.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.related(wanted).await
    }

    async fn get(&self, wanted: Wanted) -> Opinion {
        if self.verb != "get" {
            return refuse("can only get individual resources of this type");
        }
        if !self.target.subresource.is_empty() {
            return refuse("cannot get subresource");
        }
        self.related(wanted).await
    }

    async fn claim_status(&self) -> Opinion {
        if !matches!(self.verb, "update" | "patch") {
            return refuse("can only get/update/patch this type");
        }
        self.related(Wanted::Claim).await
    }

    async fn service_account(&self) -> Opinion {
        if self.verb == "get" && self.target.subresource.is_empty() {
            return self.read(Wanted::ServiceAccount).await;
        }
        if self.verb != "create" || self.target.name.is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        if self.target.subresource != "token" {
            return refuse("can only create token subresource of serviceaccount");
        }
        self.related(Wanted::ServiceAccount).await
    }

    fn lease(&self) -> Opinion {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return refuse("can only get, create, update, patch, or delete a node lease");
        }
        if self.target.namespace != LEASE_NAMESPACE {
            return Err(format!("can only access leases in the {} system namespace", quote(LEASE_NAMESPACE)));
        }
        // On create only admission knows the name.
        if self.verb != "create" && self.target.name != self.node {
            return refuse("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> Opinion {
        match self.target.subresource {
            "" if matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") => {}
            "" => return refuse("can only get, create, update, patch, or delete a CSINode"),
            "status" => return refuse("CSINode status access requires CSIVolumeHealth feature"),
            _ => return refuse("cannot authorize CSINode subresources"),
        }
        if self.verb != "create" && self.target.name != self.node {
            return refuse("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    async fn slice(&self) -> Opinion {
        if !self.target.subresource.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Wanted::OfNode("/registry/resourceslices/")).await,
            "watch" | "list" | "deletecollection" if self.target.node == self.node => Ok(()),
            "watch" | "list" | "deletecollection" => {
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn node(&self) -> Opinion {
        match (self.target.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.target.name {
                name if name == self.node => Ok(()),
                "" => Err(format!("node '{}' cannot read all nodes, only its own Node object", self.node)),
                name => Err(format!("node '{}' cannot read '{name}', only its own Node object", self.node)),
            },
            _ => refuse(""),
        }
    }

    async fn pod(&self) -> Opinion {
        match (self.target.subresource, self.verb) {
            ("", "get") => self.related(Wanted::Pod).await,
            ("", "list" | "watch") if self.target.node == self.node => Ok(()),
            ("", "list" | "watch") if !self.target.name.is_empty() => self.related(Wanted::Pod).await,
            ("", "list" | "watch") => refuse("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }

    /// Allows what is related to the node.
    async fn related(&self, wanted: Wanted) -> Opinion {
        if self.target.name.is_empty() {
            return refuse("No Object name found");
        }
        let (namespace, name) = (self.target.namespace, self.target.name);
        if self.is_related(wanted, namespace, name).await {
            return Ok(());
        }
        // The pod may have been bound a moment ago.
        if !matches!(wanted, Wanted::Pod | Wanted::OfNode(_)) {
            self.api.node_pods.catch_up().await;
            if self.is_related(wanted, namespace, name).await {
                return Ok(());
            }
        }
        Err(format!("no relationship found between node '{}' and this object", self.node))
    }

    async fn is_related(&self, wanted: Wanted, namespace: &str, name: &str) -> bool {
        match wanted {
            Wanted::Pod => self.is_of_node(&format!("/registry/pods/{namespace}/{name}")).await,
            Wanted::OfNode(prefix) => self.is_of_node(&format!("{prefix}{name}")).await,
            Wanted::Volume => {
                let Some(volume) = self.stored(&format!("/registry/persistentvolumes/{name}")).await else {
                    return false;
                };
                let claim = volume.at("spec").at("claimRef");
                self.is_used(Wanted::Claim, claim.text("namespace"), claim.text("name")).await
            }
            Wanted::Secret => {
                self.is_used(wanted, namespace, name).await || self.is_secret_of_volume(namespace, name).await
            }
            _ => self.is_used(wanted, namespace, name).await,
        }
    }

    async fn is_of_node(&self, key: &str) -> bool {
        let entry = self.api.store.get(key.as_bytes()).await.ok().flatten();
        let node = entry.as_ref().and_then(|entry| Raw::new(&entry.value).path(&["spec", "nodeName"])?.as_str());
        node.as_deref() == Some(self.node)
    }

    async fn stored(&self, key: &str) -> Option<Value> {
        let entry = self.api.store.get(key.as_bytes()).await.ok().flatten()?;
        stored::decode(&entry.value).ok()
    }

    /// Whether a pod of the node uses an object of its namespace.
    async fn is_used(&self, wanted: Wanted, namespace: &str, name: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        // The names of claims that are made for a pod begin with the pod's.
        let needle = if matches!(wanted, Wanted::Claim) { None } else { Some(memmem::Finder::new(name)) };
        for pod in self.api.node_pods.of(self.node, Some(namespace)).await {
            let key = format!("/registry/pods/{pod}");
            let Ok(Some(entry)) = self.api.store.get(key.as_bytes()).await else { continue };
            if needle.as_ref().is_some_and(|needle| needle.find(&entry.value).is_none()) {
                continue;
            }
            let Ok(pod) = stored::decode(&entry.value) else { continue };
            if is_bound(&pod, self.node) && uses(&pod, wanted, name) {
                return true;
            }
        }
        false
    }

    /// Whether a volume that a pod of the node uses needs a secret.
    async fn is_secret_of_volume(&self, namespace: &str, name: &str) -> bool {
        for key in self.api.node_pods.of(self.node, None).await {
            let Some(pod) = self.stored(&format!("/registry/pods/{key}")).await else { continue };
            if !is_bound(&pod, self.node) || is_mirror(&pod) {
                continue;
            }
            let local = pod.at("metadata").text("namespace");
            for claim in references::claims(pod.at("metadata").text("name"), pod.at("spec")) {
                let claim = self.stored(&format!("/registry/persistentvolumeclaims/{local}/{claim}")).await;
                let Some(volume) = claim.as_ref().map(|claim| claim.at("spec").text("volumeName")) else { continue };
                let volume = self.stored(&format!("/registry/persistentvolumes/{volume}")).await;
                if volume.is_some_and(|volume| references::volume_needs_secret(&volume, namespace, name)) {
                    return true;
                }
            }
        }
        false
    }
}

fn is_bound(pod: &Value, node: &str) -> bool {
    pod.at("spec").text("nodeName") == node
}

/// A node creates its mirror pods itself: what they name must not become readable by that.
fn is_mirror(pod: &Value) -> bool {
    pod.at("metadata").at("annotations").get(MIRROR).is_some()
}

fn uses(pod: &Value, wanted: Wanted, name: &str) -> bool {
    if is_mirror(pod) {
        return false;
    }
    let spec = pod.at("spec");
    match wanted {
        Wanted::Secret => references::secrets(spec).any(|used| used == name),
        Wanted::ConfigMap => references::config_maps(spec).any(|used| used == name),
        Wanted::Claim => references::claims(pod.at("metadata").text("name"), spec).any(|used| used == name),
        Wanted::ServiceAccount => spec.text("serviceAccountName") == name,
        Wanted::ResourceClaim => {
            let status = pod.at("status");
            let named = spec.list("resourceClaims").iter().map(|claim| claim.text("resourceClaimName"));
            let made = status.list("resourceClaimStatuses").iter().map(|claim| claim.text("resourceClaimName"));
            let extended = status.at("extendedResourceClaimStatus").text("resourceClaimName");
            named.chain(made).chain([extended]).any(|used| used == name)
        }
        Wanted::Volume | Wanted::Pod | Wanted::OfNode(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_known_by_name_and_group() {
        let user = |name: &str, groups: &[&str]| User::new(name, groups.iter().map(|group| (*group).to_owned()));
        assert_eq!(identity(&user("system:node:a", &[GROUP])), Some("a"));
        assert_eq!(identity(&user("system:node:", &[GROUP])), Some(""));
        assert_eq!(identity(&user("system:node:a", &[])), None);
        assert_eq!(identity(&user("jane", &[GROUP])), None);
    }

    #[test]
    fn pods_use_what_they_name() {
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "robot", "imagePullSecrets": [{"name": "s"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "rc"}],
                "volumes": [{"configMap": {"name": "c"}}, {"name": "v", "ephemeral": {}}],
            },
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made"}]},
        });
        let wanted = [
            (Wanted::Secret, "s"),
            (Wanted::ConfigMap, "c"),
            (Wanted::Claim, "p-v"),
            (Wanted::ServiceAccount, "robot"),
            (Wanted::ResourceClaim, "rc"),
            (Wanted::ResourceClaim, "p-made"),
        ];
        let mut mirror = pod.clone();
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        for (kind, name) in wanted {
            assert!(uses(&pod, kind, name), "{name}");
            assert!(!uses(&pod, kind, "other"), "{name}");
            assert!(!uses(&mirror, kind, name), "{name}");
        }
    }
}
