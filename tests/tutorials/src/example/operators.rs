//! What each example is given to do, and when it has done it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// All examples, in the order in which they are checked.
pub(crate) const NAMES: [&str; 9] = [
    "at",
    "sample-controller",
    "app-service",
    "guestbook",
    "ippool",
    "home",
    "pod-crud",
    "opentelemetry-collector",
    "petstore",
];

/// An example with an operator.
pub(crate) struct Operator {
    /// The directory and the program.
    pub name: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Objects of the kind that the samples have.
    pub samples: &'static [&'static str],
    /// The definition whose versions the operator converts, if it has several.
    pub converts: Option<&'static str>,
    /// Whether the operator manages a service outside of the cluster, which is killed as well.
    pub has_service: bool,
    /// Kinds whose objects are looked at in the end, besides what the service has.
    pub children: &'static [(&'static str, &'static str)],
    /// The kind of child of which an object may have one, ever: also after the child was deleted, which the storm does.
    pub once: Option<Once>,
    /// What there is before the storm.
    pub setup: fn() -> Vec<Value>,
    /// An object, without its name.
    pub object: fn(&mut fastrand::Rng) -> Value,
    /// An edit of an object, as a merge patch.
    pub edit: fn(&mut fastrand::Rng) -> Option<Value>,
    /// Whether the status says what the spec asks for.
    pub is_settled: fn(&Value) -> bool,
    /// Whether there are exactly the children that there should be.
    pub verify: fn(&[Value], &[Value]) -> Result<()>,
}

/// A kind of which each object has at most one child in its whole life.
pub(crate) struct Once {
    pub api_version: &'static str,
    pub kind: &'static str,
    /// The name of the child of an object.
    pub name: fn(&str) -> String,
    /// Whether an object must have had its child.
    pub is_due: fn(&Value) -> bool,
}

pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    ALL.iter().find(|operator| operator.name == name)
}

/// An object as a value, with all its fields.
pub(crate) fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

const ALL: [Operator; 8] = [
    Operator {
        name: "at",
        api_version: "cnat.programming-kubernetes.info/v1alpha1",
        kind: "At",
        namespaced: true,
        samples: &["example-at", "example-later"],
        converts: None,
        has_service: false,
        children: &[("v1", "Pod")],
        once: Some(Once { api_version: "v1", kind: "Pod", name: |at| format!("{at}-pod"), is_due: is_done }),
        setup: Vec::new,
        object: |random| {
            json!({
                "metadata": { "annotations": { "simulation.windlass.dev/run-time": format!("{}ms", random.u32(..800)) } },
                "spec": { "schedule": soon(random), "command": "true" },
            })
        },
        edit: |random| Some(json!({ "spec": { "schedule": soon(random) } })),
        is_settled: |at| match at["metadata"]["name"].as_str() {
            Some("example-later") => at["status"]["phase"] == "PENDING",
            Some("example-at") => is_done(at) && at["status"]["conditions"][0]["status"] == "True",
            _ => is_done(at),
        },
        // The Pods of some were deleted; `once` says that each had one.
        verify: |ats, pods| {
            let uids: BTreeSet<&str> = pods.iter().filter_map(owner).collect();
            ensure!(uids.len() == pods.len(), "an At has two Pods, or a Pod has no At: {pods:?}");
            let with_pod: Vec<Value> = ats.iter().filter(|at| uids.contains(uid(at))).cloned().collect();
            children_of(&with_pod, pods, |_| 1)
        },
    },
    Operator {
        name: "sample-controller",
        api_version: "samplecontroller.k8s.io/v1alpha1",
        kind: "Foo",
        namespaced: true,
        samples: &["example-foo"],
        converts: None,
        has_service: false,
        children: &[("apps/v1", "Deployment")],
        once: None,
        setup: Vec::new,
        object: |random| {
            // Different Foos, or one that comes back, want the same Deployment.
            let name = format!("deployment-{}", random.u32(..30));
            json!({ "spec": { "deploymentName": name, "replicas": random.i32(1..4) } })
        },
        edit: |random| Some(json!({ "spec": { "replicas": random.i32(1..4) } })),
        // A Foo whose Deployment belongs to another has no status.
        is_settled: |object| {
            object["status"].is_null() || object["status"]["availableReplicas"] == object["spec"]["replicas"]
        },
        verify: |foos, deployments| {
            let (winners, losers): (Vec<Value>, Vec<Value>) =
                foos.iter().cloned().partition(|object| !object["status"].is_null());
            children_of(&winners, deployments, |_| 1)?;
            for object in &losers {
                let name = &object["spec"]["deploymentName"];
                let deployment = deployments.iter().find(|deployment| deployment["metadata"]["name"] == *name);
                let deployment = deployment.with_context(|| format!("nobody has the Deployment of {object}"))?;
                ensure!(owner(deployment) != Some(uid(object)), "it has its Deployment, and no status: {object}");
            }
            Ok(())
        },
    },
    Operator {
        name: "app-service",
        api_version: "appcontroller.k8s.io/v1alpha1",
        kind: "AppService",
        namespaced: true,
        samples: &["example-app"],
        converts: None,
        has_service: false,
        children: &[("apps/v1", "Deployment")],
        once: None,
        setup: Vec::new,
        object: |random| {
            let name = format!("deployment-{}", random.u32(..100_000));
            json!({ "spec": { "deploymentName": name, "replicas": random.i32(0..4) } })
        },
        edit: |random| {
            Some(if random.bool() {
                json!({ "spec": { "replicas": random.i32(0..4) } })
            } else {
                json!({ "spec": { "deploymentName": format!("deployment-{}", random.u32(..100_000)) } })
            })
        },
        is_settled: |app| is_ready(app) && app["status"]["availableReplicas"] == app["spec"]["replicas"],
        verify: |apps, deployments| children_of(apps, deployments, |_| 1),
    },
    Operator {
        name: "guestbook",
        api_version: "webapp.my.domain/v1",
        kind: "Guestbook",
        namespaced: true,
        samples: &["guestbook-sample"],
        converts: None,
        has_service: false,
        children: &[("apps/v1", "Deployment"), ("v1", "Service")],
        once: None,
        setup: Vec::new,
        object: |random| json!({ "spec": { "frontends": random.i32(1..3), "followers": random.i32(0..2) } }),
        edit: |random| Some(json!({ "spec": { "followers": random.i32(0..2) } })),
        is_settled: is_ready,
        verify: |guestbooks, parts| {
            // A Service of the cluster itself has no owner.
            let parts: Vec<Value> = parts.iter().filter(|part| owner(part).is_some()).cloned().collect();
            children_of(guestbooks, &parts, |book| if book["spec"]["followers"] == 0 { 4 } else { 6 })
        },
    },
    Operator {
        name: "ippool",
        api_version: "tsi.tiduyun.com/v1alpha1",
        kind: "IPClaim",
        namespaced: true,
        samples: &["ipclaim-sample", "ipclaim-with-address"],
        converts: None,
        has_service: false,
        children: &[("tsi.tiduyun.com/v1alpha1", "IPAllocation")],
        once: None,
        // Fewer addresses than claims, from two pools that overlap.
        setup: || {
            let pool = |name: &str, cidr: &str| {
                json!({
                    "apiVersion": "tsi.tiduyun.com/v1alpha1", "kind": "IPPool",
                    "metadata": { "name": name }, "spec": { "cidrs": [cidr] },
                })
            };
            vec![pool("one", "10.0.0.0/28"), pool("two", "10.0.0.8/29")]
        },
        object: |random| json!({ "spec": { "pool": if random.bool() { "one" } else { "two" } } }),
        edit: |_| None,
        is_settled: |claim| {
            let condition = &claim["status"]["conditions"][0];
            match condition["reason"].as_str() {
                Some("Allocated") => claim["status"]["address"].is_string(),
                Some("PoolExhausted") => claim["status"]["address"].is_null(),
                _ => false,
            }
        },
        verify: allocations,
    },
    Operator {
        name: "home",
        api_version: "ajd.my.domain/v1",
        kind: "Home",
        namespaced: true,
        samples: &["home-sample"],
        converts: None,
        has_service: false,
        children: &[("v1", "ConfigMap")],
        once: None,
        setup: Vec::new,
        object: |random| json!({ "spec": { "address": "1 Main St", "rooms": [{ "name": "kitchen", "celsius": random.i32(15..25) }] } }),
        edit: |random| {
            let rooms =
                json!([{ "name": "kitchen", "celsius": random.i32(15..25) }, { "name": "hall", "celsius": 18 }]);
            Some(json!({ "spec": { "rooms": rooms } }))
        },
        is_settled: is_ready,
        verify: |homes, maps| {
            let maps: Vec<Value> = maps.iter().filter(|map| owner(map).is_some()).cloned().collect();
            children_of(homes, &maps, |_| 1)?;
            for home in homes {
                let map = maps.iter().find(|map| owner(map) == home["metadata"]["uid"].as_str());
                let map = map.context("a home has its plan")?;
                for room in home["spec"]["rooms"].as_array().into_iter().flatten() {
                    let (name, wanted) = (room["name"].as_str().unwrap_or_default(), room["celsius"].to_string());
                    ensure!(map["data"][name] == wanted, "{name} of {home} is {}", map["data"][name]);
                }
            }
            Ok(())
        },
    },
    Operator {
        name: "opentelemetry-collector",
        api_version: "opentelemetry.io/v1alpha1",
        kind: "OpenTelemetryCollector",
        namespaced: true,
        samples: &["simplest"],
        converts: None,
        has_service: false,
        children: &[("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "ConfigMap")],
        once: None,
        setup: Vec::new,
        object: |random| json!({ "spec": { "config": collector_config(random), "replicas": random.i32(1..3) } }),
        edit: |random| Some(json!({ "spec": { "config": collector_config(random) } })),
        is_settled: is_ready,
        verify: |collectors, children| {
            let children: Vec<Value> = children.iter().filter(|child| owner(child).is_some()).cloned().collect();
            children_of(collectors, &children, |_| 3)
        },
    },
    Operator {
        name: "petstore",
        api_version: "petstore.example.com/v1beta1",
        kind: "Pet",
        namespaced: true,
        samples: &["thor", "tron", "kaa"],
        converts: Some("pets.petstore.example.com"),
        has_service: true,
        children: &[],
        once: None,
        setup: Vec::new,
        // Many have the same name: an entry must not be taken for that of another Pet.
        object: |random| {
            let name = format!("Pet {}", random.u32(..5));
            json!({ "spec": { "name": name, "species": species(random), "birthday": "2021-04-01" } })
        },
        edit: |random| {
            Some(if random.bool() {
                json!({ "spec": { "name": format!("Pet {}", random.u32(..5)) } })
            } else {
                json!({ "spec": { "species": species(random) } })
            })
        },
        is_settled: is_ready,
        verify: entries,
    },
];

fn species(random: &mut fastrand::Rng) -> &'static str {
    ["dog", "cat", "bird", "reptile"][random.usize(..4)]
}

/// The pet store has one entry for each Pet, as the Pet says, and no other: no orphan.
fn entries(pets: &[Value], entries: &[Value]) -> Result<()> {
    let mut left: BTreeMap<&str, &Value> =
        entries.iter().map(|entry| (entry["id"].as_str().unwrap_or_default(), entry)).collect();
    ensure!(left.len() == entries.len(), "two entries have one id: {entries:?}");
    for pet in pets {
        let id = pet["status"]["id"].as_str().unwrap_or_default();
        let entry = left.remove(id).with_context(|| format!("no entry of its own: {pet}"))?;
        for field in ["name", "species", "birthday"] {
            ensure!(entry[field] == pet["spec"][field], "{field} of {entry} is not that of {pet}");
        }
    }
    ensure!(left.is_empty(), "entries without a Pet: {left:?}");
    Ok(())
}

fn soon(random: &mut fastrand::Rng) -> String {
    let now = k8s_openapi::jiff::Timestamp::now();
    (now + k8s_openapi::jiff::SignedDuration::from_millis(random.i64(-500..2000))).to_string()
}

fn collector_config(random: &mut fastrand::Rng) -> String {
    let port = random.u32(4000..4010);
    format!("receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: 0.0.0.0:{port}\n")
}

/// Ready, and for the spec as it is now.
fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Whether the command of an At has ended.
fn is_done(at: &Value) -> bool {
    at["status"]["phase"] == "DONE"
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The uid of what controls an object.
pub(crate) fn owner(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// Every object has so many children, and every child has one of these objects.
fn children_of(objects: &[Value], children: &[Value], wanted: fn(&Value) -> usize) -> Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for child in children {
        let owner = owner(child).with_context(|| format!("a child without an owner: {child}"))?;
        *counts.entry(owner).or_default() += 1;
    }
    for object in objects {
        let count = counts.remove(uid(object)).unwrap_or(0);
        ensure!(count == wanted(object), "{count} children instead of {}: {object}", wanted(object));
    }
    ensure!(counts.is_empty(), "children of owners that are gone: {counts:?}");
    Ok(())
}

/// No address is given twice, none is lost, and nobody waits while there is one.
fn allocations(claims: &[Value], allocations: &[Value]) -> Result<()> {
    let mut given = BTreeSet::new();
    for claim in claims {
        let Some(address) = claim["status"]["address"].as_str() else { continue };
        ensure!(given.insert(address), "{address} was given twice");
        let held = allocations.iter().filter(|it| it["spec"]["claim"]["uid"] == claim["metadata"]["uid"]);
        let held: Vec<&str> = held.filter_map(|it| it["spec"]["address"].as_str()).collect();
        ensure!(held == [address], "{claim} holds {held:?}");
    }
    ensure!(given.len() == allocations.len(), "{} addresses of claims, {} allocations", given.len(), allocations.len());
    // 10.0.0.1 to 10.0.0.14, and of these 10.0.0.9 to 10.0.0.14.
    for (pool, first) in [("one", 1), ("two", 9)] {
        let waits = claims.iter().any(|claim| claim["status"]["address"].is_null() && claim["spec"]["pool"] == pool);
        let free = (first..=14).map(|last| format!("10.0.0.{last}")).find(|address| !given.contains(address.as_str()));
        ensure!(!waits || free.is_none(), "a claim of {pool} waits although {free:?} is free");
    }
    Ok(())
}
