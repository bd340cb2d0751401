//! When cron schedules come, in a time zone. How they are written is [`windlass_api::validation::cron`]'s.
//!
//! As in the parser upstream uses (robfig/cron), a day matches by month and week day if both are
//! unrestricted or one is, and by either if both are given.

use k8s_openapi::jiff::civil::{Date, DateTime, Time};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone};
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan as _};
use windlass_api::validation::cron::{self, Field, Rule};

/// A schedule that has no time within this many days never has one (a leap day takes up to eight years).
const HORIZON: i32 = 366 * 9;

/// When something is to happen.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule; nothing if it cannot be understood.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Option<Self> {
        let schedule = cron::parse(text).ok()?;
        let zone = schedule.zone.map_or(Some(zone), time_zone)?;
        Some(Self { rule: schedule.rule, zone })
    }

    /// The time zone of the schedule.
    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first time after another; nothing if there is none.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let fields = match &self.rule {
            Rule::Every(duration) => {
                let next = after.checked_add(SignedDuration::try_from(*duration).ok()?).ok()?;
                return Timestamp::from_second(next.as_second()).ok();
            }
            Rule::Fields(fields) => fields,
        };
        let start = self.zone.to_datetime(after);
        let mut date = start.date();
        let mut from = start.time();
        for _ in 0..HORIZON {
            if matches_day(fields, date)
                && let Some(found) = self.in_day(fields, date, from, after)
            {
                return Some(found);
            }
            date = date.checked_add(1.day()).ok()?;
            from = Time::midnight();
        }
        None
    }

    /// The first time of a day that is later than `after`.
    fn in_day(&self, [minutes, hours, ..]: &[Field; 5], date: Date, from: Time, after: Timestamp) -> Option<Timestamp> {
        (from.hour()..24).filter(|hour| hours.has(*hour)).find_map(|hour| {
            let minutes = (0..60).filter(|minute| minutes.has(*minute));
            let times = minutes.flat_map(|minute| self.occurrences(date, Time::constant(hour, minute, 0, 0)));
            times.filter(|time| *time > after).min()
        })
    }

    /// When the clocks show a time: not at all if they skip it, and twice if they are set back over it.
    fn occurrences(&self, date: Date, time: Time) -> impl Iterator<Item = Timestamp> + use<> {
        let at = DateTime::from_parts(date, time);
        let offsets = match self.zone.to_ambiguous_timestamp(at).offset() {
            AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
            AmbiguousOffset::Gap { .. } => [None, None],
            AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
        };
        offsets.into_iter().flatten().filter_map(move |offset| offset.to_timestamp(at).ok())
    }
}

fn matches_day([_, _, day, month, week_day]: &[Field; 5], date: Date) -> bool {
    let by_day = day.has(date.day());
    let by_week = week_day.has(date.weekday().to_sunday_zero_offset());
    month.has(date.month()) && if day.any || week_day.any { by_day && by_week } else { by_day || by_week }
}

/// A time zone by name.
pub(super) fn time_zone(name: &str) -> Option<TimeZone> {
    if name.is_empty() { Some(TimeZone::UTC) } else { TimeZone::get(name).ok() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn check(schedule: &str, after: &str, expected: &str) {
        let schedule = Schedule::parse(schedule, TimeZone::UTC).unwrap();
        let next = schedule.next(after.parse().unwrap()).map(|next| next.to_string());
        assert_eq!(next.as_deref().unwrap_or("never"), expected);
    }

    #[test]
    fn the_next_time_of_a_schedule() {
        let after = "2026-01-31T12:34:56Z";
        check("* * * * *", after, "2026-01-31T12:35:00Z");
        check("*/15 * * * *", after, "2026-01-31T12:45:00Z");
        check("0 9-17/4 * * *", after, "2026-01-31T13:00:00Z");
        check("30 5 1 * *", after, "2026-02-01T05:30:00Z");
        check("0 0 29 feb *", after, "2028-02-29T00:00:00Z");
        check("0 0 * * mon-fri", after, "2026-02-02T00:00:00Z");
        // Both days given: either will do.
        check("0 0 13 * 0", after, "2026-02-01T00:00:00Z");
        check("0 0 31 2 *", after, "never");
        check("@hourly", after, "2026-01-31T13:00:00Z");
        check("@every 1h30m", after, "2026-01-31T14:04:56Z");
        check("35 12 * * *", "2026-01-31T12:35:00Z", "2026-02-01T12:35:00Z");
    }

    #[test]
    fn what_is_not_a_schedule_is_refused() {
        for text in ["", "* * * *", "60 * * * *", "5-1 * * * *", "*/0 * * * *", "@never", "@every soon", "x * * * *"] {
            assert!(Schedule::parse(text, TimeZone::UTC).is_none(), "{text}");
        }
        assert!(time_zone("../../etc/passwd").is_none() && time_zone("/etc/passwd").is_none());
    }

    #[test]
    fn clocks_that_change_skip_or_repeat_times() {
        let check = |text: &str, after: &str, expected: &str| {
            let schedule = Schedule::parse(text, time_zone("America/New_York").unwrap()).unwrap();
            let next = schedule.next(after.parse().unwrap()).map(|next| next.to_string());
            assert_eq!(next.as_deref(), Some(expected), "{text} {after}");
        };
        // At 2 in the morning of March 8 it is 3, and at 2 in the morning of November 1 it is 1 again.
        check("30 2 * * *", "2026-03-07T12:00:00Z", "2026-03-09T06:30:00Z");
        check("0 3 * * *", "2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z");
        check("30 1 * * *", "2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z");
        check("30 1 * * *", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z");
        check("*/30 * * * *", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z");
        check("0 2 * * *", "2026-11-01T05:59:00Z", "2026-11-01T07:00:00Z");
        check("0 0 * * *", "2026-11-01T05:00:00Z", "2026-11-02T05:00:00Z");
    }
}
