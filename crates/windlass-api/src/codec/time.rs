//! Timestamps as Go's `metav1.Time` and `metav1.MicroTime` read and print them.
//!
//! Parsing follows Go's `time.Parse` with its layouts, down to the wording of errors: which part of the
//! text did not fit which part of the layout.

use crate::field::quote;

/// Which of the two timestamp types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `metav1.Time`: fractions are accepted and dropped.
    Seconds,
    /// `metav1.MicroTime`: exactly six decimals.
    Micros,
}

impl Precision {
    const fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// A moment: seconds since 1970 and nanoseconds within the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// Go's zero time, 0001-01-01T00:00:00Z, which stands for "none".
const GO_ZERO: Moment = Moment { seconds: -62_135_596_800, nanos: 0 };

impl Moment {
    /// Whether this is Go's zero time.
    pub(crate) fn is_zero(self) -> bool {
        self == GO_ZERO
    }

    /// The text Go prints, in UTC.
    pub fn format(self, precision: Precision) -> String {
        let (days, second) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = match precision {
            Precision::Seconds => String::new(),
            Precision::Micros => format!(".{:06}", self.nanos / 1000),
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{micros}Z")
    }
}

/// Reads a timestamp, or says what Go would say.
pub fn parse(text: &str, precision: Precision) -> Result<Moment, String> {
    Parser { text, rest: text, layout: precision.layout() }.moment(precision)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Parser<'a> {
    fn moment(mut self, precision: Precision) -> Result<Moment, String> {
        let year = self.number(4, 4, "2006")?;
        self.literal("-")?;
        let month = self.number(2, 2, "01")?;
        self.in_range((1..=12).contains(&month), "month")?;
        self.literal("-")?;
        let day = self.number(2, 2, "02")?;
        self.literal("T")?;
        let hour = self.number(1, 2, "15")?;
        self.in_range(hour < 24, "hour")?;
        self.literal(":")?;
        let minute = self.number(2, 2, "04")?;
        self.in_range(minute < 60, "minute")?;
        self.literal(":")?;
        let second = self.number(2, 2, "05")?;
        self.in_range(second < 60, "second")?;
        let nanos = match precision {
            Precision::Seconds => self.optional_fraction(),
            Precision::Micros => self.six_decimals()?,
        };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {}: extra text: {}", quote(self.text), quote(self.rest)));
        }
        self.in_range(day >= 1 && day <= days_in(month, year), "day")?;
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Ok(Moment { seconds, nanos })
    }

    fn mismatch(&self, at: &str, layout: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(self.text),
            quote(self.layout),
            quote(at),
            quote(layout)
        )
    }

    fn in_range(&self, holds: bool, what: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("parsing time {}: {what} out of range", quote(self.text))) }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.mismatch(self.rest, literal))?;
        Ok(())
    }

    fn number(&mut self, min: usize, max: usize, layout: &str) -> Result<i64, String> {
        let digits = self.rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
        if digits < min {
            return Err(self.mismatch(self.rest, layout));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.bytes().fold(0, |n, b| n * 10 + i64::from(b - b'0')))
    }

    fn optional_fraction(&mut self) -> u32 {
        let Some(fraction) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return 0;
        }
        let (digits, rest) = fraction.split_at(digits);
        self.rest = rest;
        nanos(digits)
    }

    fn six_decimals(&mut self) -> Result<u32, String> {
        let digits = self.rest.strip_prefix(['.', ',']).and_then(|fraction| fraction.get(..6));
        match digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())) {
            Some(digits) => {
                self.rest = &self.rest[7..];
                Ok(nanos(digits))
            }
            None => Err(self.mismatch(self.rest, ".000000")),
        }
    }

    /// The zone's offset from UTC in seconds.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let hold: &'a str = self.rest;
        let bytes = hold.as_bytes();
        let two = |at: usize| -> Option<i64> {
            let digits = bytes.get(at..at + 2)?;
            digits
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| i64::from(digits[0] - b'0') * 10 + i64::from(digits[1] - b'0'))
        };
        let sign = match bytes.first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.mismatch(hold, "Z07:00")),
        };
        let (Some(hours), Some(b':'), Some(minutes)) = (two(1), bytes.get(3), two(4)) else {
            return Err(self.mismatch(hold, "Z07:00"));
        };
        self.in_range(hours <= 24, "time zone offset hour")?;
        self.in_range(minutes < 60, "time zone offset minute")?;
        self.rest = &hold[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

/// Digits after the point as nanoseconds; more than nine are cut.
fn nanos(digits: &str) -> u32 {
    let padded = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    padded.fold(0, |n, b| n * 10 + u32::from(b - b'0'))
}

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date, counting years from March so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Precision::{Micros, Seconds};
    use super::*;

    fn reprinted(text: &str, precision: Precision) -> Result<String, String> {
        parse(text, precision).map(|moment| moment.format(precision))
    }

    #[test]
    fn times_print_in_utc() {
        for (text, expected) in [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T03:04:05.999Z", "2020-01-02T03:04:05Z"),
            ("2020-01-01T01:00:00+02:30", "2019-12-31T22:30:00Z"),
            ("2020-12-31T23:00:00-02:00", "2021-01-01T01:00:00Z"),
            ("2000-02-29T3:04:05Z", "2000-02-29T03:04:05Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(reprinted(text, Seconds).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(reprinted("2020-01-02T03:04:05.123456+01:00", Micros).as_deref(), Ok("2020-01-02T02:04:05.123456Z"));
        assert!(parse("0001-01-01T00:00:00Z", Seconds).is_ok_and(Moment::is_zero));
    }

    #[test]
    fn errors_read_as_in_go() {
        for (text, precision, expected) in [
            (
                "yesterday",
                Micros,
                r#"parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" as "2006""#,
            ),
            (
                "2020-01-02T03:04:06.5Z",
                Micros,
                r#"parsing time "2020-01-02T03:04:06.5Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse ".5Z" as ".000000""#,
            ),
            ("", Seconds, r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2020-13-02T03:04:05Z", Seconds, r#"parsing time "2020-13-02T03:04:05Z": month out of range"#),
            ("2021-02-29T03:04:05Z", Seconds, r#"parsing time "2021-02-29T03:04:05Z": day out of range"#),
            (
                "2020/01/02",
                Seconds,
                r#"parsing time "2020/01/02" as "2006-01-02T15:04:05Z07:00": cannot parse "/01/02" as "-""#,
            ),
            (
                "2020-01-02T03:04:05",
                Seconds,
                r#"parsing time "2020-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2020-01-02T03:04:05Zx", Seconds, r#"parsing time "2020-01-02T03:04:05Zx": extra text: "x""#),
        ] {
            assert_eq!(parse(text, precision).expect_err(text), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(seconds in -62_135_596_800i64..253_402_300_800, micros in 0u32..1_000_000) {
            let moment = Moment { seconds, nanos: micros * 1000 };
            prop_assert_eq!(parse(&moment.format(Micros), Micros), Ok(moment));
            prop_assert_eq!(parse(&moment.format(Seconds), Seconds).map(|m| m.seconds), Ok(seconds));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,30}", looks in "[0-9T:.,Z+é-]{0,34}") {
            for text in [text, looks] {
                let _ = (parse(&text, Seconds), parse(&text, Micros));
            }
        }
    }
}
