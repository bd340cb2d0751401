//! Durations as Go reads them, in nanoseconds.

use std::sync::LazyLock;

use regex::Regex;

use crate::go::quote;

const NANOS: i64 = 1_000_000_000;

/// A duration as `time.ParseDuration` takes it.
pub fn parse(text: &str) -> Option<i64> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (amount, after) = rest.split_at(end);
        let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total += whole.parse::<i128>().unwrap_or(0) * unit;
        let digits = &fraction[..fraction.len().min(18)];
        if !digits.is_empty() {
            total += digits.parse::<i128>().ok()? * unit / 10i128.pow(digits.len() as u32);
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// What `time.ParseDuration` says about a text that is no duration.
pub fn why_invalid(text: &str) -> String {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    while let Some(after) = after_amount(rest) {
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return format!("time: missing unit in duration {}", quote(text));
        }
        if !matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return format!("time: unknown unit {} in duration {}", quote(unit), quote(text));
        }
        rest = after;
    }
    format!("time: invalid duration {}", quote(text))
}

/// What follows a number, if there is one.
fn after_amount(text: &str) -> Option<&str> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = digits(text);
    let after = &text[whole..];
    let Some(fraction) = after.strip_prefix('.') else { return (whole > 0).then_some(after) };
    let length = digits(fraction);
    (whole + length > 0).then(|| &fraction[length..])
}

static AMOUNTS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)").expect("invariant: the pattern is well-formed"));

/// A `duration` value: a Go duration, or amounts with words as units.
pub(crate) fn parse_lenient(text: &str) -> Option<i64> {
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", NANOS),
        (&["m"], "min", 60 * NANOS),
        (&["h", "hr"], "hour", 3_600 * NANOS),
        (&["d"], "day", 86_400 * NANOS),
        (&["w", "wk"], "week", 7 * 86_400 * NANOS),
    ];
    if let Some(duration) = parse(text) {
        return Some(duration);
    }
    let mut total = None;
    for amount in AMOUNTS.captures_iter(text) {
        let factor: i64 = amount[1].parse().ok()?;
        let unit = amount[2].to_lowercase();
        for (short, long, nanos) in UNITS {
            if short.contains(&unit.as_str()) || unit.starts_with(long) {
                total = Some(total.unwrap_or(0i64).wrapping_add(factor.wrapping_mul(nanos)));
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_durations_are_named_as_go_does() {
        for (text, why) in [
            ("5", "missing unit in duration \"5\""),
            ("1s2", "missing unit in duration \"1s2\""),
            ("5x", "unknown unit \"x\" in duration \"5x\""),
            ("soon", "invalid duration \"soon\""),
            ("-", "invalid duration \"-\""),
            (".s", "invalid duration \".s\""),
            ("1..5s", "missing unit in duration \"1..5s\""),
            ("99999999999999999999h", "invalid duration \"99999999999999999999h\""),
        ] {
            assert_eq!(parse(text), None, "{text}");
            assert_eq!(why_invalid(text), format!("time: {why}"));
        }
    }
}
