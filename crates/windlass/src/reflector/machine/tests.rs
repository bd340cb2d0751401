//! The reflector's transitions, without a server.
#![allow(clippy::unwrap_used)]

use super::*;

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(250);

fn object(resource_version: &str) -> Signal<'_> {
    Signal::Object { resource_version }
}

fn bookmark(resource_version: &str, initial_end: bool) -> Signal<'_> {
    Signal::Bookmark { resource_version, initial_end }
}

fn watch(resource_version: &str) -> Step {
    Step::Watch { resource_version: resource_version.into() }
}

const FIRST_PAGE: Step = Step::List { continue_token: None };

/// A machine that streamed its initial state up to version 10.
fn watching() -> Machine {
    let mut machine = Machine::new();
    assert_eq!(machine.step(), Step::StreamList);
    machine.opened();
    assert_eq!(machine.step(), Step::Read);
    assert_eq!(machine.signal(&object("3")), Phase::Initial);
    assert_eq!(machine.signal(&bookmark("9", false)), Phase::Initial);
    assert_eq!(machine.signal(&bookmark("10", true)), Phase::Complete);
    assert_eq!(machine.step(), Step::Read);
    machine
}

#[test]
fn resumes_from_the_last_object_or_bookmark() {
    let mut machine = watching();
    assert_eq!(machine.signal(&object("12")), Phase::Live);
    assert_eq!(machine.signal(&bookmark("15", false)), Phase::Live);
    machine.ended(LONG, 0.0);
    assert_eq!(machine.step(), Step::Verify);
    machine.verified("15", SHORT, 0.0);
    assert_eq!(machine.step(), watch("15"));
    machine.opened();
    assert_eq!(machine.step(), Step::Read);
}

#[test]
fn unsupported_streaming_falls_back_to_pages_at_once() {
    let mut machine = Machine::new();
    assert_eq!(machine.step(), Step::StreamList);
    machine.failed(Failure::Unsupported, SHORT, 0.0);
    assert_eq!(machine.step(), FIRST_PAGE);
    assert!(!machine.page("", Some("next".into())));
    assert_eq!(machine.step(), Step::List { continue_token: Some("next".into()) });
    assert!(machine.page("20", None));
    assert_eq!(machine.step(), watch("20"));
}

#[test]
fn after_an_expired_page_the_list_comes_whole() {
    let mut machine = Machine::new();
    machine.failed(Failure::Unsupported, SHORT, 0.0);
    machine.page("", Some("next".into()));
    machine.failed(Failure::Gone, SHORT, 0.0);
    assert!(matches!(machine.step(), Step::Wait(_)));
    assert_eq!(machine.step(), Step::ListWhole);
    assert!(machine.page("20", None));
    assert_eq!(machine.step(), watch("20"));
    machine.failed(Failure::Gone, LASTING, 0.0);
    assert_eq!(machine.step(), FIRST_PAGE, "the next time it may do");
}

#[test]
fn gone_lists_again_at_once_and_then_slows_down() {
    let mut machine = watching();
    let mut waits = Vec::new();
    for _ in 0..8 {
        // Each list is complete, and says something more.
        machine.signal(&object("11"));
        machine.failed(Failure::Gone, SHORT, 0.0);
        waits.push(match machine.step() {
            Step::Wait(delay) => delay.as_millis(),
            other => {
                assert_eq!(other, Step::StreamList);
                0
            }
        });
        assert_eq!(machine.step(), Step::StreamList);
        machine.opened();
        assert_eq!(machine.signal(&bookmark("30", true)), Phase::Complete);
    }
    assert_eq!(waits, [0, 800, 1600, 3200, 6400, 12800, 25600, 30000]);
    // What lasted is no reason to wait.
    machine.failed(Failure::Gone, LASTING, 0.0);
    assert_eq!(machine.step(), Step::StreamList);
}

#[test]
fn a_cut_after_events_reconnects_at_once_even_every_millisecond() {
    let mut machine = watching();
    for version in 11..100 {
        let version = version.to_string();
        machine.signal(&object(&version));
        machine.ended(SHORT, 0.0);
        assert_eq!(machine.step(), Step::Verify);
        machine.verified("1000", SHORT, 0.0);
        assert_eq!(machine.step(), watch(&version));
        machine.opened();
    }
}

#[test]
fn a_silent_cut_slows_down_and_finally_lists_again() {
    let mut machine = watching();
    machine.ended(SHORT, 0.0);
    let mut waits = 0;
    loop {
        match machine.step() {
            Step::Wait(_) => waits += 1,
            Step::Verify => machine.verified("10", SHORT, 0.0),
            Step::Watch { resource_version } => {
                assert_eq!(resource_version, "10");
                machine.opened();
                machine.ended(SHORT, 0.0);
            }
            other => {
                assert_eq!(other, Step::StreamList);
                break;
            }
        }
    }
    assert_eq!(waits, RESUME_ATTEMPTS);
}

#[test]
fn a_refused_watch_keeps_its_version() {
    let mut machine = watching();
    machine.signal(&object("11"));
    machine.ended(LONG, 0.0);
    machine.failed(Failure::Other, SHORT, 0.0);
    assert_eq!(machine.step(), Step::Wait(Duration::from_millis(200)));
    assert_eq!(machine.step(), Step::Verify);
    machine.verified("11", SHORT, 0.0);
    assert_eq!(machine.step(), watch("11"));
}

#[test]
fn a_kind_that_is_no_longer_served_is_listed_again() {
    let mut machine = watching();
    machine.ended(LONG, 0.0);
    machine.failed(Failure::NotFound, SHORT, 0.0);
    assert!(matches!(machine.step(), Step::Wait(_)));
    assert_eq!(machine.step(), Step::StreamList);
}

#[test]
fn a_stream_cut_twice_before_its_end_turns_to_pages() {
    let mut machine = Machine::new();
    for _ in 0..2 {
        assert_eq!(machine.step(), Step::StreamList);
        machine.opened();
        machine.signal(&object("1"));
        machine.ended(SHORT, 0.0);
        assert!(matches!(machine.step(), Step::Wait(_)));
    }
    assert_eq!(machine.step(), FIRST_PAGE);
}

#[test]
fn a_stream_without_a_bookmark_turns_to_pages() {
    let mut machine = Machine::new();
    machine.opened();
    machine.signal(&object("1"));
    assert!(machine.is_initial() && !watching().is_initial());
    machine.stalled();
    assert_eq!(machine.step(), FIRST_PAGE);
}

#[test]
fn statuses_are_told_apart() {
    let check = |code: u16, reason: &str, failure: Failure| {
        let status = Status::failure("", reason).with_code(code);
        assert_eq!(Failure::of_status(&status), failure, "{code} {reason}");
    };
    check(410, "Expired", Failure::Gone);
    check(410, "Gone", Failure::Gone);
    check(0, "Expired", Failure::Gone);
    check(422, "Invalid", Failure::Unsupported);
    check(400, "BadRequest", Failure::Unsupported);
    check(404, "NotFound", Failure::NotFound);
    check(404, "InternalError", Failure::Other);
    check(403, "Forbidden", Failure::Other);
    check(500, "InternalError", Failure::Other);
}

#[test]
fn a_shorter_history_causes_a_list_after_any_watch() {
    for lived in [SHORT, LONG] {
        let mut machine = watching();
        machine.signal(&object("11"));
        machine.ended(lived, 0.0);
        assert_eq!(machine.step(), Step::Verify);
        machine.verified("3", SHORT, 0.0);
        assert_eq!(machine.step(), Step::StreamList);
    }
}

#[test]
fn alternating_histories_are_listed_with_pauses() {
    let mut machine = watching();
    for round in 0..3 {
        machine.ended(SHORT, 0.0);
        assert_eq!(machine.step(), Step::Verify);
        machine.verified("3", SHORT, 0.0);
        assert_eq!(matches!(machine.step(), Step::Wait(_)), round > 0);
        assert_eq!(machine.step(), Step::StreamList);
        machine.opened();
        machine.signal(&bookmark("10", true));
    }
}

#[test]
fn gone_is_expected_only_where_history_was_requested() {
    assert!(watching().expects(Failure::Gone));
    let mut machine = Machine::new();
    assert!(!machine.expects(Failure::Gone), "of a list that asks for the present");
    machine.failed(Failure::Unsupported, SHORT, 0.0);
    assert!(!machine.expects(Failure::Gone), "of a first page");
    machine.page("", Some("next".into()));
    assert!(machine.expects(Failure::Gone), "of a page");
    machine.failed(Failure::Gone, SHORT, 0.0);
    assert!(!machine.expects(Failure::Gone), "of the whole list");
    machine.page("20", None);
    assert!(machine.expects(Failure::Gone), "of a watch from a version");
}
