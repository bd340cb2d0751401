//! Flow control as a whole, without a server: which requests get seats, which wait, and which are rejected.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::level::{About, Admission, Queued, Request, Seats};
use super::queue_set::Work;
use super::*;
use crate::attributes::Target;
use crate::user::User;

fn level(name: &str, shares: u32, queuing: Option<(u32, u32, u32)>) -> LevelSpec {
    let response = queuing.map_or(json!({"type": "Reject"}), |(queues, hand, length)| {
        json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}})
    });
    let limited = json!({"nominalConcurrencyShares": shares, "lendablePercent": 0, "limitResponse": response});
    let object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {"type": "Limited", "limited": limited}});
    LevelSpec::new(&object).expect("a level")
}

fn schema(name: &str, level: &str, precedence: u32, user: &str) -> FlowSchema {
    let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let subjects: Value = json!([{"kind": "User", "user": {"name": user}}]);
    FlowSchema::new(&json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {
        "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": subjects, "nonResourceRules": paths}],
    }}))
}

fn with_options(options: FlowControlOptions) -> FlowControl {
    let store: Arc<dyn Store> = Arc::new(windlass_store::Memory::new());
    let hub = Arc::new(Hub::new(Arc::clone(&store)));
    FlowControl::new(
        options,
        Objects { store, hub, catalog: Arc::new(Catalog::new()), clock: Arc::new(Timestamp::now) },
    )
}

/// All seats are those of the level `l`, but for one of `catch-all`.
fn control(seats: u32, queuing: Option<(u32, u32, u32)>) -> FlowControl {
    let control = with_options(FlowControlOptions { enabled: true, seats });
    control.configure(vec![level("l", 1_000_000, queuing)], vec![schema("s", "l", 100, "*")]);
    control
}

fn class_of(control: &FlowControl, user: &User) -> (String, String) {
    let classes = control.classes.load();
    let request = Attributes { user, verb: "get", target: Target::Path("/x") };
    let class = classify(&classes, &request).expect("a class");
    (class.schema.name.clone(), class.level.name.clone())
}

fn admit(control: &FlowControl, user: &str) -> Admission {
    let classes = control.classes.load();
    let user = User::new(user, []);
    let request = Attributes { user: &user, verb: "get", target: Target::Path("/x") };
    let class = classify(&classes, &request).expect("a class");
    let flow = control.flow(class, &request);
    let request = Request { schema: class.index, work: Work::seats(1), flow, watchers: None, clock: control.started };
    class.level.admit(&request, About::default)
}

fn seats(admission: Admission) -> Seats {
    let Admission::Execute(seats) = admission else { panic!("no seat") };
    seats
}

fn queued(admission: Admission) -> Queued {
    let Admission::Wait(queued) = admission else { panic!("it does not wait") };
    queued
}

#[tokio::test]
async fn the_schema_of_lowest_precedence_that_matches_wins() {
    let control = with_options(FlowControlOptions::default());
    let levels = vec![level("l", 10, None), level("m", 10, None)];
    let schemas = vec![schema("late", "l", 500, "jane"), schema("b", "m", 100, "jane"), schema("a", "l", 100, "jane")];
    control.configure(levels, schemas);
    let of = |user: &User| class_of(&control, user);
    assert_eq!(of(&User::new("jane", [])), ("a".into(), "l".into()));
    assert_eq!(of(&User::admin()), ("exempt".into(), "exempt".into()));
    assert_eq!(of(&User::new("joe", [])), ("catch-all".into(), "catch-all".into()));
}

#[tokio::test]
async fn a_request_waits_until_another_ends() {
    let control = control(2, Some((8, 2, 10)));
    let first = seats(admit(&control, "a"));
    let _second = seats(admit(&control, "a"));
    let mut waiting = Box::pin(queued(admit(&control, "b")).wait(Duration::from_secs(15)));
    assert!((&mut waiting).now_or_never().is_none());
    drop(first);
    assert!(waiting.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_rejected_after_its_wait() {
    let control = control(1, Some((8, 2, 10)));
    let _seat = seats(admit(&control, "a"));
    let started = Instant::now();
    let rejected = queued(admit(&control, "b")).wait(Duration::from_secs(15)).await;
    assert_eq!((rejected.err(), started.elapsed()), (Some(1), Duration::from_secs(15)));
    let text = control.render_metrics();
    let labels = "flow_schema=\"s\",priority_level=\"l\"";
    assert!(text.contains(&format!("rejected_requests_total{{{labels},reason=\"time-out\"}} 1\n")), "{text}");
    assert!(text.contains(&format!("current_inqueue_requests{{{labels}}} 0\n")), "{text}");
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_its_queue() {
    let control = control(1, Some((8, 2, 10)));
    let seat = seats(admit(&control, "a"));
    let gone = queued(admit(&control, "b"));
    let stays = queued(admit(&control, "c"));
    drop(gone);
    drop(seat);
    let seat = stays.wait(Duration::from_secs(15)).await;
    assert!(seat.is_ok());
    drop(seat);
    seats(admit(&control, "d"));
}

#[tokio::test]
async fn clients_that_disconnect_give_back_their_seat() {
    let control = control(1, Some((8, 2, 10)));
    let seat = seats(admit(&control, "a"));
    let gone = queued(admit(&control, "b"));
    drop(seat);
    drop(gone);
    seats(admit(&control, "c"));
}

/// The promise of fairness: a user that keeps everything full is rejected, another user is served next.
#[tokio::test]
async fn a_busy_user_does_not_block_another() {
    let control = control(4, Some((64, 6, 20)));
    let mut running = Vec::new();
    let mut waiting = Vec::new();
    let rejected = loop {
        match admit(&control, "noisy") {
            Admission::Execute(seats) => running.push(seats),
            Admission::Wait(queued) => waiting.push(Box::pin(queued.wait(Duration::from_secs(15)))),
            Admission::Rejected(retry_after) => break retry_after,
        }
    };
    assert_eq!((rejected, running.len(), waiting.len()), (1, 4, 120));
    let mut quiet = Box::pin(queued(admit(&control, "quiet")).wait(Duration::from_secs(15)));
    let mut served = 0;
    while (&mut quiet).now_or_never().is_none() {
        running.remove(0);
        // Those of the noisy user's requests that have been given a seat take it.
        for mut request in std::mem::take(&mut waiting) {
            match (&mut request).now_or_never() {
                Some(Ok(seats)) => running.push(seats),
                Some(Err(_)) => panic!("rejected"),
                None => waiting.push(request),
            }
        }
        served += 1;
        assert!(served < 12, "the quiet user is served among the next few");
    }
}

#[tokio::test]
async fn levels_do_not_take_each_others_seats() {
    let control = with_options(FlowControlOptions { enabled: true, seats: 20 });
    let levels = vec![level("l", 50, Some((8, 2, 2))), level("m", 50, None)];
    control.configure(levels, vec![schema("s", "l", 100, "noisy"), schema("t", "m", 200, "quiet")]);
    let mut held = Vec::new();
    while let Admission::Execute(seats) = admit(&control, "noisy") {
        held.push(seats);
    }
    assert!((8..=12).contains(&held.len()), "{}", held.len());
    seats(admit(&control, "quiet"));
}

#[tokio::test(start_paused = true)]
async fn unused_seats_are_lent() {
    let control = with_options(FlowControlOptions { enabled: true, seats: 100 });
    let mut lends = level("m", 45, None);
    lends.share.lendable_percent = 80;
    let levels = vec![level("l", 50, Some((64, 6, 50))), lends];
    control.configure(levels, vec![schema("s", "l", 100, "busy"), schema("t", "m", 200, "idle")]);
    let limit = |name: &str| control.levels.lock().by_name[name].state.lock().set.limit();
    let nominal = |name: &str| control.levels.lock().by_name[name].state.lock().bounds.nominal;
    let mut held = Vec::new();
    for _ in 0..150 {
        match admit(&control, "busy") {
            Admission::Execute(seats) => held.push((Some(seats), None)),
            Admission::Wait(queued) => held.push((None, Some(queued))),
            Admission::Rejected(_) => {}
        }
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    control.borrow();
    assert!(limit("l") > nominal("l") + 10, "{} {}", limit("l"), nominal("l"));
    assert!(limit("m") < nominal("m"));
}

#[tokio::test]
async fn a_level_that_is_deleted_serves_what_it_has_begun() {
    let control = control(1, Some((8, 2, 10)));
    let seat = seats(admit(&control, "a"));
    let waiting = queued(admit(&control, "a"));
    control.configure(Vec::new(), Vec::new());
    assert_eq!(class_of(&control, &User::new("a", [])).1, "catch-all");
    assert!(control.levels.lock().by_name.contains_key("l"));
    drop(seat);
    drop(waiting.wait(Duration::from_secs(15)).await);
    control.borrow();
    assert!(!control.levels.lock().by_name.contains_key("l"));
}

#[tokio::test]
async fn dumps_show_waiting_requests() {
    let control = control(1, Some((8, 2, 10)));
    let _seat = seats(admit(&control, "a"));
    let _waiting = queued(admit(&control, "b"));
    let rows = control.dump_levels();
    assert!(rows.iter().any(|row| row[0] == "l" && row[4] == "1" && row[5] == "1"), "{rows:?}");
}

#[tokio::test]
async fn disabled_flow_control_limits_nothing_but_classifies() {
    let control = with_options(FlowControlOptions { enabled: false, ..FlowControlOptions::default() });
    assert_eq!(class_of(&control, &User::admin()).0, "exempt");
    assert!(Arc::strong_count(&control.watches) >= 1);
}
