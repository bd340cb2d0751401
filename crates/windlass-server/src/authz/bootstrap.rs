//! Roles and bindings that every cluster has, as tools and operators expect them.
//!
//! The table is `facts/rbac-1.36.json`. What is missing is written in one transaction when the server starts,
//! what lost something gets it back, and what says that it is not to be touched is not: see [`reconcile`].

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_store::{Entry, Expect, Range, StoreError, TxnResult, Write};

use super::reconcile::{self, Verdict};
use crate::api::Api;
use crate::object;
use crate::rbac::{GROUP, Kind, Rule};
use crate::state::contention::Attempts;
use crate::stored;

static FACTS: &str = include_str!("../../facts/rbac-1.36.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    cluster_roles: BTreeMap<String, RoleFacts>,
    roles: BTreeMap<String, RoleFacts>,
    cluster_role_bindings: BTreeMap<String, BindingFacts>,
    role_bindings: BTreeMap<String, BindingFacts>,
}

#[derive(Deserialize)]
struct RoleFacts {
    /// Labels that make aggregated roles gather this one, without their prefix.
    #[serde(default)]
    labels: Vec<String>,
    /// The label by which this role gathers others.
    aggregates: Option<String>,
    rules: Vec<Value>,
}

#[derive(Deserialize)]
struct BindingFacts {
    kind: String,
    role: String,
    /// `Kind:name`, or `ServiceAccount:namespace/name`.
    subjects: Vec<String>,
}

/// The rules that a default ClusterRole has.
pub(super) fn rules_of(role: &str) -> Vec<Rule> {
    let mut facts: Facts = serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    let rules = facts.cluster_roles.remove(role).map(|role| role.rules).unwrap_or_default();
    rules.iter().map(Rule::from_value).collect()
}

/// Makes roles and bindings what they have to be at least.
pub(crate) async fn ensure_defaults(api: &Api) -> Result<(), StoreError> {
    let objects: Vec<(Bytes, Value)> = objects().into_iter().map(|(key, object)| (key.into(), object)).collect();
    let mut attempts = Attempts::begin();
    loop {
        let mut there: HashMap<Bytes, Entry> = HashMap::new();
        for kind in Kind::ALL {
            let snapshot = api.store.range(Range::prefix(kind.prefix()), None, 0).await?;
            there.extend(snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)));
        }
        let writes: Vec<Write> =
            objects.iter().filter_map(|(key, object)| write(key, object, there.get(key))).collect();
        if writes.is_empty() {
            return Ok(());
        }
        // What was deleted is made anew in the next round. A conflict means that another client writes it.
        let again = writes.iter().any(|write| matches!(write, Write::Delete { .. }));
        if matches!(api.store.txn(writes).await?, TxnResult::Committed { .. }) && !again {
            return Ok(());
        }
        if !attempts.again() {
            break;
        }
    }
    tracing::warn!("default roles could not be restored: another client keeps changing them");
    Ok(())
}

/// What has to be written for an object to be as it should.
fn write(key: &Bytes, wanted: &Value, entry: Option<&Entry>) -> Option<Write> {
    let key = key.clone();
    let Some(entry) = entry else {
        return Some(Write::Put { key, expect: Expect::Absent, value: stored::encode(wanted) });
    };
    let there = match stored::decode(&entry.value) {
        Ok(there) => there,
        Err(error) => {
            tracing::error!(key = %String::from_utf8_lossy(&key), %error, "a default role cannot be read");
            return None;
        }
    };
    let expect = Expect::At(entry.modified);
    match reconcile::verdict(&there, wanted) {
        Verdict::Keep => None,
        Verdict::Change(object) => Some(Write::Put { key, expect, value: stored::encode(&object) }),
        Verdict::Replace => Some(Write::Delete { key, expect, last: None }),
    }
}

/// Every object with its key.
fn objects() -> Vec<(String, Value)> {
    let facts: Facts = serde_json::from_str(FACTS).expect("invariant: the embedded facts table is well-formed");
    let now = object::time(jiff::Timestamp::now());
    let mut out = Vec::new();
    let roles = facts.cluster_roles.into_iter().map(|role| (Kind::ClusterRole, role));
    for (kind, (name, facts)) in roles.chain(facts.roles.into_iter().map(|role| (Kind::Role, role))) {
        let mut object = base(kind, &name, &now);
        for label in &facts.labels {
            object["metadata"]["labels"][format!("{GROUP}/{label}")] = "true".into();
        }
        if let Some(label) = &facts.aggregates {
            let labels = Map::from_iter([(format!("{GROUP}/{label}"), "true".into())]);
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
        }
        // A controller gathers the rules of an aggregated role.
        object["rules"] = if facts.aggregates.is_some() { Value::Null } else { facts.rules.into() };
        out.push((format!("{}{name}", kind.prefix()), object));
    }
    let bindings = facts.cluster_role_bindings.into_iter().map(|binding| (Kind::ClusterRoleBinding, binding));
    for (kind, (name, facts)) in bindings.chain(facts.role_bindings.into_iter().map(|b| (Kind::RoleBinding, b))) {
        let mut object = base(kind, &name, &now);
        object["roleRef"] = json!({"apiGroup": GROUP, "kind": facts.kind, "name": facts.role});
        if !facts.subjects.is_empty() {
            object["subjects"] = facts.subjects.iter().map(|text| subject(text)).collect();
        }
        out.push((format!("{}{name}", kind.prefix()), object));
    }
    out
}

fn base(kind: Kind, name: &str, now: &str) -> Value {
    let mut metadata = json!({
        "name": name, "uid": object::new_uid(), "creationTimestamp": now,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    });
    if let Some((namespace, name)) = name.split_once('/') {
        metadata["namespace"] = namespace.into();
        metadata["name"] = name.into();
    }
    json!({"kind": kind.name(), "apiVersion": format!("{GROUP}/v1"), "metadata": metadata})
}

fn subject(text: &str) -> Value {
    let (kind, name) = text.split_once(':').unwrap_or(("User", text));
    match (kind, name.split_once('/')) {
        ("ServiceAccount", Some((namespace, name))) => json!({"kind": kind, "name": name, "namespace": namespace}),
        _ => json!({"kind": kind, "apiGroup": GROUP, "name": name}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::access::Access as _;

    #[test]
    fn bindings_and_aggregations_name_roles_of_the_table() {
        let facts: Facts = serde_json::from_str(FACTS).expect("well-formed");
        let names = |roles: &BTreeMap<String, RoleFacts>| roles.keys().cloned().collect::<Vec<_>>();
        let (cluster, local) = (names(&facts.cluster_roles), names(&facts.roles));
        for (name, binding) in facts.cluster_role_bindings.iter().chain(&facts.role_bindings) {
            let namespace = name.split_once('/').map(|(namespace, _)| namespace);
            let there = match (&*binding.kind, namespace) {
                ("Role", Some(namespace)) => local.contains(&format!("{namespace}/{}", binding.role)),
                (kind, _) => kind == "ClusterRole" && cluster.contains(&binding.role),
            };
            assert!(there, "{name} is to {} {}", binding.kind, binding.role);
        }
        for (name, role) in &facts.cluster_roles {
            let Some(label) = &role.aggregates else { continue };
            let gathered = facts.cluster_roles.values().any(|other| other.labels.contains(label));
            assert!(gathered && role.rules.is_empty(), "{name} gathers {label}");
        }
    }

    #[test]
    fn the_table_makes_what_upstream_has() {
        let objects = objects();
        let find = |key: &str| &objects.iter().find(|(known, _)| known == key).expect("there").1;
        let admin = find("/registry/clusterroles/admin");
        let view = find("/registry/clusterroles/system:aggregate-to-view");
        assert!(view.list("rules").len() > 5);
        assert_eq!((&admin["rules"], admin["aggregationRule"].is_object()), (&Value::Null, true));
        let binding = find("/registry/clusterrolebindings/cluster-admin");
        assert_eq!(binding["subjects"][0], json!({"kind": "Group", "apiGroup": GROUP, "name": "system:masters"}));
        let local = find("/registry/roles/kube-system/extension-apiserver-authentication-reader");
        assert_eq!(local["metadata"]["namespace"], "kube-system");
    }
}
