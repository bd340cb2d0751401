//! Pure parts: data, choice and truncation of revisions.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn template_of(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]},
    }))
    .unwrap()
}

fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
    Arc::new(ControllerRevision {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(RawExtension(data(&template_of(image)))),
        revision: number,
    })
}

#[test]
fn the_data_of_a_revision_restores_its_template() {
    let restored = revision("r", 1, "i:1");
    assert_eq!(restored.data.as_ref().unwrap().0["spec"]["template"]["$patch"], "replace");
    assert_eq!(template(&restored).unwrap(), template_of("i:1"));
    assert!(restores(&restored, &template_of("i:1")) && !restores(&restored, &template_of("i:2")));
    assert!(template(&ControllerRevision::default()).is_none());
}

#[test]
fn an_old_template_gets_a_new_revision_number() {
    let known = [revision("a", 1, "i:1"), revision("b", 2, "i:2")];
    for (known, image, expected) in [
        (&known[..0], "i:1", Choice::Create(1)),
        (&known[..], "i:2", Choice::Keep(1)),
        (&known[..], "i:1", Choice::Renumber(0, 3)),
        (&known[..], "i:3", Choice::Create(3)),
    ] {
        assert_eq!(choose(known, &template_of(image)), expected, "{image}");
    }
}

#[test]
fn collisions_change_the_hash() {
    assert_eq!(hash(b"x", None), hash(b"x", None));
    assert_ne!(hash(b"x", Some(0)), hash(b"x", Some(1)));
    // FNV-1 of 32 bits, as Go's `hash/fnv` has it: "a" is 0x050c5d7e.
    assert_eq!(hash(b"a", None), safe_encode(0x050c_5d7e));
    assert_eq!(name(&"n".repeat(240), "h").len(), 225);
}

proptest! {
    #[test]
    fn sorting_does_not_depend_on_the_order_before(numbers in prop::collection::vec(0..4i64, 0..8), turn in 0..8usize) {
        let mut known: Vec<_> =
            numbers.iter().enumerate().map(|(at, number)| revision(&format!("r{at}"), *number, "i")).collect();
        let mut turned = known.clone();
        turned.rotate_left(turn.min(known.len()));
        sort(&mut known);
        sort(&mut turned);
        prop_assert_eq!(&known, &turned);
        prop_assert!(known.is_sorted_by_key(|revision| revision.revision));
    }

    #[test]
    fn the_newest_unused_revisions_stay(count in 0..15i64, limit in prop::option::of(-1..12i32)) {
        let unused: Vec<_> = (0..count).map(|number| revision("r", number, "i")).collect();
        let gone = surplus(unused.clone(), limit);
        let kept = limit.unwrap_or(10);
        let expected = if kept < 0 { 0 } else { (count - i64::from(kept)).max(0) };
        prop_assert_eq!(gone.len() as i64, expected);
        prop_assert_eq!(&gone[..], &unused[..gone.len()]);
    }
}
