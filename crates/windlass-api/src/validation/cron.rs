//! Schedules of CronJobs: five fields, or a descriptor such as `@hourly`.
//!
//! When a schedule comes next is the controller's business. The messages are those of the parser upstream uses
//! (robfig/cron).

use std::time::Duration;

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule<'t> {
    /// The name of the time zone, if the schedule has one.
    pub zone: Option<&'t str>,
    /// When it comes.
    pub rule: Rule,
}

/// When a schedule comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// At each minute, hour, day of the month, month and day of the week that is in these sets.
    Fields([Field; 5]),
    /// A fixed time after the last, in whole seconds and at least one.
    Every(Duration),
}

/// A set of numbers below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    bits: u64,
    /// Whether it was given as a star.
    pub any: bool,
}

impl Field {
    /// Whether a number is in the set.
    pub fn has(self, number: i8) -> bool {
        self.bits & (1 << number) != 0
    }
}

struct Bounds {
    least: u64,
    most: u64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, most: 59, names: &[] },
    Bounds { least: 0, most: 23, names: &[] },
    Bounds { least: 1, most: 31, names: &[] },
    Bounds { least: 1, most: 12, names: MONTHS },
    Bounds { least: 0, most: 6, names: DAYS },
];

/// Reads a schedule; the error says what is wrong with it.
pub fn parse(text: &str) -> Result<Schedule<'_>, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let Some(zoned) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok(Schedule { zone: None, rule: rule(text)? });
    };
    let Some((zone, rest)) = zoned.split_once(' ') else {
        return Err("expected exactly 5 fields, found 0: []".to_owned());
    };
    Ok(Schedule { zone: Some(zone), rule: rule(rest.trim())? })
}

fn rule(schedule: &str) -> Result<Rule, String> {
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let list = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{list}]", fields.len()));
    }
    let mut sets = [Field::default(); FIELDS.len()];
    for ((field, bounds), set) in fields.iter().zip(&FIELDS).zip(&mut sets) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            add_range(set, part, bounds)?;
        }
    }
    Ok(Rule::Fields(sets))
}

fn descriptor(text: &str) -> Result<Rule, String> {
    match text {
        "@yearly" | "@annually" => return rule("0 0 1 1 *"),
        "@monthly" => return rule("0 0 1 * *"),
        "@weekly" => return rule("0 0 * * 0"),
        "@daily" | "@midnight" => return rule("0 0 * * *"),
        "@hourly" => return rule("0 * * * *"),
        _ => {}
    }
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    let Some(nanoseconds) = windlass_cel::go::duration::parse(duration) else {
        let quoted = crate::field::quote(duration);
        return Err(format!("failed to parse duration {text}: time: invalid duration {quoted}"));
    };
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).unwrap_or_default();
    Ok(Rule::Every(Duration::from_secs(seconds.max(1))))
}

fn add_range(set: &mut Field, expression: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let is_star = ends[0] == "*" || ends[0] == "?";
    let (start, mut end) = if is_star {
        (bounds.least, bounds.most)
    } else {
        let start = value(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, high] => (start, value(high, bounds)?),
            _ => return Err(format!("too many hyphens: {expression}")),
        }
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < bounds.least {
        return Err(format!("beginning of range ({start}) below minimum ({}): {expression}", bounds.least));
    }
    if end > bounds.most {
        return Err(format!("end of range ({end}) above maximum ({}): {expression}", bounds.most));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    let mut next = Some(start);
    while let Some(number) = next.filter(|number| *number <= end) {
        set.bits |= 1 << number;
        next = number.checked_add(step);
    }
    set.any |= is_star && step == 1;
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    match bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
        Some(i) => Ok(i as u64 + bounds.least),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => {
            let quoted = crate::field::quote(text);
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["0 0 1 1 *", "*/5 * * * *", "0 9-17 * jan-DEC mon-fri", "@hourly", "@every 1h30m", "1,2,3 ? * * 0"]
        {
            assert!(parse(good).is_ok(), "{good}");
        }
        for (bad, message) in [
            ("nonsense", "expected exactly 5 fields, found 1: [nonsense]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
        ] {
            assert_eq!(parse(bad), Err(message.to_owned()));
        }
    }
}
