//! The queue's rules, one test each, on an invented clock.
#![allow(clippy::unwrap_used)]

use super::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

struct Bench {
    queue: WorkQueue<&'static str>,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { queue: WorkQueue::default(), start: Instant::now() }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + ms(millis)
    }

    fn add(&mut self, key: &'static str, priority: i32, at: u64) {
        let now = self.at(at);
        self.queue.add(key, Priority(priority), now);
    }

    fn pop(&mut self, at: u64) -> Option<&'static str> {
        let now = self.at(at);
        self.queue.pop(now).map(|item| item.key)
    }

    fn finish(&mut self, key: &'static str, verdict: Completion, at: u64) {
        let now = self.at(at);
        self.queue.finish(&key, verdict, now);
    }

    fn drain(&mut self, at: u64) -> Vec<&'static str> {
        std::iter::from_fn(|| self.pop(at)).collect()
    }
}

#[test]
fn equal_keys_are_queued_once_and_in_order() {
    let mut bench = Bench::new();
    for key in ["a", "b", "a", "c", "b"] {
        bench.add(key, 0, 0);
    }
    assert_eq!(bench.drain(0), ["a", "b", "c"]);
}

#[test]
fn a_key_is_never_handed_out_twice_at_once() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    assert_eq!(bench.pop(0), Some("a"));
    bench.add("a", 0, 1);
    assert_eq!(bench.pop(1), None);
    bench.finish("a", Completion::Done, 2);
    assert_eq!(bench.pop(2), Some("a"));
    bench.finish("a", Completion::Done, 3);
    assert_eq!(bench.pop(3), None);
    assert!(bench.queue.entries.is_empty(), "nothing is remembered");
}

#[test]
fn higher_priority_goes_first_and_raises_a_queued_key() {
    let mut bench = Bench::new();
    bench.add("low", -100, 0);
    bench.add("other", -100, 0);
    bench.add("normal", 0, 0);
    bench.add("high", 5, 0);
    bench.add("other", 7, 0);
    assert_eq!(bench.drain(0), ["other", "high", "normal", "low"]);
}

#[test]
fn a_waiting_low_priority_key_is_not_starved() {
    let mut bench = Bench::new();
    bench.add("low", -100, 0);
    // Normal keys that arrive within ten seconds overtake; later ones do not.
    bench.add("early", 0, 9_999);
    bench.add("late", 0, 10_001);
    assert_eq!(bench.drain(10_001), ["early", "low", "late"]);
}

#[test]
fn the_shorter_delay_and_the_higher_priority_win() {
    let mut bench = Bench::new();
    let start = bench.start;
    bench.queue.add_after("a", ms(100), Priority(3), start);
    bench.queue.add_after("a", ms(50), Priority(1), start);
    bench.queue.add_after("a", ms(80), Priority(2), start);
    assert_eq!(bench.queue.next_deadline(), Some(start + ms(50)));
    assert_eq!(bench.pop(49), None);
    let item = bench.queue.pop(start + ms(50)).unwrap();
    assert_eq!((item.key, item.priority), ("a", Priority(3)));
}

#[test]
fn a_delayed_add_does_not_push_back_a_ready_key() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    let start = bench.start;
    bench.queue.add_after("a", Duration::from_secs(5), Priority::NORMAL, start);
    assert_eq!(bench.pop(0), Some("a"));
}

#[test]
fn what_becomes_due_first_comes_out_first() {
    let mut bench = Bench::new();
    let start = bench.start;
    bench.queue.add_after("b", ms(20), Priority::NORMAL, start);
    bench.queue.add_after("a", ms(10), Priority::NORMAL, start);
    bench.add("c", 0, 15);
    assert_eq!(bench.drain(30), ["a", "c", "b"]);
}

#[test]
fn failures_double_the_delay_up_to_the_maximum() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    let mut now = bench.start;
    let mut delays = Vec::new();
    for _ in 0..20 {
        let item = bench.queue.pop(now).unwrap();
        bench.queue.finish(&item.key, Completion::Retry, now);
        let next = bench.queue.next_deadline().unwrap();
        delays.push(next - now);
        now = next;
    }
    assert_eq!(delays[..4], [ms(5), ms(10), ms(20), ms(40)]);
    assert_eq!(delays[17], Duration::from_millis(5 << 17));
    assert_eq!(delays[18], Duration::from_secs(1000));
    assert_eq!(delays[19], Duration::from_secs(1000));
}

#[test]
fn success_resets_the_delay() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.pop(0);
    bench.finish("a", Completion::Retry, 0);
    bench.pop(5);
    bench.finish("a", Completion::RequeueAfter(ms(1)), 5);
    assert_eq!(bench.queue.failures(&"a"), 0);
    bench.pop(6);
    bench.finish("a", Completion::Retry, 6);
    assert_eq!(bench.queue.next_deadline(), Some(bench.at(11)));
}

#[test]
fn events_hurry_a_failing_key_without_longer_backoff() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    for at in [0, 5, 15] {
        assert_eq!(bench.pop(at), Some("a"));
        bench.finish("a", Completion::Retry, at);
    }
    // Three failures: the next attempt is due at 35.
    assert_eq!(bench.queue.next_deadline(), Some(bench.at(35)));
    for at in [16, 17, 18] {
        bench.add("a", 0, at);
        assert_eq!(bench.pop(at), Some("a"), "an event is acted on at once");
        bench.finish("a", Completion::Retry, at);
    }
    assert_eq!(bench.queue.failures(&"a"), 3);
    assert_eq!(bench.queue.next_deadline(), Some(bench.at(35)));
}

#[test]
fn events_during_a_failing_attempt_count_at_once() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.pop(0);
    bench.add("a", 0, 1);
    bench.finish("a", Completion::Retry, 2);
    assert_eq!(bench.pop(2), Some("a"));
}

#[test]
fn the_shorter_of_requeue_and_pending_add_wins() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.pop(0);
    let start = bench.start;
    bench.queue.add_after("a", ms(30), Priority::NORMAL, start);
    bench.finish("a", Completion::RequeueAfter(ms(10)), 1);
    assert_eq!(bench.queue.next_deadline(), Some(bench.at(11)));
}

#[test]
fn stats_count_what_is_where() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.add("b", -100, 0);
    bench.add("c", 0, 0);
    let start = bench.start;
    bench.queue.add_after("d", ms(100), Priority::NORMAL, start);
    bench.pop(0);
    let stats = bench.queue.stats(bench.at(40));
    assert_eq!(stats.depth, BTreeMap::from([(-100, 1), (0, 1)]));
    assert_eq!((stats.waiting, stats.processing, stats.adds), (1, 1, 3));
    assert_eq!((stats.unfinished, stats.longest_running), (ms(40), ms(40)));
    // What is due counts as ready, also while no worker takes it.
    let stats = bench.queue.stats(bench.at(100));
    assert_eq!(stats.depth, BTreeMap::from([(-100, 1), (0, 2)]));
    assert_eq!((stats.waiting, stats.adds), (0, 4));
    assert_eq!(bench.drain(100), ["c", "d", "b"]);
    assert_eq!(bench.queue.stats(bench.at(100)).adds, 4);
}

#[test]
fn every_time_a_key_becomes_ready_is_one_add() {
    let mut bench = Bench::new();
    let adds = |bench: &Bench, at: u64| bench.queue.stats(bench.at(at)).adds;
    bench.add("a", 0, 0);
    bench.add("a", 5, 0);
    assert_eq!(adds(&bench, 0), 1, "the second is the same, only more urgent");
    bench.pop(0);
    bench.add("a", 0, 1);
    bench.add("a", 0, 1);
    bench.finish("a", Completion::Done, 2);
    assert_eq!(adds(&bench, 2), 2, "an event while it is worked on");
    bench.pop(2);
    bench.finish("a", Completion::Retry, 3);
    assert_eq!(adds(&bench, 3), 2, "not before it is due");
    bench.add("a", 0, 4);
    assert_eq!(adds(&bench, 4), 3, "brought forward");
    bench.pop(4);
    bench.finish("a", Completion::RequeueAfter(ms(10)), 5);
    assert_eq!(adds(&bench, 15), 4);
}

#[test]
fn events_during_a_run_keep_the_priority_of_its_retry() {
    for verdict in [Completion::Retry, Completion::RequeueAfter(ms(5))] {
        let mut bench = Bench::new();
        bench.add("a", 0, 0);
        bench.pop(0);
        bench.queue.add_after("a", Duration::from_secs(60), Priority::LOW, bench.start);
        bench.finish("a", verdict, 0);
        let item = bench.queue.pop(bench.at(5)).unwrap();
        assert_eq!(item.priority, Priority::NORMAL, "{verdict:?}");
        // Nor does a low run hold back what is urgent, nor its own end make a reminder urgent.
        bench.finish("a", Completion::Done, 5);
        bench.add("b", -100, 5);
        bench.pop(5);
        bench.add("b", 7, 6);
        bench.finish("b", verdict, 7);
        assert_eq!(bench.queue.pop(bench.at(7)).unwrap().priority, Priority(7), "{verdict:?}");
        bench.add("b", -100, 8);
        bench.finish("b", Completion::Done, 9);
        assert_eq!(bench.queue.pop(bench.at(9)).unwrap().priority, Priority::LOW);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_wake_up_for_adds_and_deadlines() {
    let queue = Queue::default();
    let worker = {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(item) = queue.next().await {
                seen.push(item.key);
                queue.finish(&item.key, Completion::Done);
                if item.key == "late" {
                    queue.close();
                }
            }
            seen
        })
    };
    tokio::task::yield_now().await;
    queue.add_after("late", Duration::from_secs(3600), Priority::NORMAL);
    queue.add("now", Priority::NORMAL);
    assert_eq!(worker.await.unwrap(), ["now", "late"]);
}

#[tokio::test(start_paused = true)]
async fn many_workers_share_the_keys_and_all_stop() {
    let queue = Queue::default();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut seen = 0usize;
            while let Some(item) = queue.next().await {
                seen += 1;
                tokio::time::sleep(ms(1)).await;
                queue.finish(&item.key, Completion::Done);
            }
            seen
        });
    }
    for key in 0..100u32 {
        queue.add(key, Priority::NORMAL);
    }
    while !queue.is_empty() || queue.stats().processing > 0 {
        tokio::time::sleep(ms(1)).await;
    }
    queue.close();
    let seen = workers.join_all().await;
    assert_eq!(seen.iter().sum::<usize>(), 100);
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// A step of a random history.
#[derive(Debug, Clone)]
enum Op {
    Add(u8, i32, u64),
    Pop,
    Finish(usize, Completion),
    Wait(u64),
}

fn op() -> impl proptest::strategy::Strategy<Value = Op> {
    use proptest::prelude::*;

    let verdict = prop_oneof![
        Just(Completion::Done),
        Just(Completion::Retry),
        (0u64..50).prop_map(|delay| Completion::RequeueAfter(ms(delay))),
    ];
    prop_oneof![
        3 => (0u8..6, -2i32..3, prop_oneof![Just(0), 0u64..100]).prop_map(|(key, priority, delay)| Op::Add(key, priority, delay)),
        3 => Just(Op::Pop),
        3 => (0usize..4, verdict).prop_map(|(index, verdict)| Op::Finish(index, verdict)),
        1 => (0u64..60).prop_map(Op::Wait),
    ]
}

proptest::proptest! {
    /// Whatever happens, no key is handed out twice at once and none that was added is lost.
    #[test]
    fn keys_are_neither_doubled_nor_lost(ops in proptest::collection::vec(op(), 0..200)) {
        let mut queue = WorkQueue::default();
        let mut now = Instant::now();
        let mut working: Vec<u8> = Vec::new();
        // Keys that must still come out, and when at the latest.
        let mut due: HashMap<u8, Instant> = HashMap::new();
        let expect = |due: &mut HashMap<u8, Instant>, key: u8, at: Instant| {
            let known = due.entry(key).or_insert(at);
            *known = (*known).min(at);
        };
        for op in ops {
            match op {
                Op::Add(key, priority, delay) => {
                    queue.add_after(key, ms(delay), Priority(priority), now);
                    expect(&mut due, key, now + ms(delay));
                }
                Op::Pop => {
                    if let Some(item) = queue.pop(now) {
                        proptest::prop_assert!(!working.contains(&item.key), "handed out twice");
                        let at = due.remove(&item.key);
                        proptest::prop_assert!(at.is_some_and(|at| at <= now), "handed out early");
                        working.push(item.key);
                    } else {
                        let late = due.iter().find(|(key, at)| **at <= now && !working.contains(key));
                        proptest::prop_assert_eq!(late, None, "due but not handed out");
                    }
                }
                Op::Finish(index, verdict) => {
                    if index < working.len() {
                        let key = working.swap_remove(index);
                        queue.finish(&key, verdict, now);
                        match verdict {
                            Completion::Done => {}
                            Completion::RequeueAfter(delay) => expect(&mut due, key, now + delay),
                            Completion::Retry => {
                                let at = queue.entries[&key].retry_at.unwrap();
                                proptest::prop_assert!(at > now);
                                expect(&mut due, key, at);
                            }
                        }
                    }
                }
                Op::Wait(millis) => now += ms(millis),
            }
        }
        for key in working.drain(..) {
            queue.finish(&key, Completion::Done, now);
        }
        now += Duration::from_secs(2000);
        while let Some(item) = queue.pop(now) {
            due.remove(&item.key);
            queue.finish(&item.key, Completion::Done, now);
        }
        proptest::prop_assert!(due.is_empty(), "lost: {:?}", due);
        proptest::prop_assert!(queue.entries.is_empty(), "nothing is remembered at rest");
    }
}

#[test]
fn the_overall_limit_allows_a_burst_then_a_steady_pace() {
    let start = Instant::now();
    let config = QueueConfig::default().rate_limit(RateLimit::new(10.0, 3));
    let mut queue = WorkQueue::new(config);
    for key in 0..100 {
        queue.add(key, Priority::NORMAL, start);
    }
    let mut popped = Vec::new();
    let mut now = start;
    while now <= start + Duration::from_secs(1) {
        while let Some(item) = queue.pop(now) {
            popped.push(now - start);
            queue.finish(&item.key, Completion::Done, now);
        }
        now = queue.next_deadline().expect("keys are left");
    }
    assert_eq!(popped[..3], [Duration::ZERO; 3]);
    assert_eq!(popped[3..6], [100, 200, 300].map(Duration::from_millis));
    assert_eq!(popped.len(), 13);
    // After a pause there is a burst again, not more.
    now = start + Duration::from_secs(60);
    assert_eq!(std::iter::from_fn(|| queue.pop(now)).count(), 3);
}

#[test]
fn keys_put_back_do_not_count_against_the_limit() {
    let start = Instant::now();
    let config = QueueConfig::default().rate_limit(RateLimit::new(10.0, 3));
    let mut queue = WorkQueue::new(config);
    for key in 0..200 {
        queue.add(key, Priority::NORMAL, start);
    }
    let (mut ours, mut now) = (Vec::new(), start);
    while now <= start + Duration::from_secs(1) {
        while let Some(item) = queue.pop(now) {
            // Nine of ten are another worker's.
            if item.key % 10 == 0 {
                ours.push(now - start);
                queue.finish(&item.key, Completion::Done, now);
            } else {
                queue.put_back(&item.key, Completion::Done, now);
            }
        }
        now = queue.next_deadline().expect("keys are left");
    }
    assert_eq!(ours[..3], [Duration::ZERO; 3]);
    assert_eq!(ours.len(), 13);
    // What is put back late does not make a burst larger.
    let late = start + Duration::from_secs(60);
    let taken: Vec<_> = std::iter::from_fn(|| queue.pop(late)).collect();
    assert_eq!(taken.len(), 3);
    for item in &taken {
        queue.put_back(&item.key, Completion::Done, late + Duration::from_secs(60));
        queue.put_back(&item.key, Completion::Done, late + Duration::from_secs(60));
    }
    assert_eq!(std::iter::from_fn(|| queue.pop(late + Duration::from_secs(60))).count(), 3);
}

#[test]
fn a_delay_without_end_waits_and_breaks_nothing() {
    let mut bench = Bench::new();
    let config = QueueConfig::default().base_delay(Duration::MAX).max_delay(Duration::MAX);
    bench.queue = WorkQueue::new(config);
    bench.queue.add_after("a", Duration::MAX, Priority::NORMAL, bench.start);
    for (key, verdict) in [("b", Completion::RequeueAfter(Duration::MAX)), ("c", Completion::Retry)] {
        bench.add(key, 0, 0);
        assert_eq!(bench.pop(0), Some(key));
        bench.finish(key, verdict, 0);
    }
    assert_eq!(bench.pop(1_000_000_000), None);
    bench.add("a", 0, 1_000_000_000);
    assert_eq!(bench.pop(1_000_000_000), Some("a"), "an event is not held up");
}

#[test]
fn a_rate_limit_that_is_no_number_is_the_lowest() {
    for odd in [f64::NAN, -1.0, 0.0, f64::NEG_INFINITY] {
        assert_eq!(RateLimit::new(odd, 2), RateLimit::new(1e-6, 2));
    }
    assert_eq!(RateLimit::new(f64::INFINITY, 2), RateLimit::new(1e9, 2));
}
