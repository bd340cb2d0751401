//! The parts of times and durations.

use super::{Builtin, Context, Value, no_overload};
use crate::value::{Error, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    let known = name.starts_with("get")
        && matches!(
            &name[3..],
            "FullYear"
                | "Month"
                | "DayOfYear"
                | "DayOfMonth"
                | "Date"
                | "DayOfWeek"
                | "Hours"
                | "Minutes"
                | "Seconds"
                | "Milliseconds"
        );
    known.then_some(part)
}

fn part<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (time, zone) = match args {
        [Value::Duration(nanos)] => {
            return Ok(Value::Int(match context.function {
                "getHours" => nanos / 3_600_000_000_000,
                "getMinutes" => nanos / 60_000_000_000,
                "getSeconds" => nanos / 1_000_000_000,
                "getMilliseconds" => nanos / 1_000_000,
                _ => return Err(no_overload(context, args)),
            }));
        }
        [Value::Timestamp(time)] => (time, ""),
        [Value::Timestamp(time), Value::String(zone)] => (time, &**zone),
        _ => return Err(no_overload(context, args)),
    };
    let calendar = time.calendar(offset(zone, time.seconds)?);
    Ok(Value::Int(match context.function {
        "getFullYear" => calendar.year,
        "getMonth" => calendar.month - 1,
        "getDayOfYear" => calendar.year_day,
        "getDayOfMonth" => calendar.day - 1,
        "getDate" => calendar.day,
        "getDayOfWeek" => calendar.week_day,
        "getHours" => calendar.hour,
        "getMinutes" => calendar.minute,
        "getSeconds" => calendar.second,
        _ => i64::from(time.nanos / 1_000_000),
    }))
}

/// Seconds east of UTC of a zone: a name, or hours and minutes.
fn offset(zone: &str, seconds: i64) -> Result<i64, Error> {
    let Some((hours, minutes)) = zone.split_once(':') else { return named(zone, seconds) };
    let number = |text: &str| {
        text.parse::<i64>()
            .map_err(|_| Error::new(format!("strconv.Atoi: parsing {}: invalid syntax", crate::go::quote(text))))
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
    Ok(minutes.clamp(-100_000, 100_000) * 60)
}

fn named(zone: &str, seconds: i64) -> Result<i64, Error> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    let unknown = || Error::new(format!("unknown time zone {zone}"));
    let zone = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    let at = jiff::Timestamp::from_second(seconds).map_err(|_| unknown())?;
    Ok(i64::from(zone.to_offset(at).seconds()))
}
