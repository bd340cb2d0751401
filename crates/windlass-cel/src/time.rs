//! Points in time and durations as Go parses and prints them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

/// A point in time, and the zone it was written in.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    /// Nanoseconds within the second.
    pub(crate) nanos: u32,
    /// Seconds east of UTC.
    pub(crate) offset: i32,
}

/// The years that exist.
const MIN: i64 = -62_135_596_800;
const MAX: i64 = 253_402_300_799;
const NANOS: i64 = 1_000_000_000;

impl Timestamp {
    /// The time `seconds` after 1970, if it is in a year that exists.
    pub(super) fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (MIN..=MAX).contains(&seconds).then_some(Self { seconds, nanos, offset: 0 })
    }

    pub(super) fn key(self) -> (i64, u32) {
        (self.seconds, self.nanos)
    }

    pub(super) fn is_zero(self) -> bool {
        self.seconds == MIN && self.nanos == 0
    }

    /// Moves by nanoseconds; `None` if that leads out of range.
    pub(super) fn plus(self, nanos: i64) -> Option<Self> {
        let total = i64::from(self.nanos) + nanos.rem_euclid(NANOS);
        let seconds = self.seconds.checked_add(nanos.div_euclid(NANOS))?.checked_add(total / NANOS)?;
        Self::new(seconds, (total % NANOS) as u32).map(|moved| Self { offset: self.offset, ..moved })
    }

    /// Nanoseconds since another time; `None` if that is too many.
    pub(super) fn since(self, other: Self) -> Option<i64> {
        let nanos = i128::from(self.seconds - other.seconds) * i128::from(NANOS) + i128::from(self.nanos)
            - i128::from(other.nanos);
        i64::try_from(nanos).ok()
    }

    /// The calendar in a zone `offset` seconds east of UTC.
    pub(super) fn calendar(self, offset: i64) -> Calendar {
        let local = self.seconds + offset;
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        Calendar {
            year,
            month,
            day,
            year_day: days - days_from_civil(year, 1, 1),
            week_day: (days + 4).rem_euclid(7),
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// RFC 3339 with as many decimals as there are.
    pub(super) fn display(self) -> String {
        let at = self.calendar(i64::from(self.offset));
        let mut out =
            format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", at.year, at.month, at.day, at.hour, at.minute, at.second);
        if self.nanos > 0 {
            let _ = write!(out, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let (sign, offset) = if self.offset < 0 { ('-', -self.offset) } else { ('+', self.offset) };
            let _ = write!(out, "{sign}{:02}:{:02}", offset / 3600, offset / 60 % 60);
        }
        out
    }
}

/// The parts of a point in time.
pub(super) struct Calendar {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    /// Days since the year began.
    pub(super) year_day: i64,
    /// Days since Sunday.
    pub(super) week_day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
}

/// Year, month and day of a day counted from 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})([.,]\d+)?(Z|[+-]\d{2}:\d{2})?$";
    Regex::new(pattern).expect("invariant: the pattern is well-formed")
});

/// An RFC 3339 time, as `time.Parse(time.RFC3339, …)` takes it.
pub(super) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    parse(text, false)
}

/// A `date-time` value: the zone may be missing.
pub(super) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::new(0, 0);
    }
    parse(text, true)
}

/// A `date` value.
pub(super) fn parse_date(text: &str) -> Option<Timestamp> {
    (text.len() == 10).then(|| parse(&format!("{text}T00:00:00Z"), false)).flatten()
}

fn parse(text: &str, local: bool) -> Option<Timestamp> {
    let parts = DATE_TIME.captures(text)?;
    let number = |group: usize| parts.get(group).and_then(|part| part.as_str().parse::<i64>().ok());
    let (year, month, day) = (number(1)?, number(2)?, number(3)?);
    let (hour, minute, second) = (number(4)?, number(5)?, number(6)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    if !(1..=12).contains(&month) || !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = parts.get(7).map_or(0, |fraction| {
        let digits = &fraction.as_str()[1..];
        format!("{:0<9}", &digits[..digits.len().min(9)]).parse().unwrap_or(0)
    });
    let offset = match parts.get(8).map(|zone| zone.as_str()) {
        None if local => 0,
        None => return None,
        Some("Z") => 0,
        Some(zone) => {
            let (hours, minutes) = (zone[1..3].parse::<i32>().ok()?, zone[4..6].parse::<i32>().ok()?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            if zone.starts_with('-') { -offset } else { offset }
        }
    };
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - i64::from(offset);
    Some(Timestamp { seconds, nanos, offset })
}

/// Whether a time is in a year that exists.
pub(super) fn in_range(time: Timestamp) -> bool {
    (MIN..=MAX).contains(&time.seconds)
}
