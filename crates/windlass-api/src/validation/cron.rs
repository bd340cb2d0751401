//! Schedules of CronJobs: five fields, or a descriptor such as `@hourly`.
//!
//! Only checks; what a schedule means is the controller's business. The messages are those of the
//! parser upstream uses (robfig/cron).

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

/// Checks a schedule; the error says what is wrong with it.
pub fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some((_, rest)) = schedule.split_once(' ') else {
            return Err("expected exactly 5 fields, found 0: []".to_owned());
        };
        schedule = rest.trim();
    }
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let list = fields.join(" ");
        return Err(format!("expected exactly 5 fields, found {}: [{list}]", fields.len()));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    if ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"].contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) if windlass_cel::go::duration::parse(duration).is_some() => Ok(()),
        Some(duration) => {
            Err(format!("failed to parse duration {text}: time: invalid duration {}", crate::field::quote(duration)))
        }
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
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
            assert_eq!(check(good), Ok(()), "{good}");
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
            assert_eq!(check(bad), Err(message.to_owned()));
        }
    }
}
