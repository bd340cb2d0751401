//! Which volume a claim gets, and what becomes of volumes, decided without a cluster.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::events::EventType;

use super::claims::{Step, World, next_step, status};
use super::reclaim::{self, Deletion, deletion};
use super::*;

fn volume(name: &str, size: &str, more: &Value) -> Arc<PersistentVolume> {
    let mut volume = json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
        "status": {"phase": "Available"},
    });
    merge(&mut volume, more);
    Arc::new(serde_json::from_value(volume).expect("a volume"))
}

fn claim(more: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "claim", "namespace": "n", "uid": "u"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "c",
        },
    });
    merge(&mut claim, more);
    serde_json::from_value(claim).expect("a claim")
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, more) => into.clone_from(more),
    }
}

fn found(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>], delayed: bool) -> Option<String> {
    matching::find(claim, volumes, delayed).and_then(|volume| volume.metadata.name.clone())
}

#[test]
fn the_smallest_volume_that_fits_is_chosen() {
    let check = |claimed: Value, volumes: &[Arc<PersistentVolume>], expected: Option<&str>| {
        assert_eq!(found(&claim(&claimed), volumes, false).as_deref(), expected, "{claimed}");
    };
    let shared = json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}});
    let volumes = [
        volume("small", "1Gi", &json!({})),
        volume("large", "10Gi", &json!({"metadata": {"labels": {"tier": "gold"}}})),
        volume("medium", "5Gi", &json!({})),
        volume("shared", "2Gi", &shared),
        volume("block", "2Gi", &json!({"spec": {"volumeMode": "Block"}})),
        volume("other-class", "2Gi", &json!({"spec": {"storageClassName": "d"}})),
        volume("taken", "2Gi", &json!({"spec": {"claimRef": {"namespace": "n", "name": "another"}}})),
        volume("released", "2Gi", &json!({"status": {"phase": "Released"}})),
        volume("deleted", "2Gi", &json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})),
    ];
    check(json!({}), &volumes, Some("medium"));
    check(json!({"spec": {"accessModes": ["ReadWriteMany"]}}), &volumes, Some("shared"));
    check(json!({"spec": {"accessModes": ["ReadOnlyMany"]}}), &volumes, None);
    check(json!({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}}), &volumes, Some("large"));
    check(json!({"spec": {"volumeMode": "Block"}}), &volumes, Some("block"));
    check(json!({"spec": {"storageClassName": "d"}}), &volumes, Some("other-class"));
    check(json!({"spec": {"storageClassName": null}}), &volumes, None);
    check(json!({"metadata": {"annotations": {BETA_CLASS: "d"}}}), &volumes, Some("other-class"));
    check(json!({"spec": {"resources": {"requests": {"storage": "11Gi"}}}}), &volumes, None);
    check(json!({"metadata": {"name": "another"}}), &volumes, Some("taken"));
    check(json!({"spec": {"volumeAttributesClassName": "fast"}}), &volumes, None);
}

#[test]
fn the_scheduler_chooses_for_claims_that_wait() {
    let reserved = |uid: &str| json!({"spec": {"claimRef": {"namespace": "n", "name": "claim", "uid": uid}}});
    let free = volume("free", "2Gi", &json!({}));
    assert_eq!(found(&claim(&json!({})), &[Arc::clone(&free)], true), None);
    let chosen = [free, volume("chosen", "2Gi", &reserved("u"))];
    assert_eq!(found(&claim(&json!({})), &chosen, true).as_deref(), Some("chosen"));
    assert_eq!(found(&claim(&json!({})), &[volume("old", "2Gi", &reserved("other"))], true), None);
}

#[test]
fn claims_are_bound_provisioned_or_wait() {
    let class = |name: &str, mode: &str, default: bool, day: u32| {
        let class = json!({
            "metadata": {
                "name": name, "creationTimestamp": format!("2020-01-{day:02}T00:00:00Z"),
                "annotations": {DEFAULT_CLASS[0]: default.to_string()},
            },
            "provisioner": "p", "volumeBindingMode": mode,
        });
        Arc::new(serde_json::from_value::<StorageClass>(class).expect("a class"))
    };
    let classes = [
        class("now", "Immediate", false, 1),
        class("later", "WaitForFirstConsumer", false, 1),
        class("old", "Immediate", true, 1),
        class("new", "Immediate", true, 2),
    ];
    let volumes = [
        volume("v", "5Gi", &json!({})),
        volume("taken", "5Gi", &json!({"spec": {"claimRef": {"namespace": "n", "name": "another", "uid": "w"}}})),
        volume("mine", "5Gi", &json!({"spec": {"claimRef": {"namespace": "n", "name": "claim", "uid": "u"}}})),
    ];
    let step = |claimed: Value, pods: &[String], classes: &[Arc<StorageClass>]| {
        next_step(&claim(&claimed), &World { volumes: &volumes[..2], classes, waiting_pods: pods })
    };
    let check = |claimed: Value, expected: &str| {
        let step = step(claimed.clone(), &[], &classes);
        let found = match step {
            Step::Bind(volume) => format!("bind {}", volume.metadata.name.as_deref().unwrap_or_default()),
            Step::Wait(None) => "wait".to_owned(),
            Step::Wait(Some((kind, reason, _))) => format!("{} {reason}", kind.as_str()),
            Step::AssignClass(class) => format!("class {class}"),
            Step::Provision => "provision".to_owned(),
            Step::Lose(reason, _) => reason.to_owned(),
        };
        assert_eq!(found, expected, "{claimed}");
    };
    let bound =
        |name: &str| json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}});
    check(json!({}), "bind v");
    check(json!({"spec": {"storageClassName": "now"}}), "provision");
    check(json!({"spec": {"storageClassName": "unknown"}}), "provision");
    check(json!({"spec": {"storageClassName": "later"}}), "Normal WaitForFirstConsumer");
    let selected = json!({"metadata": {"annotations": {SELECTED_NODE: "a"}}, "spec": {"storageClassName": "later"}});
    check(selected, "provision");
    check(json!({"spec": {"storageClassName": null}}), "class new");
    check(json!({"spec": {"storageClassName": ""}}), "Normal FailedBinding");
    check(json!({"spec": {"volumeName": "v"}}), "bind v");
    check(json!({"spec": {"volumeName": "missing"}}), "wait");
    check(json!({"spec": {"volumeName": "taken"}}), "Warning FailedBinding");
    check(json!({"spec": {"volumeName": "v", "storageClassName": "now"}}), "Warning VolumeMismatch");
    check(bound("v"), "bind v");
    check(bound("missing"), "ClaimLost");
    check(bound(""), "ClaimLost");
    check(bound("taken"), "ClaimMisbound");
    let later = json!({"spec": {"storageClassName": "later"}});
    let note = "waiting for pods a,b to be scheduled".to_owned();
    let expected = Step::Wait(Some((EventType::Normal, "WaitForPodScheduled", note)));
    assert_eq!(step(later, &["a".to_owned(), "b".to_owned()], &classes), expected);
    assert!(matches!(step(json!({"spec": {"storageClassName": null}}), &[], &[]), Step::Wait(Some(_))));
}

#[test]
fn volumes_follow_their_claims() {
    let reference = json!({"spec": {"claimRef": {"namespace": "n", "name": "claim", "uid": "u"}}});
    let reserved = json!({"spec": {"claimRef": {"namespace": "n", "name": "claim"}}});
    let check = |more: &Value, claimed: Option<Value>, expected: reclaim::Step| {
        let claim = claimed.map(|more| claim(&more));
        assert_eq!(reclaim::next_step(&volume("v", "1Gi", more), claim.as_ref()), expected, "{more}");
    };
    check(&json!({}), None, reclaim::Step::Phase("Available"));
    check(&reserved, None, reclaim::Step::Phase("Available"));
    check(&reference, None, reclaim::Step::Reclaim);
    check(&reference, Some(json!({"metadata": {"uid": "another"}})), reclaim::Step::Reclaim);
    check(&reference, Some(json!({})), reclaim::Step::Nothing);
    check(&reference, Some(json!({"spec": {"volumeMode": "Block"}})), reclaim::Step::Mismatch);
    check(&reference, Some(json!({"spec": {"volumeName": "v"}})), reclaim::Step::Phase("Bound"));
    check(&reference, Some(json!({"spec": {"volumeName": "w"}})), reclaim::Step::Unbind);
    let mut made = reference;
    merge(&mut made, &json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    merge(&mut made, &json!({"metadata": {"annotations": {PROVISIONED_BY: "p"}}}));
    check(&made, Some(json!({"spec": {"volumeName": "w"}})), reclaim::Step::Reclaim);
}

#[test]
fn only_simulated_volumes_are_deleted() {
    let check =
        |more: Value, expected: &Deletion| assert_eq!(deletion(&volume("v", "1Gi", &more)), *expected, "{more}");
    let impossible = |why: &str| Deletion::Impossible(why.to_owned());
    check(json!({"spec": {"hostPath": {"path": "/tmp/a"}}}), &Deletion::Object);
    let elsewhere = "host_path deleter only supports /tmp/.+ but received provided /data";
    check(json!({"spec": {"hostPath": {"path": "/data"}}}), &impossible(elsewhere));
    let none = "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    check(json!({"spec": {"nfs": {"server": "s", "path": "/"}}}), &impossible(none));
    check(json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}), &Deletion::External);
    check(json!({"metadata": {"annotations": {PROVISIONED_BY: "somebody/else"}}}), &Deletion::External);
    check(json!({"metadata": {"annotations": {PROVISIONED_BY: OWN_PROVISIONER}}}), &Deletion::Object);
}

#[test]
fn a_bound_claim_grows_with_its_volume() {
    let growing = claim(&json!({
        "spec": {"resources": {"requests": {"storage": "3Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": [{"type": "Resizing", "status": "True"}]},
    }));
    assert!(provision::wants_more(&growing));
    let larger = volume("v", "3Gi", &json!({}));
    let kept = status(&growing, "Bound", Some(&larger)).capacity.expect("a capacity");
    assert_eq!(kept[STORAGE].0, "2Gi", "the resizer says when it has grown");
    let grown = provision::resized(&growing, requested(&growing).into());
    assert_eq!(grown.capacity.as_ref().expect("a capacity")[STORAGE].0, "3Gi");
    assert_eq!(grown.allocated_resources.as_ref().expect("resources")[STORAGE].0, "3Gi");
    assert_eq!(grown.conditions, None);
    assert!(!provision::wants_more(&PersistentVolumeClaim { status: Some(grown), ..growing }));
    let fresh =
        PersistentVolumeClaimStatus { phase: Some("Pending".to_owned()), ..PersistentVolumeClaimStatus::default() };
    let fresh = PersistentVolumeClaim { status: Some(fresh), ..claim(&json!({})) };
    assert_eq!(status(&fresh, "Bound", Some(&larger)).capacity.expect("a capacity")[STORAGE].0, "3Gi");
    assert_eq!(status(&fresh, "Pending", None), fresh.status.clone().expect("a status"));
}

proptest! {
    /// What is found fits, and nothing that fits and has no more modes is smaller.
    #[test]
    fn the_best_volume_fits_and_is_smallest(
        volumes in prop::collection::vec((1..6_u8, 0..3_usize, any::<bool>(), any::<bool>()), 0..8),
        size in 1..6_u8,
    ) {
        let modes = [json!(["ReadWriteOnce"]), json!(["ReadWriteMany"]), json!(["ReadWriteOnce", "ReadWriteMany"])];
        let all: Vec<_> = volumes.iter().enumerate().map(|(index, (size, mode, available, block))| volume(
            &index.to_string(), &format!("{size}Gi"), &json!({
                "spec": {"accessModes": modes[*mode], "volumeMode": if *block { "Block" } else { "Filesystem" }},
                "status": {"phase": if *available { "Available" } else { "Bound" }},
            }),
        )).collect();
        let claimed = claim(&json!({"spec": {"resources": {"requests": {"storage": format!("{size}Gi")}}}}));
        let fits = |(has, mode, available, block): &(u8, usize, bool, bool)| {
            *has >= size && *mode != 1 && *available && !*block
        };
        let best = volumes.iter().filter(|volume| fits(volume)).map(|(has, mode, ..)| (*mode, *has)).min();
        let chosen = found(&claimed, &all, false).map(|name| volumes[name.parse::<usize>().expect("a number")]);
        prop_assert!(chosen.as_ref().is_none_or(fits));
        prop_assert_eq!(chosen.map(|(has, mode, ..)| (mode, has)), best);
    }
}
