//! Pure parts: plans, owners of claims, identities, and which revision new pods are of.
#![allow(clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::claims::{Owners, Retention, owners};
use super::plan::{View, plan};
use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// What a pod is like, in a letter: (r)eady, (o)ld and ready, (p)ending, (u)nready, (f)ailed, (d)eleting, or not there.
fn pod(ordinal: i32, like: char) -> Option<Arc<Pod>> {
    let revision = if like == 'o' { "old" } else { "new" };
    let ready =
        |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:59:50Z"}]);
    let (phase, conditions) = match like {
        'r' | 'o' | 'd' => ("Running", ready("True")),
        'u' => ("Running", ready("False")),
        'p' => ("Pending", json!([])),
        'f' => ("Failed", json!([])),
        _ => return None,
    };
    let mut pod = json!({
        "metadata": {"name": format!("web-{ordinal}"), "uid": format!("u{ordinal}"), "labels": {
            "statefulset.kubernetes.io/pod-name": format!("web-{ordinal}"), REVISION_LABEL: revision,
        }},
        "spec": {"containers": []},
        "status": {"phase": phase, "conditions": conditions},
    });
    if like == 'd' {
        pod["metadata"]["deletionTimestamp"] = json!(NOW);
    }
    Some(Arc::new(serde_json::from_value(pod).unwrap()))
}

fn members(pods: &str) -> BTreeMap<i32, Arc<Pod>> {
    pods.chars().enumerate().filter_map(|(at, like)| Some((at as i32, pod(at as i32, like)?))).collect()
}

fn set(spec: &Value) -> StatefulSet {
    let mut set = json!({"metadata": {"name": "web", "namespace": "n", "uid": "s"}, "spec": {
        "replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}], "volumes": [
            {"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}},
        ]}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    }});
    for (key, value) in spec.as_object().unwrap() {
        set["spec"][key] = value.clone();
    }
    serde_json::from_value(set).unwrap()
}

/// A plan as words: `+` for made, `-` for deleted, `!` for replaced, `~` for claims that are made.
fn words(set: &StatefulSet, members: &BTreeMap<i32, Arc<Pod>>) -> String {
    let view = View { spec: spec(set), members, update_revision: "new", now: NOW.parse().unwrap() };
    let plan = plan(&view);
    let of = |pod: &Pod| identity::ordinal(set, pod).unwrap();
    let step = |step: &Step<'_>| match step {
        Step::Create(ordinal) => Some(format!("+{ordinal}")),
        Step::Replace(pod) => Some(format!("!{}", of(pod))),
        Step::Keep { pod, claims: true, .. } => Some(format!("~{}", of(pod))),
        Step::Keep { .. } => None,
    };
    let mut words: Vec<String> = plan.replicas.iter().filter_map(step).collect();
    words.extend(plan.surplus.iter().chain(&plan.outdated).map(|pod| format!("-{}", of(pod))));
    words.join(" ")
}

#[test]
fn an_ordered_set_takes_one_step_at_a_time() {
    for (pods, expected) in [
        ("", "+0"),
        ("p", "~0"),
        ("u", ""),
        ("r", "+1"),
        ("rd", ""),
        ("rf", "!1"),
        ("rrr", ""),
        ("r_r", "+1"),
        // Surplus pods go from the top, and only when those before are well.
        ("rrrrr", "-4"),
        ("rrrrd", ""),
        ("rurrr", ""),
        ("rrrru", "-4"),
        ("rrrur", "-4"),
        ("rrruu", ""),
        // Updates go from the top as well.
        ("ooo", "-2"),
        ("oor", "-1"),
        ("oou", ""),
        ("oooo", "-3"),
    ] {
        assert_eq!(words(&set(&json!({})), &members(pods)), expected, "{pods}");
    }
}

#[test]
fn a_parallel_set_acts_everywhere_at_once() {
    let set = set(&json!({"podManagementPolicy": "Parallel"}));
    for (pods, expected) in [
        ("", "+0 +1 +2"),
        ("u_p", "+1 ~2"),
        ("frf", "!0 !2"),
        ("rrrrur", "-5 -4 -3"),
        ("rrrdr", "-4"),
        ("ooo", "-2"),
        ("oou", ""),
        ("uou", ""),
        ("oo_", "+2"),
    ] {
        assert_eq!(words(&set, &members(pods)), expected, "{pods}");
    }
}

#[test]
fn updates_stop_at_the_partition_and_the_unavailable() {
    let update = |rolling: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
    for (spec, pods, expected) in [
        (update(json!({"partition": 2})), "ooo", "-2"),
        (update(json!({"partition": 2})), "oor", ""),
        (update(json!({"partition": 9})), "ooo", ""),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "ooo", ""),
        (update(json!({"partition": 0, "maxUnavailable": 2})), "ooo", "-2 -1"),
        (update(json!({"partition": 1, "maxUnavailable": "100%"})), "ooo", "-2 -1"),
        (update(json!({"maxUnavailable": "10%"})), "ooo", "-2"),
    ] {
        assert_eq!(words(&set(&spec), &members(pods)), expected, "{spec} {pods}");
    }
    let mut parallel = update(json!({"maxUnavailable": 2}));
    parallel["podManagementPolicy"] = json!("Parallel");
    assert_eq!(words(&set(&parallel), &members("oou")), "-1");
    assert_eq!(words(&set(&parallel), &members("duo")), "");
}

#[test]
fn ordinals_begin_where_the_set_says() {
    let set = set(&json!({"ordinals": {"start": 2}}));
    assert_eq!(words(&set, &members("")), "+2");
    assert_eq!(words(&set, &members("r_rrr")), "-0");
    assert_eq!(words(&set, &members("__ooo")), "-4");
}

#[test]
fn pods_have_to_be_ready_for_long_enough() {
    let set = set(&json!({"minReadySeconds": 30}));
    assert_eq!(words(&set, &members("r")), "");
    let wide = serde_json::from_value::<StatefulSet>(json!({"spec": {
        "replicas": i32::MAX, "ordinals": {"start": 9}, "podManagementPolicy": "Parallel",
        "selector": {}, "template": {},
    }}));
    assert_eq!(words(&wide.unwrap(), &BTreeMap::new()).split(' ').count(), 500, "a plan is bounded");
}

proptest! {
    #[test]
    fn plans_never_duplicate_an_ordinal(
        pods in "[roupfd_]{0,7}", replicas in 0..6, start in 0..3, parallel: bool, most in prop::option::of(1..4usize),
    ) {
        let mut rolling = json!({"partition": 0});
        if let Some(most) = most {
            rolling["maxUnavailable"] = json!(most);
        }
        let set = set(&json!({
            "replicas": replicas, "ordinals": {"start": start},
            "podManagementPolicy": if parallel { "Parallel" } else { "OrderedReady" },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        }));
        let (members, wanted) = (members(&pods), ordinals(spec(&set)));
        let view = View { spec: spec(&set), members: &members, update_revision: "new", now: NOW.parse().unwrap() };
        let plan = plan(&view);
        let (mut made, mut deleted) = (Vec::new(), Vec::new());
        for step in &plan.replicas {
            match step {
                Step::Create(ordinal) => made.push(*ordinal),
                Step::Replace(pod) => deleted.push(identity::ordinal(&set, pod).unwrap()),
                Step::Keep { .. } => {}
            }
        }
        prop_assert!(made.iter().all(|ordinal| wanted.contains(ordinal) && !members.contains_key(ordinal)));
        let of = |pod: &Pod| identity::ordinal(&set, pod).unwrap();
        let surplus: Vec<i32> = plan.surplus.iter().map(|pod| of(pod)).collect();
        let outdated: Vec<i32> = plan.outdated.iter().map(|pod| of(pod)).collect();
        prop_assert!(surplus.iter().all(|ordinal| !wanted.contains(ordinal)));
        prop_assert!(outdated.iter().all(|ordinal| wanted.contains(ordinal)));
        prop_assert!(outdated.len() <= most.unwrap_or(1));
        deleted.extend(surplus);
        deleted.extend(outdated);
        prop_assert!(deleted.iter().all(|ordinal| members[ordinal].metadata.deletion_timestamp.is_none()));
        if !parallel {
            prop_assert!(made.len() + deleted.len() <= most.unwrap_or(1));
        }
        let before = deleted.len();
        deleted.sort_unstable();
        deleted.dedup();
        prop_assert_eq!(deleted.len(), before);
    }
}

#[test]
fn new_pods_below_the_partition_are_of_the_current_revision() {
    let with = |strategy: Value| set(&json!({"updateStrategy": strategy, "ordinals": {"start": 1}}));
    let status = StatefulSetStatus { current_replicas: Some(2), ..StatefulSetStatus::default() };
    let takes = |set: &StatefulSet, ordinal| revision::takes_current(spec(set), Some(&status), ordinal);
    let partitioned = with(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}));
    assert!(takes(&partitioned, 1) && !takes(&partitioned, 2));
    let plain = with(json!({"type": "RollingUpdate"}));
    assert!(takes(&plain, 2) && !takes(&plain, 3));
    assert!(!takes(&with(json!({"type": "OnDelete"})), 1));
}

#[test]
fn only_one_spelling_of_an_ordinal_makes_a_member() {
    for (name, ordinal) in
        [("web-0", Some(0)), ("web-12", Some(12)), ("web-00", None), ("web--1", None), ("web-+1", None), ("we-1", None)]
    {
        assert_eq!(identity::ordinal_in(name, "web"), ordinal, "{name}");
    }
}

#[test]
fn a_pod_gets_its_name_labels_and_volumes() {
    let set = set(&json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}));
    let made = identity::describe(&set, &spec(&set).template, "web-x", 1);
    assert_eq!(made.metadata.name.as_deref(), Some("web-1"));
    assert_eq!(made.metadata.labels.clone().unwrap()["apps.kubernetes.io/pod-index"], "1");
    assert_eq!(revision_of(&made), "web-x");
    let described = made.spec.clone().unwrap();
    assert_eq!((described.hostname.as_deref(), described.subdomain.as_deref()), (Some("web-1"), Some("web")));
    let volumes = described.volumes.unwrap();
    assert_eq!(volumes.iter().map(|volume| &*volume.name).collect::<Vec<_>>(), ["data", "other"]);
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name, "data-web-1");
    assert!(identity::conforming(&set, &made).is_none());
    let mut stripped = made.clone();
    stripped.metadata.labels = None;
    assert!(identity::conforming(&set, &stripped).is_some());
}

fn reference(kind: &str, uid: &str, controller: bool) -> OwnerReference {
    let api_version = if kind == "Pod" { "v1" } else { "apps/v1" };
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: kind.to_owned(),
        uid: uid.to_owned(),
        controller: Some(controller),
        block_owner_deletion: Some(true),
    }
}

#[test]
fn claims_are_owned_as_the_retention_policy_says() {
    let (set, pod) = (reference("StatefulSet", "s", true), reference("Pod", "p", true));
    let policy = |scaled: bool, deleted: bool| Retention { delete_when_scaled: scaled, delete_when_deleted: deleted };
    let decide = |known: &[&OwnerReference], retention, scaled_down| {
        let known: Vec<OwnerReference> = known.iter().copied().cloned().collect();
        owners(&known, &set, &pod, retention, scaled_down)
    };
    let write = |references: &[&OwnerReference]| Owners {
        write: Some(references.iter().copied().cloned().collect()),
        conflict: false,
    };
    let fine = Owners { write: None, conflict: false };
    assert_eq!(decide(&[], policy(false, false), true), fine);
    assert_eq!(decide(&[&set], policy(false, false), false), write(&[]));
    assert_eq!(decide(&[], policy(false, true), true), write(&[&set]));
    assert_eq!(decide(&[], policy(true, false), false), fine);
    assert_eq!(decide(&[], policy(true, false), true), write(&[&pod]));
    assert_eq!(decide(&[&set], policy(true, true), true), write(&[&pod]));
    assert_eq!(decide(&[&pod], policy(true, true), false), write(&[&set]));
    assert_eq!(decide(&[&reference("StatefulSet", "s", false)], policy(false, true), false), write(&[&set]));
    // Owners of the same name that are gone, and other controllers, are left alone.
    assert_eq!(decide(&[&reference("Pod", "gone", true)], policy(false, false), false), fine);
    let other = reference("Backup", "b", true);
    let conflict = |write: Option<Vec<OwnerReference>>| Owners { write, conflict: true };
    assert_eq!(decide(&[&other], policy(false, true), false), conflict(None));
    assert_eq!(decide(&[&other, &set], policy(false, true), false), conflict(Some(vec![other.clone()])));
    assert_eq!(decide(&[&other], policy(false, false), false), fine);
}

proptest! {
    #[test]
    fn owners_settle_after_two_writes(
        known in prop::collection::vec((0..4usize, any::<bool>()), 0..4), scaled: bool, deleted: bool, down: bool,
    ) {
        let (set, pod) = (reference("StatefulSet", "s", true), reference("Pod", "p", true));
        let kinds = [("StatefulSet", "s"), ("Pod", "p"), ("Pod", "gone"), ("Backup", "b")];
        let known: Vec<_> = known.iter().map(|(at, own)| reference(kinds[*at].0, kinds[*at].1, *own)).collect();
        let retention = Retention { delete_when_scaled: scaled, delete_when_deleted: deleted };
        let mut written = known;
        for _ in 0..2 {
            written = owners(&written, &set, &pod, retention, down).write.unwrap_or(written);
        }
        prop_assert_eq!(owners(&written, &set, &pod, retention, down).write, None);
    }
}
