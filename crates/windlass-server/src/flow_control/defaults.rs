//! FlowSchemas and PriorityLevelConfigurations that every cluster has.
//!
//! The mandatory ones are kept as they are here. The suggested ones are kept until they are changed, as the annotation
//! `apf.kubernetes.io/autoupdate-spec` says; those that are deleted come back. Both are checked at the start and every
//! minute. Mirrors `flowcontrol/bootstrap/default.go` and `registry/flowcontrol/ensurer` of upstream.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_kinds::strategy::flow_control::mandatory;
use windlass_store::{Entry, Expect, Range, StoreError, Write};

use super::{Kind, Objects};
use crate::object;
use crate::status;
use crate::stored;
use crate::validation::access::{Access as _, AccessMut as _};

const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// A default object, and whether changes to it are taken back.
pub(super) struct DefaultObject {
    pub(super) kind: Kind,
    pub(super) mandatory: bool,
    pub(super) object: Value,
}

/// All default objects.
pub(super) fn all() -> Vec<DefaultObject> {
    let mut out = Vec::new();
    let mut level = |name: &str, mandatory: bool, spec: Value| {
        out.push(DefaultObject {
            kind: Kind::PriorityLevel,
            mandatory,
            object: base(Kind::PriorityLevel, name, &spec),
        });
    };
    for (name, spec) in mandatory::levels() {
        level(name, true, spec);
    }
    let queue = |queues: u32, hand: u32| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    level("system", false, limited(30, 33, &queue(64, 6)));
    level("node-high", false, limited(40, 25, &queue(64, 6)));
    level("leader-election", false, limited(10, 0, &queue(16, 4)));
    level("workload-high", false, limited(40, 50, &queue(128, 6)));
    level("workload-low", false, limited(100, 90, &queue(128, 6)));
    level("global-default", false, limited(20, 50, &queue(128, 6)));

    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let kube_system =
        || json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}]);
    let everything = |subjects: Value| {
        let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        let resources = json!([resources(&["*"], "*", &["*"], true)]);
        json!([{"subjects": subjects, "resourceRules": resources, "nonResourceRules": paths}])
    };
    let some = |subjects: Value, rules: Value| json!([{"subjects": subjects, "resourceRules": rules}]);
    for (name, spec) in mandatory::schemas() {
        let object = base(Kind::FlowSchema, name, &spec);
        out.push(DefaultObject { kind: Kind::FlowSchema, mandatory: true, object });
    }
    let mut schema = |name: &str, level: &str, precedence: u32, method: &str, rules: Value| {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        spec["rules"] = rules;
        let object = base(Kind::FlowSchema, name, &spec);
        out.push(DefaultObject { kind: Kind::FlowSchema, mandatory: false, object });
    };
    let probes = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]);
    let probes = json!([{"subjects": everybody(), "nonResourceRules": probes}]);
    schema("probes", "exempt", 2, "", probes);
    let mut leaders = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    if let (Value::Array(leaders), Value::Array(accounts)) = (&mut leaders, kube_system()) {
        leaders.extend(accounts);
    }
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let leaders = some(leaders, json!([leases(&["get", "create", "update"])]));
    schema("system-leader-election", "leader-election", 100, "ByUser", leaders);
    let nodes = || groups(&["system:nodes"]);
    let health = some(nodes(), json!([resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])]));
    schema("system-node-high", "node-high", 400, "ByUser", health);
    schema("system-nodes", "system", 500, "ByUser", everything(nodes()));
    for name in ["kube-controller-manager", "kube-scheduler"] {
        let rules = everything(users(&[&format!("system:{name}")]));
        schema(name, "workload-high", 800, "ByNamespace", rules);
    }
    let rules = everything(kube_system());
    schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", rules);
    let rules = everything(groups(&["system:serviceaccounts"]));
    schema("service-accounts", "workload-low", 9000, "ByUser", rules);
    schema("global-default", "global-default", 9900, "ByUser", everything(everybody()));
    out
}

fn base(kind: Kind, name: &str, spec: &Value) -> Value {
    let annotations = json!({AUTO_UPDATE: "true"});
    json!({"kind": kind.name(), "apiVersion": API_VERSION, "metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

fn limited(shares: u32, lendable: u32, response: &Value) -> Value {
    json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable,
    }})
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster_scope {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// What a default object that is there has to become; `None` if it stays.
pub(super) fn revise(there: &Value, default: &DefaultObject) -> Option<Value> {
    let annotation = there.below(&["metadata", "annotations"]).text(AUTO_UPDATE);
    let said = go_bool(annotation);
    let follows = default.mandatory || said.unwrap_or_else(|| there.at("metadata").int("generation") == 1);
    let respecify = follows && there.at("spec") != default.object.at("spec");
    if !respecify && said == Some(follows) {
        return None;
    }
    let mut revised = there.clone();
    if respecify {
        revised.put("spec", default.object.at("spec").clone());
        let generation = there.at("metadata").int("generation") + 1;
        revised.struct_mut("metadata").put("generation", generation);
    }
    revised.struct_mut("metadata").struct_mut("annotations").put(AUTO_UPDATE, if follows { "true" } else { "false" });
    Some(revised)
}

/// As Go's `strconv.ParseBool` reads it.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Creates what is missing, takes back changes that are not the user's to make, and removes what was a default once.
pub(super) async fn ensure(objects: &Objects) -> Result<(), StoreError> {
    let mut there: HashMap<Bytes, Entry> = HashMap::new();
    for kind in Kind::ALL {
        let snapshot = objects.store.range(Range::prefix(kind.prefix()), None, 0).await?;
        there.extend(snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)));
    }
    let mut writes = Vec::new();
    for default in all() {
        let key = Bytes::from(format!("{}{}", default.kind.prefix(), object::name(&default.object)));
        match there.remove(&key) {
            None => {
                writes.push(Write::Put {
                    key,
                    expect: Expect::Absent,
                    value: stored::encode(&complete(objects, default)),
                });
            }
            Some(entry) => {
                let Some(object) = decode(&entry) else { continue };
                let revised = revise(&object, &default);
                let expect = Expect::At(entry.modified);
                writes.extend(revised.map(|object| Write::Put { key, expect, value: stored::encode(&object) }));
            }
        }
    }
    for (key, entry) in there {
        let Some(object) = decode(&entry) else { continue };
        if go_bool(object.below(&["metadata", "annotations"]).text(AUTO_UPDATE)) == Some(true) {
            writes.push(Write::Delete { key, expect: Expect::At(entry.modified), last: None });
        }
    }
    if !writes.is_empty() {
        // After a conflict the next round sees.
        objects.store.txn(writes).await?;
    }
    Ok(())
}

fn decode(entry: &Entry) -> Option<Value> {
    let decoded = stored::decode(&entry.value);
    let failed = |error: &status::Status| {
        let key = String::from_utf8_lossy(&entry.key);
        tracing::error!(%key, error = %error.message, "a stored flow control object cannot be read");
    };
    decoded.inspect_err(failed).ok()
}

/// A default as it is stored. All schemas refer to levels that are created with them.
fn complete(objects: &Objects, default: DefaultObject) -> Value {
    let DefaultObject { kind, mut object, .. } = default;
    let snapshot = objects.catalog.snapshot();
    if let Some(served) = snapshot.find(super::GROUP, "v1", kind.plural()) {
        served.complete(&mut object);
    }
    if kind == Kind::FlowSchema {
        let level = object.at("spec").at("priorityLevelConfiguration").text("name").to_owned();
        let condition = super::follow::dangling(&level, true, &object::time(objects.now()));
        object.put("status", json!({"conditions": [condition]}));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(kind: Kind, name: &str) -> DefaultObject {
        all().into_iter().find(|d| d.kind == kind && object::name(&d.object) == name).expect("a default")
    }

    fn stored(default: &DefaultObject, annotation: Option<&str>, generation: i64, precedence: i64) -> Value {
        let mut object = default.object.clone();
        object["metadata"]["generation"] = generation.into();
        object["metadata"]["annotations"] = annotation.map_or(Value::Null, |value| json!({AUTO_UPDATE: value}));
        object["spec"]["matchingPrecedence"] = precedence.into();
        object
    }

    #[test]
    fn changes_of_mandatory_objects_are_taken_back() {
        let default = find(Kind::FlowSchema, "catch-all");
        assert_eq!(revise(&stored(&default, Some("true"), 1, 10_000), &default), None);
        let revised = revise(&stored(&default, Some("false"), 3, 5), &default).expect("revised");
        assert_eq!(revised["spec"], default.object["spec"]);
        assert_eq!(revised["metadata"]["generation"], 4);
        assert_eq!(revised["metadata"]["annotations"][AUTO_UPDATE], "true");
    }

    #[test]
    fn suggested_objects_follow_unless_annotated() {
        let default = find(Kind::FlowSchema, "global-default");
        let check = |annotation: Option<&str>, generation: i64, precedence: i64, expected: Option<(i64, &str)>| {
            let revised = revise(&stored(&default, annotation, generation, precedence), &default);
            let revised = revised.map(|object| {
                (
                    object["spec"]["matchingPrecedence"].as_i64().expect("set"),
                    object["metadata"]["annotations"][AUTO_UPDATE].as_str().expect("set").to_owned(),
                )
            });
            assert_eq!(
                revised.as_ref().map(|(n, s)| (*n, s.as_str())),
                expected,
                "{annotation:?} {generation} {precedence}"
            );
        };
        check(Some("true"), 1, 9900, None);
        check(Some("true"), 2, 7, Some((9900, "true")));
        check(Some("false"), 2, 7, None);
        // Without the annotation the generation tells whether the spec has been changed.
        check(None, 1, 7, Some((9900, "true")));
        check(None, 2, 7, Some((7, "false")));
        check(Some("maybe"), 2, 7, Some((7, "false")));
    }

    #[test]
    fn schemas_refer_to_levels_that_are_there() {
        let all = all();
        let level = |name: &str| all.iter().any(|d| d.kind == Kind::PriorityLevel && object::name(&d.object) == name);
        for default in all.iter().filter(|d| d.kind == Kind::FlowSchema) {
            assert!(level(default.object["spec"]["priorityLevelConfiguration"]["name"].as_str().expect("a name")));
        }
        assert_eq!((all.len(), all.iter().filter(|d| d.mandatory).count()), (19, 4));
    }
}
