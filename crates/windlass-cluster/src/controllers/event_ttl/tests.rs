//! Revisions expire in order, an hour after they were noted.

use super::*;

#[test]
fn what_was_written_an_hour_ago_has_expired() {
    let at = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
    let mut marks = Marks::default();
    assert_eq!(marks.expired(at(0)), None);
    for (minute, revision) in [(0, 10), (5, 20), (10, 20), (15, 40)] {
        marks.note(revision, at(minute));
        assert_eq!(marks.expired(at(minute)), None);
    }
    assert_eq!(marks.expired(at(59)), None);
    assert_eq!(marks.expired(at(60)), Some(10));
    assert_eq!(marks.expired(at(60)), None, "said once");
    assert_eq!(marks.expired(at(71)), Some(20));
    assert_eq!(marks.expired(at(200)), Some(40));
    assert_eq!(marks.expired(at(300)), None);
}
