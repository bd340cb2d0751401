//! The store's rules: replacing without emptying, deletions, indexes, own writes.
#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::*;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("default".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            labels: Some([("app".to_string(), name.to_string())].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn maps() -> Kind {
    Kind::of::<ConfigMap>(&())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// `+name@version` added, `~` updated, `-` deleted, `!` marks the initial state.
fn show<'a>(changes: impl IntoIterator<Item = &'a Told>) -> Vec<String> {
    let name = |object: &Shared| {
        let meta = object.metadata();
        format!("{}@{}", meta.name.clone().unwrap(), meta.resource_version.clone().unwrap())
    };
    changes
        .into_iter()
        .map(|change| match change {
            Change::Added { object, initial } => {
                format!("+{}{}", name(object), if *initial { "!" } else { "" })
            }
            Change::Updated { old, new } => format!("~{}>{}", name(old), name(new)),
            Change::Resync { object } => format!("={}", name(object)),
            Change::Deleted { object } => format!("-{}", name(object)),
        })
        .collect()
}

fn version(store: &Store, name: &str) -> Option<u64> {
    store.get(&key(name)).and_then(|object| object.version())
}

fn upsert(store: &mut Store, object: ConfigMap, initial: bool) -> Vec<String> {
    show(store.upsert(object.into(), initial).iter().flatten())
}

fn listed(items: &[(&str, &str, u64)], version: u64) -> Store {
    let mut store = Store::new(maps(), Arc::default());
    store.begin_replace();
    for (name, uid, version) in items {
        store.upsert(object(name, uid, *version).into(), true);
    }
    store.finish_replace(&version.to_string());
    store
}

#[test]
fn a_list_replaces_without_emptying() {
    let mut store = listed(&[("a", "1", 1), ("b", "2", 2), ("c", "3", 3)], 5);
    store.begin_replace();
    assert_eq!(store.len(), 3);
    assert!(upsert(&mut store, object("a", "1", 1), true).is_empty());
    assert_eq!(upsert(&mut store, object("b", "2", 7), true), ["~b@2>b@7"]);
    assert_eq!(upsert(&mut store, object("d", "4", 8), true), ["+d@8"]);
    assert_eq!(store.len(), 4, "c is still there while the list is incomplete");
    assert_eq!(show(&store.finish_replace("9")), ["-c@3"]);
    assert_eq!(store.len(), 3);
}

#[test]
fn objects_recreated_unseen_are_deleted_and_added() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.begin_replace();
    assert_eq!(upsert(&mut store, object("a", "9", 8), true), ["-a@1", "+a@8"]);
}

#[test]
fn unreadable_objects_keep_their_state_until_deleted() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.begin_replace();
    store.keep(&key("a"));
    assert!(store.finish_replace("6").is_empty());
    let change = store.remove(&key("a"), None, "7");
    assert_eq!(show(&change), ["-a@1"]);
}

#[test]
fn a_deletion_carries_the_final_state() {
    let mut store = listed(&[("a", "1", 1)], 5);
    let change = store.remove(&key("a"), Some(Arc::new(object("a", "1", 6))), "6");
    assert_eq!(show(&change), ["-a@6"]);
    assert!(store.get(&key("a")).is_none());
}

#[test]
fn indexes_follow_changes() {
    let mut store = listed(&[("a", "1", 1), ("b", "2", 2)], 5);
    store.add_index(
        "app",
        Arc::new(|object: &dyn AnyObject| {
            object.metadata().labels.iter().filter_map(|labels| labels.get("app").cloned()).collect()
        }),
    );
    assert_eq!(store.by_index("app", "a").len(), 1);
    let mut moved = object("a", "1", 6);
    moved.metadata.labels = Some([("app".to_string(), "b".to_string())].into());
    store.upsert(moved.into(), false);
    assert_eq!(store.by_index("app", "a").len(), 0);
    assert_eq!(store.by_index("app", "b").len(), 2);
    store.remove(&key("b"), None, "7");
    assert_eq!(store.by_index("app", "b").len(), 1);
}

#[test]
fn reads_are_never_older_than_own_writes() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.note_write(Arc::new(object("a", "1", 8)), true);
    assert_eq!(version(&store, "a"), Some(8));
    // The watch is behind: what it says does not hide the write, yet handlers hear of it.
    assert_eq!(upsert(&mut store, object("a", "1", 6), false), ["~a@1>a@6"]);
    assert_eq!(version(&store, "a"), Some(8));
    assert_eq!(upsert(&mut store, object("a", "1", 8), false), ["~a@6>a@8"]);
    assert!(store.writes.is_empty());
    assert_eq!(upsert(&mut store, object("a", "1", 9), false), ["~a@8>a@9"]);
    assert_eq!(version(&store, "a"), Some(9));
}

#[test]
fn a_late_note_does_not_bring_back_deleted_objects() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.upsert(object("a", "1", 6).into(), false);
    store.remove(&key("a"), None, "7");
    store.note_write(Arc::new(object("a", "1", 6)), true);
    assert!(store.get(&key("a")).is_none());
}

#[test]
fn a_bookmark_past_the_write_settles_it() {
    let mut store = listed(&[], 5);
    store.note_write(Arc::new(object("a", "1", 8)), true);
    assert_eq!(store.len(), 1);
    store.advance(9);
    assert_eq!(store.len(), 0, "written, deleted by another, both missed");
}

#[test]
fn own_deletions_and_later_objects_are_seen_at_once() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.note_delete(&key("a"), Some("1"));
    assert!(store.get(&key("a")).is_none());
    assert_eq!(store.iter().count(), 0);
    // A change that the watch reports late does not bring it back.
    store.upsert(object("a", "1", 6).into(), false);
    assert!(store.get(&key("a")).is_none());
    let change = store.remove(&key("a"), Some(Arc::new(object("a", "1", 7))), "7");
    assert_eq!(show(&change), ["-a@7"]);
    assert!(store.writes.is_empty());
    store.upsert(object("a", "2", 8).into(), false);
    assert_eq!(version(&store, "a"), Some(8));
}

#[test]
fn late_notes_of_deletions_are_ignored() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.remove(&key("a"), None, "6");
    store.upsert(object("a", "2", 7).into(), false);
    store.note_delete(&key("a"), Some("1"));
    assert_eq!(version(&store, "a"), Some(7));
}

#[test]
fn write_responses_after_own_deletion_restore_nothing() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.note_delete(&key("a"), Some("1"));
    store.note_write(Arc::new(object("a", "1", 6)), true);
    assert!(store.get(&key("a")).is_none());
    // One of an earlier object of the name, which another client has deleted, does neither.
    store.note_write(Arc::new(object("a", "2", 9)), true);
    store.note_delete(&key("a"), None);
    store.note_write(Arc::new(object("a", "0", 8)), true);
    assert_eq!(store.len(), 0);
    store.remove(&key("a"), Some(Arc::new(object("a", "1", 7))), "7");
    store.upsert(object("a", "2", 9).into(), false);
    assert_eq!(store.len(), 0, "the watch is behind");
    store.remove(&key("a"), Some(Arc::new(object("a", "2", 10))), "10");
    assert!(store.writes.is_empty() && store.deleted.len() == 0);
    store.note_write(Arc::new(object("a", "2", 9)), true);
    assert_eq!(store.len(), 0, "older than what the watch has said");
    store.note_write(Arc::new(object("a", "3", 11)), true);
    assert_eq!(version(&store, "a"), Some(11));
}

#[test]
fn objects_made_and_deleted_during_a_list_stay_unseen() {
    let mut store = Store::new(maps(), Arc::default());
    store.begin_replace();
    store.note_write(Arc::new(object("a", "1", 8)), true);
    assert_eq!(store.len(), 1);
    store.note_delete(&key("a"), Some("1"));
    assert!(store.finish_replace("5").is_empty(), "the list is of before");
    assert_eq!(upsert(&mut store, object("a", "1", 8), false), ["+a@8"]);
    assert!(store.get(&key("a")).is_none() && store.len() == 0 && store.iter().next().is_none());
    assert_eq!(show(&store.remove(&key("a"), Some(Arc::new(object("a", "1", 9))), "9")), ["-a@9"]);
    assert!(store.writes.is_empty() && store.deleted.len() == 0);
}

#[test]
fn own_writes_in_another_version_are_awaited() {
    let mut store = listed(&[("a", "1", 1), ("b", "2", 2)], 5);
    store.note_elsewhere(&key("a"), 5);
    assert!(!store.is_behind(&key("a")), "the watch is there already");
    store.note_elsewhere(&key("a"), 8);
    store.note_elsewhere(&key("a"), 7);
    store.note_elsewhere(&key("b"), 9);
    store.note_write(Arc::new(object("a", "1", 7)), true);
    assert!(store.is_behind(&key("a")), "read too early");
    store.note_write(Arc::new(object("a", "1", 8)), true);
    assert!(!store.is_behind(&key("a")) && store.is_behind(&key("b")));
    store.upsert(object("c", "3", 9).into(), false);
    assert!(!store.is_behind(&key("b")));
    store.note_elsewhere(&key("b"), 12);
    store.note_delete(&key("b"), Some("2"));
    assert!(!store.is_behind(&key("b")) && store.get(&key("b")).is_none());
}

#[test]
fn an_older_list_does_not_undo_own_writes_and_deletions() {
    let mut store = listed(&[], 3);
    store.begin_replace();
    store.note_write(Arc::new(object("a", "2", 10)), true);
    store.note_delete(&key("a"), Some("2"));
    store.upsert(object("a", "1", 5).into(), true);
    store.finish_replace("6");
    assert!(store.get(&key("a")).is_none());
    store.remove(&key("a"), Some(Arc::new(object("a", "1", 7))), "7");
    store.upsert(object("a", "2", 10).into(), false);
    assert!(store.get(&key("a")).is_none());
    store.remove(&key("a"), Some(Arc::new(object("a", "2", 11))), "11");
    store.upsert(object("a", "3", 12).into(), false);
    assert_eq!(version(&store, "a"), Some(12));
}

#[test]
fn unknown_deletions_are_remembered_until_a_later_list() {
    let mut store = listed(&[], 5);
    store.note_delete(&key("a"), Some("1"));
    store.upsert(object("a", "1", 6).into(), false);
    assert_eq!(store.len(), 0, "made by another, and the watch is behind");
    store.begin_replace();
    store.note_delete(&key("b"), Some("2"));
    store.finish_replace("9");
    assert_eq!(store.deleted.len(), 1, "of the other the list may have been too early");
    store.begin_replace();
    store.finish_replace("12");
    assert_eq!(store.deleted.len(), 0);
    assert!(store.writes.is_empty());
}

#[test]
fn a_write_that_leaves_the_selector_hides_the_object() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.note_write(Arc::new(object("a", "1", 8)), false);
    assert!(store.get(&key("a")).is_none());
    store.note_write(Arc::new(object("b", "2", 9)), false);
    assert!(store.get(&key("b")).is_none());
    assert_eq!(store.writes.len(), 1);
}

#[test]
fn what_left_the_selector_stays_out_whatever_happened_before() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.note_write(Arc::new(object("a", "1", 10)), false);
    store.remove(&key("a"), Some(Arc::new(object("a", "1", 7))), "7");
    assert_eq!(upsert(&mut store, object("a", "1", 8), false), ["+a@8"]);
    assert!(store.get(&key("a")).is_none(), "the watch is behind");
    store.remove(&key("a"), Some(Arc::new(object("a", "1", 10))), "10");
    assert!(store.writes.is_empty());
}

#[test]
fn informers_that_never_sync_do_not_collect_writes() {
    let mut store = Store::new(maps(), Arc::default());
    let mut version = 0;
    let mut write = |store: &mut Store, many: u64| {
        for _ in 0..many {
            version += 1;
            store.note_write(Arc::new(object(&version.to_string(), &version.to_string(), version)), true);
            store.note_elsewhere(&key(&version.to_string()), version);
        }
        (store.writes.len(), store.behind.len())
    };
    assert_eq!(write(&mut store, 100), (0, 0), "the first list will have them");
    store.begin_replace();
    assert_eq!(write(&mut store, 100), (100, 100));
    assert!(store.get(&key("200")).is_some());
    store.begin_replace();
    assert_eq!(write(&mut store, 1), (1, 1), "the next list will have the others");
    let (writes, behind) = write(&mut store, 70_000);
    assert!(writes <= REMEMBERED && behind <= REMEMBERED, "{writes} {behind}");
    assert!(store.get(&key("70201")).is_some() && store.is_behind(&key("70201")));
}

#[test]
fn a_server_restored_from_a_backup_clears_what_was_written() {
    let mut store = listed(&[("a", "1", 900)], 1000);
    store.note_write(Arc::new(object("a", "1", 1001)), true);
    store.begin_replace();
    store.upsert(object("a", "1", 40).into(), true);
    store.finish_replace("50");
    assert_eq!(version(&store, "a"), Some(40));
}

fn fresh(object: &ConfigMap) -> Fresh {
    Fresh { object: Arc::new(object.clone()), json: Some(serde_json::to_vec(object).unwrap().into()) }
}

#[test]
fn what_is_not_used_is_kept_as_bytes() {
    let mut store = Store::new(maps(), Arc::default());
    store.begin_replace();
    store.upsert(fresh(&object("a", "1", 1)), true);
    store.upsert(fresh(&object("b", "2", 2)), true);
    store.finish_replace("5");
    let decoded = |store: &Store, name| store.objects[&key(name)].decoded.lock().is_some();
    assert!(!decoded(&store, "a"), "listed objects are not kept decoded");
    assert_eq!(version(&store, "a"), Some(1));
    assert!(!decoded(&store, "a"), "nor is one that was read once");
    assert_eq!(version(&store, "a"), Some(1));
    assert!(decoded(&store, "a"), "one that is read again is");
    assert_eq!(store.sweep(), 1);
    assert_eq!(store.sweep(), 0, "until it was not used for a while");
    assert_eq!(upsert(&mut store, object("b", "2", 6), false), ["~b@2>b@6"]);
    let changed = fresh(&object("a", "1", 7));
    assert_eq!(show(store.upsert(changed, false).iter().flatten()), ["~a@1>a@7"]);
    assert!(decoded(&store, "a"), "what changed just now will be looked at soon");
    store.sweep();
    assert!(show(store.upsert(fresh(&object("a", "1", 7)), true).iter().flatten()).is_empty());
    store.sweep();
    assert_eq!(store.sweep(), 1, "only b, of which there are no bytes");
}

#[test]
fn no_more_objects_stay_decoded_than_allowed() {
    let mut store = Store::new(maps(), Arc::default()).most_decoded(Some(2));
    let decoded = |store: &Store| ["a", "b", "c"].map(|name| store.objects[&key(name)].decoded.lock().is_some());
    for (name, version) in [("a", 1), ("b", 2), ("c", 3)] {
        store.upsert(fresh(&object(name, name, version)), false);
    }
    assert_eq!(decoded(&store), [false, true, true], "the first one goes");
    store.upsert(fresh(&object("b", "b", 4)), false);
    assert_eq!(decoded(&store), [false, true, true], "what is decoded again counts once more");
    assert_eq!(version(&store, "a"), Some(1));
    assert_eq!(decoded(&store), [true, true, false], "one that is read makes another one go");
}

#[test]
fn objects_that_are_not_decoded_are_packed() {
    let mut store = Store::new(maps(), Arc::default()).most_decoded(Some(2));
    let with_data = |name: &str, version| {
        let mut object = object(name, name, version);
        object.data.get_or_insert_default().extend((0..30).map(|key| (format!("key-{key}"), "value".to_owned())));
        fresh(&object)
    };
    let is_packed = |store: &Store, name| matches!(store.objects[&key(name)].json, Kept::Packed(_));
    store.begin_replace();
    store.upsert(with_data("a", 1), true);
    store.finish_replace("5");
    assert!(is_packed(&store, "a"), "listed");
    assert!(show(store.upsert(with_data("a", 1), true).iter().flatten()).is_empty(), "the same");
    for (name, version) in [("b", 6), ("c", 7), ("d", 8)] {
        store.upsert(with_data(name, version), false);
    }
    assert_eq!(["a", "b", "c", "d"].map(|name| is_packed(&store, name)), [true, true, false, false]);
    assert_eq!((version(&store, "b"), version(&store, "b")), (Some(6), Some(6)), "decoded again, instead of c");
    assert_eq!(show(store.upsert(with_data("a", 9), false).iter().flatten()), ["~a@1>a@9"]);
    store.sweep();
    store.sweep();
    assert!(["a", "b", "c", "d"].iter().all(|name| is_packed(&store, name)));
    assert_eq!(store.iter().filter(|one| one.version() > Some(5)).count(), 4);
}

#[test]
fn objects_changed_in_the_same_version_are_indexed_again() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.add_index(
        "app",
        Arc::new(|object: &dyn AnyObject| {
            object.metadata().labels.iter().flat_map(|labels| labels.values().cloned()).collect()
        }),
    );
    store.begin_replace();
    let mut other = object("a", "1", 1);
    other.metadata.labels = Some([("app".to_owned(), "default".to_owned())].into());
    assert!(show(store.upsert(fresh(&other), true).iter().flatten()).is_empty());
    store.finish_replace("6");
    assert!(store.by_index("app", "a").is_empty());
    assert_eq!(store.by_index("app", "default").len(), 1);
}

#[test]
fn a_panicking_index_only_lacks_the_object() {
    let mut store = listed(&[("a", "1", 1)], 5);
    store.add_index(
        "app",
        Arc::new(|object: &dyn AnyObject| vec![object.metadata().labels.as_ref().unwrap()["app"].clone()]),
    );
    let mut bare = object("a", "1", 6);
    bare.metadata.labels = None;
    assert_eq!(upsert(&mut store, bare.clone(), false), ["~a@1>a@6"]);
    assert!(store.by_index("app", "a").is_empty());
    assert_eq!(version(&store, "a"), Some(6));
    upsert(&mut store, object("b", "2", 7), false);
    assert_eq!(store.by_index("app", "b").len(), 1);
    bare.metadata.resource_version = Some("9".into());
    store.note_write(Arc::new(bare), true);
    assert_eq!(store.by_index("app", "b").len(), 1, "own writes are looked at one by one");
    assert!(store.panics.load(Ordering::Relaxed) >= 2);
}

#[test]
fn what_was_deleted_stays_hidden_however_much_is_written() {
    let mut store = listed(&[("a", "1", 5), ("b", "2", 6)], 10);
    store.note_delete(&key("a"), Some("1"));
    for version in 11..=80_000 {
        store.note_write(Arc::new(object(&version.to_string(), &version.to_string(), version)), true);
    }
    assert!(store.get(&key("a")).is_none(), "not told by the watch yet");
    assert!(store.get(&key("80000")).is_some() && store.get(&key("11")).is_none());
    assert!(store.writes.len() <= REMEMBERED + 1);
}

#[test]
fn many_deletions_leave_room_for_writes() {
    let many: Vec<String> = (1..=REMEMBERED + 10).map(|n| n.to_string()).collect();
    let items: Vec<(&str, &str, u64)> = many.iter().map(|name| (name.as_str(), name.as_str(), 5)).collect();
    let mut store = listed(&items, 10);
    for name in &many {
        store.note_delete(&key(name), Some(name));
    }
    for version in 11..=20_000 {
        store.note_write(Arc::new(object(&format!("new-{version}"), &format!("new-{version}"), version)), true);
    }
    assert_eq!(store.len(), 20_000 - 10, "nothing deleted is shown, nothing written is forgotten");
}
