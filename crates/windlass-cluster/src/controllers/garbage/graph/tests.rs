//! The graph alone: what a sequence of observations calls for.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn kind() -> Kind {
    Kind::new("v1", "ConfigMap")
}

fn object(namespace: &str, name: &str, more: &Value) -> Metadata {
    let mut metadata = json!({"namespace": namespace, "name": name, "uid": format!("{name}-uid")});
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

fn owner(name: &str, blocks: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("{name}-uid"), "blockOwnerDeletion": blocks})
}

fn owned(name: &str, owners: &[Value]) -> Metadata {
    object("d", name, &json!({"ownerReferences": owners}))
}

fn sorted(effects: Effects) -> Vec<String> {
    let mut uids: Vec<String> = effects.delete.into_iter().map(|uid| uid.to_string()).collect();
    uids.sort();
    uids
}

#[test]
fn dependents_are_looked_at_when_their_owner_goes() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(&kind(), 1, &object("d", "a", &json!({})), None), Effects::default());
    for name in ["b", "c"] {
        assert_eq!(graph.observe(&kind(), 1, &owned(name, &[owner("a", false)]), None), Effects::default());
    }
    assert_eq!(sorted(graph.delete("a-uid")), ["b-uid", "c-uid"]);
    assert!(graph.is_absent(&Identity::of_owner(&serde_json::from_value(owner("a", false)).unwrap(), "d")));
}

#[test]
fn an_owner_that_was_not_seen_is_looked_for() {
    let mut graph = Graph::default();
    assert_eq!(sorted(graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None)), ["a-uid"]);
    let virtual_node = graph.node("a-uid").unwrap().clone();
    assert!(virtual_node.is_virtual);
    let (effects, again) = graph.absent(&virtual_node.identity);
    assert_eq!((sorted(effects), again), (vec!["b-uid".to_owned()], false));
    assert!(graph.node("a-uid").is_none());
}

#[test]
fn an_owner_seen_later_is_no_longer_virtual() {
    let mut graph = Graph::default();
    graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None);
    assert_eq!(graph.observe(&kind(), 1, &object("d", "a", &json!({})), None), Effects::default());
    assert!(!graph.node("a-uid").unwrap().is_virtual);
    assert_eq!(graph.dependents("a-uid").len(), 1);
}

#[test]
fn owners_in_other_namespaces_are_reported() {
    let mut graph = Graph::default();
    graph.observe(&kind(), 1, &object("other", "a", &json!({})), None);
    let effects = graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None);
    assert_eq!(effects.misplaced.len(), 1);
    assert_eq!(effects.misplaced[0].1.to_string(), "[v1/ConfigMap, namespace: d, name: a, uid: a-uid]");
    assert_eq!(sorted(effects), ["b-uid"]);

    let mut graph = Graph::default();
    graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None);
    let effects = graph.observe(&kind(), 1, &object("other", "a", &json!({})), None);
    assert_eq!(effects.misplaced.len(), 1);
    assert_eq!(sorted(effects), ["b-uid"]);
}

#[test]
fn owners_with_two_names_are_looked_up_by_both() {
    let mut graph = Graph::default();
    let mut other = owner("a", false);
    other["kind"] = json!("Secret");
    graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None);
    // What the second says does not fit what the first said: it is looked at.
    assert_eq!(sorted(graph.observe(&kind(), 1, &owned("c", &[other]), None)), ["c-uid"]);
    let identity = graph.node("a-uid").unwrap().identity.clone();
    let (effects, again) = graph.absent(&identity);
    assert_eq!((sorted(effects), again), (vec!["b-uid".to_owned()], true));
    assert_eq!(&*graph.node("a-uid").unwrap().identity.kind.name, "Secret");
}

#[test]
fn foreground_deletion_waits_for_what_blocks() {
    let mut graph = Graph::default();
    let plain = object("d", "a", &json!({}));
    graph.observe(&kind(), 1, &plain, None);
    let (blocking, free) = (owned("b", &[owner("a", true)]), owned("c", &[owner("a", false)]));
    graph.observe(&kind(), 1, &blocking, None);
    graph.observe(&kind(), 1, &free, None);
    let deleting = object("d", "a", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FOREGROUND]}));
    assert_eq!(sorted(graph.observe(&kind(), 1, &deleting, Some(&plain))), ["a-uid", "b-uid", "c-uid"]);
    assert_eq!(graph.observe(&kind(), 1, &deleting, Some(&deleting)), Effects::default());
    assert!(graph.node("a-uid").unwrap().is_deleting_dependents);
    assert_eq!(graph.blocking("a-uid").len(), 1);
    // Unblocking and going both let the owner look again.
    let unblocked = owned("b", &[owner("a", false)]);
    assert_eq!(sorted(graph.observe(&kind(), 1, &unblocked, Some(&blocking))), ["a-uid"]);
    assert!(graph.blocking("a-uid").is_empty());
    assert_eq!(sorted(graph.delete("b-uid")), ["a-uid"]);
}

#[test]
fn orphaning_begins_with_the_deletion() {
    let mut graph = Graph::default();
    let deleting = object("d", "a", &json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [ORPHAN]}));
    let effects = graph.observe(&kind(), 1, &deleting, None);
    assert_eq!(effects.orphan, ["a-uid".into()]);
    assert!(effects.delete.is_empty());
}

#[test]
fn an_object_that_changes_owners_leaves_the_old_one() {
    let mut graph = Graph::default();
    graph.observe(&kind(), 1, &object("d", "a", &json!({})), None);
    graph.observe(&kind(), 1, &object("d", "z", &json!({})), None);
    let before = owned("b", &[owner("a", false)]);
    graph.observe(&kind(), 1, &before, None);
    graph.observe(&kind(), 1, &owned("b", &[owner("z", false)]), Some(&before));
    assert!(graph.dependents("a-uid").is_empty());
    assert_eq!(graph.dependents("z-uid").len(), 1);
}

/// A jar, watched by itself, and a ConfigMap of it.
fn jar_and_map(graph: &mut Graph) -> Kind {
    let jar = Kind::new("example.com/v1", "Jar");
    graph.observe(&jar, 2, &object("d", "a", &json!({})), None);
    graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None);
    jar
}

#[test]
fn dependents_of_a_deleted_kind_are_looked_at() {
    let mut graph = Graph::default();
    jar_and_map(&mut graph);
    assert_eq!(sorted(graph.forget(2, Ending::Deleted)), ["b-uid"]);
    assert!(graph.node("a-uid").is_none());
    assert!(graph.node("b-uid").unwrap().has_lost("a-uid"));
}

#[test]
fn owners_of_an_unserved_kind_are_looked_for() {
    let mut graph = Graph::default();
    let jar = jar_and_map(&mut graph);
    assert_eq!(sorted(graph.forget(2, Ending::Unserved)), ["a-uid"]);
    assert!(graph.node("a-uid").unwrap().is_virtual);
    // It is served again: nothing has changed.
    assert_eq!(graph.observe(&jar, 3, &object("d", "a", &json!({})), None), Effects::default());
    assert_eq!(sorted(graph.delete("a-uid")), ["b-uid"]);
}

#[test]
fn a_watch_that_ends_takes_nothing_from_a_later_one() {
    for (first, second) in [(2, 3), (3, 2)] {
        let mut graph = Graph::default();
        let jar = jar_and_map(&mut graph);
        for watch in [first, second] {
            graph.observe(&jar, watch, &object("d", "a", &json!({})), None);
        }
        for ending in [Ending::Unserved, Ending::Deleted] {
            assert_eq!(graph.forget(2, ending), Effects::default());
        }
        assert_eq!(sorted(graph.delete("a-uid")), ["b-uid"]);
    }
}

#[test]
fn owners_do_not_wait_for_kinds_that_are_gone() {
    for ending in [Ending::Unserved, Ending::Deleted] {
        let mut graph = Graph::default();
        let jar = Kind::new("example.com/v1", "Jar");
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FOREGROUND]});
        graph.observe(&kind(), 1, &object("d", "a", &deleting), None);
        graph.observe(&jar, 2, &owned("b", &[owner("a", true)]), None);
        assert_eq!(sorted(graph.forget(2, ending)), ["a-uid"]);
        assert!(graph.blocking("a-uid").is_empty());
    }
}

#[test]
fn a_dependent_seen_after_its_owner_went_is_looked_at() {
    let mut graph = Graph::default();
    graph.observe(&kind(), 1, &object("d", "a", &json!({})), None);
    graph.delete("a-uid");
    assert_eq!(sorted(graph.observe(&kind(), 1, &owned("b", &[owner("a", false)]), None)), ["b-uid"]);
    assert!(graph.node("b-uid").unwrap().has_lost("a-uid"));
    assert!(graph.node("a-uid").is_none());
}

#[test]
fn what_is_absent_is_not_remembered_forever() {
    let mut graph = Graph::default();
    let identity =
        |n: usize| Identity { kind: kind(), namespace: "d".into(), name: "x".into(), uid: n.to_string().into() };
    for n in 0..=ABSENT {
        graph.note_absent(identity(n));
    }
    assert!(!graph.is_absent(&identity(0)) && graph.is_absent(&identity(1)) && graph.is_absent(&identity(ABSENT)));
}
