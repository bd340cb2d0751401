//! Cron schedules: five fields or a descriptor, in a time zone.
//!
//! As in the parser upstream uses (robfig/cron), a day matches by month and week day if both are
//! unrestricted or one is, and by either if both are given.

use k8s_openapi::jiff::civil::{Date, DateTime, Time};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone};
use k8s_openapi::jiff::{SignedDuration, Timestamp, ToSpan as _};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// A schedule that has no time within this many days never has one (a leap day takes up to eight years).
const HORIZON: i32 = 366 * 9;

/// A set of numbers below 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// Whether it was given as a star.
    any: bool,
}

impl Field {
    fn has(self, number: i8) -> bool {
        self.bits & (1 << number) != 0
    }

    fn parse(text: &str, least: u64, most: u64, names: &[&str]) -> Option<Self> {
        let number = |text: &str| match names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            Some(at) => Some(at as u64 + least),
            None => text.parse().ok(),
        };
        let mut field = Self { bits: 0, any: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None if range == "*" || range == "?" => (least, most),
                // With a step a single number is where to begin.
                None => (number(range)?, if step.is_some() { most } else { number(range)? }),
            };
            let step: u64 = step.map_or(Some(1), |step| step.parse().ok())?;
            field.any |= (range == "*" || range == "?") && step == 1;
            if first < least || last > most || first > last || step == 0 {
                return None;
            }
            let mut at = first;
            while at <= last {
                field.bits |= 1 << at;
                at += step;
            }
        }
        (field.bits != 0).then_some(field)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// Minute, hour, day of the month, month, day of the week.
    Fields([Field; 5]),
    /// A fixed time after the last.
    Every(SignedDuration),
}

/// When something is to happen.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule; nothing if it cannot be understood.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Option<Self> {
        let (text, zone) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(rest) => {
                let (name, rest) = rest.split_once(' ')?;
                (rest.trim(), time_zone(name)?)
            }
            None => (text, zone),
        };
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(duration) = fields.strip_prefix("@every ") {
            return Some(Self { rule: Rule::Every(every(duration)?), zone });
        }
        let parts: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, week_day] = parts.as_slice() else { return None };
        let fields = [
            Field::parse(minute, 0, 59, &[])?,
            Field::parse(hour, 0, 23, &[])?,
            Field::parse(day, 1, 31, &[])?,
            Field::parse(month, 1, 12, &MONTHS)?,
            Field::parse(week_day, 0, 6, &DAYS)?,
        ];
        Some(Self { rule: Rule::Fields(fields), zone })
    }

    /// The time zone of the schedule.
    pub(super) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first time after another; nothing if there is none.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let fields = match &self.rule {
            Rule::Every(duration) => {
                let next = after.checked_add(*duration).ok()?;
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

/// A duration as Go writes them, no shorter than a second.
fn every(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let (factor, length) = match tail.as_bytes() {
            [b'm', b's', ..] => (0.001, 2),
            [b'h', ..] => (3600.0, 1),
            [b'm', ..] => (60.0, 1),
            [b's', ..] => (1.0, 1),
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = &tail[length..];
    }
    let seconds = (total as i64).max(1);
    Some(SignedDuration::from_secs(seconds))
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
