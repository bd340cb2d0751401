//! What becomes of an event: written, added to a series, combined with others, or dropped.
//!
//! Pure: the time is passed in. It need not be the wall clock's, as long as it goes on. The numbers are those of
//! client-go's `tools/record` (spam filter, aggregation) and `tools/events` (how long a series lasts). As there, an
//! event that is dropped still counts: the next one of its series that is written says so.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use k8s_openapi::jiff::Timestamp;

use super::{EventType, Record};

/// Events an object may cause at once.
const BURST: f64 = 25.0;
/// Seconds until it may cause one more.
const REFILL_SECONDS: f64 = 300.0;
/// Different notes of one reason before they are combined.
const SIMILAR: usize = 10;
/// Seconds within which they count as similar.
const SIMILAR_SECONDS: i64 = 600;
/// Seconds after which an event that comes again starts a new series.
const SERIES_SECONDS: i64 = 360;
/// Objects, reasons and series remembered.
const REMEMBERED: usize = 4096;

/// What to do about an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// Too many about this object.
    Drop,
    /// Write a new event with this note, which happened so often, since then.
    Create { series: SeriesKey, note: String, count: i32, first: Timestamp },
    /// It happened before: note the count on the event of this name.
    Extend { series: SeriesKey, name: String, note: String, count: i32, first: Timestamp },
}

/// Identifies the object and reporter of an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    reporter: String,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SimilarKey {
    subject: Subject,
    event_type: EventType,
    reason: String,
    action: String,
}

/// Identifies a series. `note` is absent when different notes are combined.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    similar: SimilarKey,
    note: Option<String>,
}

struct Bucket {
    tokens: f64,
    at: Timestamp,
}

struct Similar {
    notes: HashSet<String>,
    at: Timestamp,
}

struct Series {
    /// What it is written as, if it is.
    name: Option<String>,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

/// See the [module documentation](self).
#[derive(Default)]
pub(super) struct Correlator {
    buckets: Recent<Subject, Bucket>,
    similar: Recent<SimilarKey, Similar>,
    series: Recent<SeriesKey, Series>,
}

impl Correlator {
    pub(super) fn decide(&mut self, record: &Record, now: Timestamp) -> Decision {
        let subject = subject(record);
        let admitted = self.admit(&subject, now);
        let similar = SimilarKey {
            subject,
            event_type: record.event.event_type,
            reason: record.event.reason.clone(),
            action: record.event.action.clone(),
        };
        let note = &record.event.note;
        let (series, note) = if self.combine(&similar, note, now) {
            let combined = format!("(combined from similar events): {note}");
            let series = SeriesKey { similar, note: None };
            (series, combined)
        } else {
            let series = SeriesKey { similar, note: Some(note.clone()) };
            (series, note.clone())
        };
        let known = self.series.get_mut(&series).filter(|known| seconds_since(known.last, now) <= SERIES_SECONDS);
        let (name, count, first) = if let Some(known) = known {
            known.count = known.count.saturating_add(1);
            known.last = now;
            (known.name.clone(), known.count, known.first)
        } else {
            self.series.insert(series.clone(), Series { name: None, count: 1, first: now, last: now });
            (None, 1, now)
        };
        match name {
            _ if !admitted => Decision::Drop,
            Some(name) => Decision::Extend { series, name, note, count, first },
            None => Decision::Create { series, note, count, first },
        }
    }

    /// The event of a series was written under this name: more of the same extend it.
    pub(super) fn created(&mut self, series: &SeriesKey, name: String) {
        if let Some(known) = self.series.get_mut(series) {
            known.name = Some(name);
        }
    }

    fn admit(&mut self, subject: &Subject, now: Timestamp) -> bool {
        let Some(bucket) = self.buckets.get_mut(subject) else {
            let bucket = Bucket { tokens: BURST - 1.0, at: now };
            self.buckets.insert(subject.clone(), bucket);
            return true;
        };
        let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed / REFILL_SECONDS).min(BURST);
        bucket.at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }

    fn combine(&mut self, key: &SimilarKey, note: &str, now: Timestamp) -> bool {
        let Some(similar) = self.similar.get_mut(key) else {
            let similar = Similar { notes: HashSet::from([note.to_owned()]), at: now };
            self.similar.insert(key.clone(), similar);
            return false;
        };
        if seconds_since(similar.at, now) > SIMILAR_SECONDS {
            similar.notes.clear();
        }
        similar.at = now;
        if similar.notes.contains(note) {
            return false;
        }
        let combined = similar.notes.len() + 1 >= SIMILAR;
        if !combined {
            similar.notes.insert(note.to_owned());
        }
        combined
    }
}

fn seconds_since(then: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}

fn subject(record: &Record) -> Subject {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let regarding = &record.regarding;
    Subject {
        reporter: record.reporter.to_string(),
        api_version: text(&regarding.api_version),
        kind: text(&regarding.kind),
        namespace: text(&regarding.namespace),
        name: text(&regarding.name),
        uid: text(&regarding.uid),
    }
}

/// A map that forgets what was not used for longest.
struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        self.clock += 1;
        if self.entries.len() >= REMEMBERED {
            // An eighth at a time, so that the search is paid for rarely.
            let mut ages: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
            let (_, &mut limit, _) = ages.select_nth_unstable(REMEMBERED / 8);
            self.entries.retain(|_, (used, _)| *used > limit);
        }
        self.entries.insert(key, (self.clock, value));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::events::NewEvent;

    fn record(name: &str, reason: &str, note: &str) -> Record {
        Record {
            regarding: ObjectReference { name: Some(name.into()), ..ObjectReference::default() },
            event: NewEvent::normal(reason, note),
            reporter: "test".into(),
            host: None,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    /// Decides and, like the writer, tells about what was created.
    fn run(correlator: &mut Correlator, record: &Record, now: Timestamp) -> String {
        match correlator.decide(record, now) {
            Decision::Drop => "drop".into(),
            Decision::Create { series, note, count, .. } => {
                correlator.created(&series, format!("event-{note}"));
                if count == 1 { format!("create {note}") } else { format!("create {note} {count}") }
            }
            Decision::Extend { name, count, .. } => format!("extend {name} {count}"),
        }
    }

    #[test]
    fn the_same_event_becomes_a_series_until_it_pauses() {
        let mut c = Correlator::default();
        let event = record("a", "Fed", "x");
        assert_eq!(run(&mut c, &event, at(0)), "create x");
        assert_eq!(run(&mut c, &event, at(100)), "extend event-x 2");
        assert_eq!(run(&mut c, &event, at(460)), "extend event-x 3");
        assert_eq!(run(&mut c, &event, at(900)), "create x");
    }

    #[test]
    fn the_tenth_different_note_is_combined() {
        let mut c = Correlator::default();
        for n in 0..9 {
            let note = n.to_string();
            assert_eq!(run(&mut c, &record("a", "Fed", &note), at(n)), format!("create {note}"));
        }
        assert_eq!(run(&mut c, &record("a", "Fed", "9"), at(9)), "create (combined from similar events): 9");
        assert_eq!(run(&mut c, &record("a", "Fed", "10"), at(10)), "extend event-(combined from similar events): 9 2");
        assert_eq!(run(&mut c, &record("a", "Fed", "3"), at(11)), "extend event-3 2");
        assert_eq!(run(&mut c, &record("a", "Washed", "0"), at(11)), "create 0");
        assert_eq!(run(&mut c, &record("a", "Fed", "11"), at(700)), "create 11");
    }

    #[test]
    fn events_per_object_are_limited_after_a_burst_of_25() {
        let mut c = Correlator::default();
        let passed = |c: &mut Correlator, name: &str, now| run(c, &record(name, "Fed", "x"), now) != "drop";
        for _ in 0..25 {
            assert!(passed(&mut c, "a", at(0)));
        }
        assert!(!passed(&mut c, "a", at(0)));
        assert!(passed(&mut c, "b", at(0)), "other objects are not affected");
        assert!(!passed(&mut c, "a", at(299)));
        assert!(passed(&mut c, "a", at(301)));
        assert!(!passed(&mut c, "a", at(302)));
    }

    #[test]
    fn what_is_dropped_is_counted() {
        let mut c = Correlator::default();
        let event = record("a", "Fed", "x");
        for n in 1..=25 {
            let said = if n == 1 { "create x".to_owned() } else { format!("extend event-x {n}") };
            assert_eq!(run(&mut c, &event, at(0)), said);
        }
        let other = record("a", "Washed", "y");
        for _ in 0..15 {
            assert_eq!(run(&mut c, &event, at(0)), "drop");
            assert_eq!(run(&mut c, &other, at(0)), "drop");
        }
        assert_eq!(run(&mut c, &event, at(301)), "extend event-x 41");
        assert_eq!(run(&mut c, &other, at(302)), "drop");
        assert_eq!(run(&mut c, &other, at(603)), "create y 17");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        for n in 0..20_000u32 {
            recent.insert(n, ());
            recent.get_mut(&0);
        }
        assert!(recent.entries.len() <= REMEMBERED);
        assert!(recent.entries.contains_key(&0), "used all the time");
        assert!(recent.entries.contains_key(&19_999));
    }
}
