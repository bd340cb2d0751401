//! What a deployment notes on its ReplicaSets: their revision, and the sizes it had when it last
//! scaled them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::{numbers, replicas};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Not copied from a deployment to its ReplicaSets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// The longest history kept, in characters.
const HISTORY_LENGTH: usize = 2000;

fn annotation<'a>(set: &'a ReplicaSet, name: &str) -> Option<&'a str> {
    set.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn annotations(set: &mut ReplicaSet) -> &mut BTreeMap<String, String> {
    set.metadata.annotations.get_or_insert_default()
}

/// The revision of a ReplicaSet; 0 without one.
pub(super) fn revision(set: &ReplicaSet) -> i64 {
    annotation(set, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How many replicas the deployment asked for when it last scaled a ReplicaSet.
pub(super) fn desired_replicas(set: &ReplicaSet) -> Option<i32> {
    number(set, DESIRED)
}

/// How many replicas the deployment could have had when it last scaled a ReplicaSet.
pub(super) fn max_replicas(set: &ReplicaSet) -> Option<i32> {
    number(set, MAX)
}

fn number(set: &ReplicaSet, name: &str) -> Option<i32> {
    annotation(set, name)?.parse().ok().filter(|number| *number >= 0)
}

/// Notes the deployment's size on a ReplicaSet; whether that changed anything.
pub(super) fn note_size(set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let desired = replicas(deployment);
    let max = desired + numbers::max_surge(deployment);
    let noted = annotations(set);
    let mut put = |name: &str, value: i32| {
        let value = value.to_string();
        noted.insert(name.to_owned(), value.clone()).as_deref() != Some(&*value)
    };
    let (desired, max) = (put(DESIRED, desired), put(MAX, max));
    desired || max
}

/// Brings the annotations of a deployment's newest ReplicaSet up to date; whether that changed anything.
pub(super) fn note_revision(set: &mut ReplicaSet, deployment: &Deployment, revision: i64, exists: bool) -> bool {
    let mut changed = false;
    let known = annotations(set);
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&&**name) && known.get(name) != Some(value) {
            known.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    let old = known.get(REVISION).cloned();
    let old_number = match old.as_deref().unwrap_or_default() {
        "" => 0,
        text => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return false,
        },
    };
    if old_number < revision {
        known.insert(REVISION.to_owned(), revision.to_string());
        changed = true;
        // It had a revision and gets a higher one: a rollback to it.
        if let Some(old) = old {
            note_history(known, &old);
        }
    }
    if !exists {
        changed |= note_size(set, deployment);
    }
    changed
}

fn note_history(annotations: &mut BTreeMap<String, String>, old: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(old);
    while revisions.len() > 1 && revisions.iter().map(|revision| revision.len() + 1).sum::<usize>() > HISTORY_LENGTH + 1
    {
        revisions.remove(0);
    }
    annotations.insert(HISTORY.to_owned(), revisions.join(","));
}
