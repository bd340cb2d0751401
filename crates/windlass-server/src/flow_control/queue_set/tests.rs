//! Scripts and properties of the queues.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;
const QUEUES: Queuing = Queuing::Queues { queues: 16, hand: 4, length: 50 };

fn set(queuing: Queuing, limit: u32) -> QueueSet<u32> {
    let mut set = QueueSet::new(0);
    set.configure(0, queuing);
    set.set_limit(0, limit);
    set
}

/// Lets a request arrive; returns its ticket if it is executed.
fn arrive(set: &mut QueueSet<u32>, now: Nanos, work: Work, flow: u64, payload: u32) -> Option<Ticket> {
    match set.arrive(now, work, flow) {
        Arrival::Execute(ticket) => Some(ticket),
        Arrival::Wait { queue } => {
            set.enqueue(queue, work, payload);
            None
        }
        rejected => panic!("{rejected:?}"),
    }
}

#[test]
fn requests_wait_when_all_seats_are_taken() {
    let mut set = set(QUEUES, 2);
    let first = arrive(&mut set, 0, Work::seats(1), 1, 1).expect("a seat");
    arrive(&mut set, 0, Work::seats(1), 2, 2).expect("a seat");
    assert!(arrive(&mut set, 0, Work::seats(1), 3, 3).is_none());
    assert!(set.dispatch().is_none());
    set.finish(MS, first);
    let (payload, ticket) = set.dispatch().expect("a seat is free");
    assert_eq!((payload, ticket.started, set.seats_in_use()), (3, MS, 2));
}

#[test]
fn a_level_without_queues_rejects_what_finds_no_seat() {
    let mut set = set(Queuing::Reject, 1);
    let ticket = arrive(&mut set, 0, Work::seats(1), 1, 1).expect("a seat");
    assert_eq!(set.arrive(0, Work::seats(1), 1), Arrival::OverLimit);
    set.finish(0, ticket);
    assert!(matches!(set.arrive(0, Work::seats(1), 1), Arrival::Execute(_)));
}

#[test]
fn an_exempt_level_has_no_limit() {
    let mut set = set(Queuing::Exempt, 0);
    for n in 0..1000 {
        assert!(arrive(&mut set, 0, Work::seats(10), 1, n).is_some());
    }
}

#[test]
fn a_flow_fills_its_own_queues_only() {
    let mut set = set(Queuing::Queues { queues: 64, hand: 4, length: 10 }, 1);
    arrive(&mut set, 0, Work::seats(1), 7, 0).expect("a seat");
    for n in 0..40 {
        assert!(arrive(&mut set, 0, Work::seats(1), 7, n).is_none());
    }
    assert_eq!(set.arrive(0, Work::seats(1), 7), Arrival::QueueFull);
    assert!(matches!(set.arrive(0, Work::seats(1), 123_456_789), Arrival::Wait { .. }));
}

#[test]
fn a_wide_request_waits_until_there_is_room() {
    let mut set = set(QUEUES, 4);
    let narrow = arrive(&mut set, 0, Work::seats(2), 1, 1).expect("seats");
    assert!(arrive(&mut set, 0, Work::seats(3), 2, 2).is_none());
    assert!(set.dispatch().is_none());
    set.finish(MS, narrow);
    assert_eq!(set.dispatch().map(|(payload, _)| payload), Some(2));
}

#[test]
fn a_request_wider_than_the_level_is_executed_alone() {
    let mut set = set(QUEUES, 4);
    let wide = arrive(&mut set, 0, Work::seats(9), 1, 1).expect("nobody else is there");
    assert!(arrive(&mut set, 0, Work::seats(1), 2, 2).is_none());
    assert!(set.dispatch().is_none());
    set.finish(MS, wide);
    assert_eq!(set.dispatch().map(|(payload, _)| payload), Some(2));
}

#[test]
fn seats_linger_while_watchers_are_told() {
    let mut set = set(QUEUES, 3);
    let work = Work { initial: 1, last: 3, linger: 5 * MS };
    let write = arrive(&mut set, 0, work, 1, 1).expect("seats");
    set.finish(MS, write);
    assert!(arrive(&mut set, 2 * MS, Work::seats(1), 2, 2).is_none());
    assert_eq!(set.next_release(), Some(6 * MS));
    set.advance(6 * MS - 1);
    assert!(set.dispatch().is_none());
    set.advance(6 * MS);
    assert_eq!(set.dispatch().map(|(payload, _)| payload), Some(2));
    assert_eq!(set.next_release(), None);
}

#[test]
fn final_seats_above_the_limit_linger_longer() {
    let mut set = set(QUEUES, 2);
    let write = arrive(&mut set, 0, Work { initial: 1, last: 8, linger: 5 * MS }, 1, 1).expect("seats");
    assert_eq!(write.width(), 2);
    set.finish(0, write);
    assert!(arrive(&mut set, 0, Work::seats(1), 2, 2).is_none());
    assert_eq!(set.next_release(), Some(20 * MS));
}

#[test]
fn a_request_that_gives_up_leaves_its_queue() {
    let mut set = set(QUEUES, 1);
    let ticket = arrive(&mut set, 0, Work::seats(1), 1, 1).expect("a seat");
    let Arrival::Wait { queue } = set.arrive(0, Work::seats(1), 2) else { panic!("no wait") };
    let (id, length) = set.enqueue(queue, Work::seats(1), 2);
    assert_eq!(length, 1);
    assert_eq!(set.cancel(MS, id), Some(2));
    assert_eq!(set.cancel(MS, id), None);
    set.finish(MS, ticket);
    assert!(set.dispatch().is_none() && set.is_idle());
}

#[test]
fn queues_that_are_no_longer_wanted_are_drained() {
    let mut set = set(QUEUES, 1);
    let mut ticket = arrive(&mut set, 0, Work::seats(1), 1, 0).expect("a seat");
    for n in 1..=20 {
        assert!(arrive(&mut set, 0, Work::seats(1), u64::from(n) << 40, n).is_none());
    }
    set.configure(MS, Queuing::Reject);
    for _ in 0..20 {
        set.finish(2 * MS, ticket);
        ticket = set.dispatch().expect("somebody waits").1;
    }
    set.finish(3 * MS, ticket);
    assert!(set.is_idle());
    assert_eq!(set.queues().len(), 0);
}

/// Serves two flows for a while: `busy` requests of the first always wait, one of the second. Returns the seat-time of
/// each.
fn serve(limit: u32, busy: usize, widths: [u32; 2], takes: [Nanos; 2]) -> [u64; 2] {
    let mut set = set(Queuing::Queues { queues: 64, hand: 1, length: 1000 }, limit);
    let flows = [3_u64, 11];
    let mut running: Vec<(Nanos, u32, Ticket)> = Vec::new();
    let mut served = [0_u64; 2];
    let mut waiting = [0_usize; 2];
    let mut now = 0;
    for _ in 0..20_000 {
        for (flow, target) in [(0_usize, busy), (1, limit as usize)] {
            while waiting[flow] < target {
                let work = Work::seats(widths[flow]);
                if let Some(ticket) = arrive(&mut set, now, work, flows[flow], flow as u32) {
                    running.push((now + takes[flow], flow as u32, ticket));
                } else {
                    waiting[flow] += 1;
                }
            }
        }
        while let Some((flow, ticket)) = set.dispatch() {
            waiting[flow as usize] -= 1;
            running.push((now + takes[flow as usize], flow, ticket));
        }
        running.sort_by_key(|(end, ..)| Reverse(*end));
        let (end, flow, ticket) = running.pop().expect("something runs");
        now = end;
        served[flow as usize] += u64::from(ticket.width()) * takes[flow as usize];
        set.finish(now, ticket);
        assert!(set.seats_in_use() <= limit);
    }
    served
}

#[test]
fn flows_get_equal_shares_however_much_they_ask_for() {
    for (widths, takes) in
        [([1, 1], [MS, MS]), ([1, 1], [20 * MS, MS]), ([4, 1], [MS, MS]), ([1, 1], [MS / 50, MS / 50])]
    {
        let [busy, quiet] = serve(8, 300, widths, takes);
        let ratio = busy as f64 / quiet as f64;
        assert!((0.8..1.25).contains(&ratio), "{widths:?} {takes:?}: {ratio}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { flow: u64, work: Work },
    Finish(usize),
    Cancel(usize),
    Pass(Nanos),
    Limit(u32),
    Configure(Queuing),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let work = (1_u32..6, 0_u32..6, 0..(5 * MS)).prop_map(|(initial, last, linger)| Work { initial, last, linger });
    let queuing = prop_oneof![
        Just(Queuing::Reject),
        (1_usize..20, 1_usize..6, 1_usize..8).prop_map(|(queues, hand, length)| Queuing::Queues {
            queues,
            hand,
            length
        }),
    ];
    let step = prop_oneof![
        8 => (0_u64..8, work).prop_map(|(flow, work)| Step::Arrive { flow: flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), work }),
        6 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        2 => (0..(10 * MS)).prop_map(Step::Pass),
        1 => (1_u32..12).prop_map(Step::Limit),
        1 => queuing.prop_map(Step::Configure),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn seats_are_never_exceeded_and_no_request_is_forgotten(steps in steps()) {
        let mut set = set(QUEUES, 6);
        let mut now = 0;
        let mut running: Vec<Ticket> = Vec::new();
        let mut waiting: BTreeMap<u32, WaitingId> = BTreeMap::new();
        let mut payload = 0;
        // A limit that was lowered, or a request that was alone, may be exceeded until a request leaves.
        let mut excused = 0;
        for step in steps {
            match step {
                Step::Arrive { flow, work } => match set.arrive(now, work, flow) {
                    Arrival::Execute(ticket) => {
                        if ticket.width() > set.limit() {
                            excused = set.seats_in_use();
                            prop_assert_eq!(set.seats_in_use(), ticket.width());
                        }
                        running.push(ticket);
                    }
                    Arrival::Wait { queue } => {
                        payload += 1;
                        waiting.insert(payload, set.enqueue(queue, work, payload).0);
                    }
                    Arrival::OverLimit | Arrival::QueueFull => {}
                },
                Step::Finish(which) if !running.is_empty() => {
                    let ticket = running.swap_remove(which % running.len());
                    set.finish(now, ticket);
                }
                Step::Cancel(which) if !waiting.is_empty() => {
                    let payload = *waiting.keys().nth(which % waiting.len()).expect("in range");
                    let id = waiting.remove(&payload).expect("there");
                    prop_assert_eq!(set.cancel(now, id), Some(payload));
                }
                Step::Pass(time) => {
                    now += time;
                    set.advance(now);
                }
                Step::Limit(limit) => {
                    set.set_limit(now, limit);
                    excused = set.seats_in_use();
                }
                Step::Configure(queuing) => set.configure(now, queuing),
                Step::Finish(_) | Step::Cancel(_) => {}
            }
            while let Some((payload, ticket)) = set.dispatch() {
                prop_assert!(waiting.remove(&payload).is_some());
                if ticket.width() > set.limit() {
                    excused = set.seats_in_use();
                    prop_assert_eq!(set.seats_in_use(), ticket.width());
                }
                running.push(ticket);
            }
            excused = excused.min(set.seats_in_use());
            prop_assert!(set.seats_in_use() <= set.limit().max(excused));
            prop_assert_eq!(set.waiting(), waiting.len());
            prop_assert_eq!(set.executing() as usize, running.len());
            let active = set.queues.iter().filter(|queue| queue.is_active()).count();
            prop_assert_eq!(set.active_queues as usize, active);
            let seats: u32 = set.queues.iter().map(|queue| queue.seats_in_use).sum();
            prop_assert_eq!(set.queue_seats, seats);
        }
        // Everybody is served once all others have left.
        loop {
            for ticket in std::mem::take(&mut running) {
                set.finish(now, ticket);
            }
            now += 1000 * MS;
            set.advance(now);
            while let Some((payload, ticket)) = set.dispatch() {
                waiting.remove(&payload);
                running.push(ticket);
            }
            if running.is_empty() {
                break;
            }
        }
        prop_assert!(waiting.is_empty() && set.is_idle());
        prop_assert_eq!(set.seats_in_use(), 0);
    }
}
