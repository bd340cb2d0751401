//! What an operator has made for itself in its namespace, which no manifest has: its Lease, and the Secret with the
//! certificates of its webhooks.
//!
//! Their names are in the operator's roles. An object of such a name is the operator's only if it also looks like what
//! the library makes; everything else stays.

use serde_json::{Value, json};

use super::apply;
use super::remove::has_pods;
use crate::output;

/// Where an operator may have made something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    kind: Kind,
    namespace: String,
    name: String,
    /// The Deployments whose pods may hold it.
    holders: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Secret,
    Lease,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Secret, Self::Lease];

    /// Group, version, kind and resource.
    fn names(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Secret => ("", "v1", "Secret", "secrets"),
            Self::Lease => ("coordination.k8s.io", "coordination.k8s.io/v1", "Lease", "leases"),
        }
    }
}

impl Candidate {
    fn path(&self) -> String {
        let (group, version, _, resource) = self.kind.names();
        let root = if group.is_empty() { "/api" } else { "/apis" };
        format!("{root}/{version}/namespaces/{}/{resource}/{}", self.namespace, self.name)
    }

    fn object(&self) -> Value {
        let (_, version, kind, _) = self.kind.names();
        json!({"apiVersion": version, "kind": kind, "metadata": {"namespace": self.namespace, "name": self.name}})
    }

    /// Whether the operator has made the object that was found.
    fn made(&self, found: &Value) -> bool {
        match self.kind {
            // Only the library keeps the key of the authority beside the certificate: cert-manager does not.
            Kind::Secret => {
                let has = |key: &str| found["data"][key].is_string();
                found["type"] == "kubernetes.io/tls" && ["ca.crt", "ca.key", "tls.crt", "tls.key"].into_iter().all(has)
            }
            // Released, or held by a pod that is gone: its name begins with that of its Deployment. An operator elsewhere,
            // as with `windlass run`, may still hold it.
            Kind::Lease => {
                let holder = found["spec"]["holderIdentity"].as_str().unwrap_or_default();
                let of = |name: &String| holder.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'));
                holder.is_empty() || self.holders.iter().any(of)
            }
        }
    }
}

/// What the operators among the manifests may make, as their roles say.
pub(crate) fn candidates(objects: &[Value], default_namespace: &str) -> Vec<Candidate> {
    let namespace = |object: &Value| object["metadata"]["namespace"].as_str().unwrap_or(default_namespace).to_owned();
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    for program in objects.iter().filter(|object| has_pods(object)) {
        let (place, name) = (namespace(program), text(&program["metadata"]["name"]));
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, names)) => names.push(name),
            None => places.push((place, vec![name])),
        }
    }
    let mut found = Vec::new();
    for (place, holders) in places {
        let roles = objects.iter().filter(|object| {
            object["kind"] == "ClusterRole" || (object["kind"] == "Role" && namespace(object) == place)
        });
        let rules: Vec<&Value> = roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()).collect();
        for kind in Kind::ALL {
            for name in names(&rules, kind) {
                let candidate = Candidate { kind, namespace: place.clone(), name, holders: holders.clone() };
                if !found.contains(&candidate) {
                    found.push(candidate);
                }
            }
        }
    }
    // What is in the manifests is deleted with them.
    found.retain(|candidate| {
        let (_, _, kind, _) = candidate.kind.names();
        !objects.iter().any(|object| {
            object["kind"] == kind
                && object["metadata"]["name"] == *candidate.name
                && namespace(object) == candidate.namespace
        })
    });
    found
}

/// The names of the objects that the rules let an operator create and update.
fn names(rules: &[&Value], kind: Kind) -> Vec<String> {
    let (group, _, _, resource) = kind.names();
    let has = |list: &Value, value: &str| list.as_array().is_some_and(|list| list.iter().any(|one| one == value));
    let about = |rule: &&&Value| has(&rule["apiGroups"], group) && has(&rule["resources"], resource);
    let named = |rule: &Value| rule["resourceNames"].as_array().is_some_and(|names| !names.is_empty());
    if !rules.iter().filter(about).any(|rule| has(&rule["verbs"], "create") && !named(rule)) {
        return Vec::new();
    }
    let updates = rules.iter().filter(about).filter(|rule| has(&rule["verbs"], "update"));
    updates.flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten()).map(text).collect()
}

/// The candidates that are there and were made by the operator, to be deleted.
pub(crate) async fn find(client: &kube::Client, candidates: Vec<Candidate>) -> Vec<Value> {
    let mut made = Vec::new();
    for candidate in candidates {
        match apply::get(client, &candidate.path()).await {
            Ok(Some(found)) if candidate.made(&found) => made.push(candidate.object()),
            Ok(Some(found)) if candidate.kind == Kind::Lease => {
                let holder = text(&found["spec"]["holderIdentity"]);
                output::note(format_args!("the Lease {} stays: {holder} holds it", candidate.name));
            }
            Ok(_) => {}
            // A user without the permission has not been promised anything about it.
            Err(error) => output::note(format_args!("it may be left: {}", output::with_causes(&error))),
        }
    }
    made
}

/// Leaves out what goes with a namespace that is deleted.
pub(crate) fn outside_of(mut candidates: Vec<Candidate>, deleted: &[Value]) -> Vec<Candidate> {
    candidates.retain(|candidate| {
        !deleted
            .iter()
            .any(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == *candidate.namespace)
    });
    candidates
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests() -> Vec<Value> {
        vec![
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pets-manager", "namespace": "zoo"}}),
            json!({"kind": "Role", "metadata": {"name": "pets", "namespace": "zoo"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["certs"], "verbs": ["get", "update"]},
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["password"], "verbs": ["get"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["pets"], "verbs": ["update"]},
            ]}),
            json!({"kind": "Role", "metadata": {"name": "other", "namespace": "elsewhere"}, "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["elsewhere"], "verbs": ["update"]},
            ]}),
        ]
    }

    fn names_of(objects: &[Value]) -> Vec<String> {
        candidates(objects, "default").iter().map(Candidate::path).collect()
    }

    #[test]
    fn roles_name_what_an_operator_makes() {
        let mut objects = manifests();
        let lease = "/apis/coordination.k8s.io/v1/namespaces/zoo/leases/pets";
        assert_eq!(names_of(&objects), ["/api/v1/namespaces/zoo/secrets/certs", lease]);
        // A Secret that the manifests have is theirs.
        objects.push(json!({"kind": "Secret", "metadata": {"name": "certs", "namespace": "zoo"}}));
        assert_eq!(names_of(&objects), [lease]);
        // An operator that may create none has made none.
        objects[1]["rules"][3]["verbs"] = json!(["get"]);
        assert!(names_of(&objects).is_empty());
        let namespace = json!({"kind": "Namespace", "metadata": {"name": "zoo"}});
        assert!(outside_of(candidates(&manifests(), "default"), &[namespace]).is_empty());
    }

    #[test]
    fn only_what_looks_made_by_the_operator_is_its_own() {
        let [secret, lease] = <[Candidate; 2]>::try_from(candidates(&manifests(), "default")).expect("both");
        let of = |keys: &[&str]| {
            let data: serde_json::Map<String, Value> =
                keys.iter().map(|key| ((*key).to_owned(), json!("eA=="))).collect();
            json!({"type": "kubernetes.io/tls", "data": data})
        };
        assert!(secret.made(&of(&["ca.crt", "ca.key", "tls.crt", "tls.key"])));
        // As cert-manager writes it.
        assert!(!secret.made(&of(&["ca.crt", "tls.crt", "tls.key"])));
        for (holder, expected) in
            [("", true), ("pets-manager-5d8f-x_00ff", true), ("pets-managerial-1_00ff", false), ("laptop_00ff", false)]
        {
            assert_eq!(lease.made(&json!({"spec": {"holderIdentity": holder}})), expected, "{holder}");
        }
    }
}
