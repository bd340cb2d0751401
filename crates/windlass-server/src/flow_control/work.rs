//! How many seats a request takes, before it is executed.
//!
//! Lists, and watches that begin with what is there, take a seat per 100 kB that they hold at once; writes that many
//! watchers hear of keep seats for a moment after their end; everything else takes one. Mirrors
//! `flowcontrol/request/{width,list_work_estimator,mutating_work_estimator}.go`, with the number and size of the objects
//! that the list itself reads instead of statistics of a minute ago.

use windlass_store::Range;

use super::queue_set::Work;
use super::{Class, FlowControl, Nanos, Objects, WATCHES_PER_SEAT};
use crate::attributes::ResourceTarget;
use crate::request::Query;

/// One request takes at most so many seats, whatever the level allows.
const MAX_LIST_SEATS: u64 = 100;
const MAX_WRITE_SEATS: u32 = 10;
const BYTES_PER_SEAT: u64 = 100_000;
/// Lists are streamed: they hold no more than this.
const STREAM_BYTES: u64 = 1_000_000;
/// Telling a seat's worth of watchers takes this long.
const EVENT_TIME: Nanos = 5_000_000;
/// The size of objects is that of the first few.
const SAMPLE: usize = 8;

/// What a write takes, and how many watchers hear of it.
pub(super) fn of_write(control: &FlowControl, class: &Class, target: &ResourceTarget<'_>) -> (Work, u32) {
    if (target.resource, target.subresource) == ("serviceaccounts", "token") {
        return (Work::seats(1), 0);
    }
    let watchers = control.watches.interested(target);
    if watchers < WATCHES_PER_SEAT {
        return (Work::seats(1), watchers);
    }
    let most = match class.max_seats {
        0 => MAX_WRITE_SEATS,
        most => most.min(MAX_WRITE_SEATS),
    };
    let seats = watchers.div_ceil(WATCHES_PER_SEAT);
    let last = seats.min(most);
    // The same work by fewer seats takes longer.
    let linger = EVENT_TIME * u64::from(seats) / u64::from(last);
    (Work { initial: 1, last, linger }, watchers)
}

/// Whether a watch begins with all objects.
pub(super) fn has_initial_events(query: &Query) -> bool {
    query.flag("sendInitialEvents").unwrap_or(false) || matches!(query.get("resourceVersion"), None | Some("0"))
}

/// What a list, or a watch with initial events, takes.
pub(super) async fn of_list(
    objects: &Objects,
    class: &Class,
    version: &str,
    target: &ResourceTarget<'_>,
    query: &Query,
) -> Work {
    if !target.name.is_empty() {
        return Work::seats(1);
    }
    let prefix = {
        let snapshot = objects.catalog.snapshot();
        let Some(served) = snapshot.find(target.group, version, target.resource) else { return Work::seats(1) };
        match target.namespace {
            "" => served.prefix.to_string(),
            namespace => format!("{}{namespace}/", served.prefix),
        }
    };
    let Ok(sample) = objects.store.range(Range::prefix(prefix), None, SAMPLE).await else { return Work::seats(1) };
    let bytes: usize = sample.entries.iter().map(|entry| entry.value.len()).sum();
    let count = sample.entries.len() + sample.remaining;
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0).unwrap_or(count);
    let average = (bytes / sample.entries.len().max(1)) as u64;
    Work::seats(seats(average.saturating_mul(count.min(limit) as u64), class.max_seats))
}

/// The seats of a list that reads so many bytes.
fn seats(bytes: u64, most: u32) -> u32 {
    let most = if most == 0 { MAX_LIST_SEATS } else { u64::from(most).min(MAX_LIST_SEATS) };
    let seats = bytes.min(STREAM_BYTES).div_ceil(BYTES_PER_SEAT).clamp(1, most);
    u32::try_from(seats).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_take_a_seat_for_each_100_kb() {
        for (bytes, most, expected) in
            [(0, 0, 1), (1, 0, 1), (100_001, 0, 2), (950_000, 0, 10), (9_000_000, 0, 10), (9_000_000, 8, 8)]
        {
            assert_eq!(seats(bytes, most), expected, "{bytes} {most}");
        }
    }

    #[test]
    fn watches_begin_with_all_objects_unless_they_go_on() {
        let check = |query: &str| has_initial_events(&Query::parse(Some(query)));
        assert!(check("watch=1") && check("resourceVersion=0") && check("resourceVersion=9&sendInitialEvents=true"));
        assert!(!check("resourceVersion=9"));
    }
}
