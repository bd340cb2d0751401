//! Operators and functions.

use std::time::Duration;

use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Binary, Found, Scope, Val, parse_quantity};

/// `1h2m3.5s`, as Go reads durations; none if it is negative.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    u64::try_from(windlass_cel::go::duration::parse(text)?).ok().map(Duration::from_nanos)
}

/// The functions of CEL that are known here, kwok's own, and those that metrics have ([`Scope::call`]).
pub(super) const FUNCTIONS: [&str; 34] = [
    "Now",
    "Rand",
    "Quantity",
    "SinceSecond",
    "UnixSecond",
    "Usage",
    "CumulativeUsage",
    "StartedContainersTotal",
    "startedContainersTotal",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "split",
    "lowerAscii",
    "upperAscii",
    "trim",
    "size",
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "duration",
    "timestamp",
    "getFullYear",
    "getMonth",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];

/// How large a compiled pattern may be.
const PATTERN: usize = 64 * 1024;

/// `1h2m3.5s`, with a sign if it is negative.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    windlass_cel::go::duration::parse(text).map(SignedDuration::from_nanos)
}

pub(super) fn negate<'a>(of: &Val<'_>) -> Found<'a> {
    match of {
        Val::Quantity(amount) => Ok(Val::Quantity(-amount)),
        Val::Duration(duration) => Ok(Val::Duration(-*duration)),
        Val::Json(value) => match (value.as_i64().and_then(i64::checked_neg), value.as_f64()) {
            (Some(number), _) => Ok(Val::from(Value::from(number))),
            (None, Some(number)) => Ok(Val::from(Value::from(-number))),
            _ => Err("no such overload: -".to_owned()),
        },
        _ => Err("no such overload: -".to_owned()),
    }
}

/// All operators but those that need not look at both sides.
pub(super) fn binary<'a>(operator: Binary, left: &Val<'_>, right: &Val<'_>) -> Found<'a> {
    let bool = |value: bool| Ok(Val::from(Value::Bool(value)));
    match operator {
        Binary::Equal => bool(left.equals(right)),
        Binary::NotEqual => bool(!left.equals(right)),
        Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => {
            let order = left.compare(right).ok_or("no such overload: the values cannot be compared")?;
            bool(match operator {
                Binary::Less => order.is_lt(),
                Binary::LessOrEqual => order.is_le(),
                Binary::Greater => order.is_gt(),
                _ => order.is_ge(),
            })
        }
        Binary::In => bool(contains(left, right)?),
        _ => arithmetic(operator, left, right),
    }
}

fn contains(item: &Val<'_>, of: &Val<'_>) -> Result<bool, String> {
    match of {
        Val::Json(value) | Val::Resources(value) => match &**value {
            Value::Array(items) => Ok(items.iter().any(|one| Val::from(one.clone()).equals(item))),
            Value::Object(map) => Ok(item.as_str().is_some_and(|key| map.contains_key(key))),
            // A map or a list that is not set.
            Value::Null => Ok(false),
            _ => Err("no such overload: in".to_owned()),
        },
        _ => Err("no such overload: in".to_owned()),
    }
}

fn arithmetic<'a>(operator: Binary, left: &Val<'_>, right: &Val<'_>) -> Found<'a> {
    let none = || Err("no such overload: the values cannot be calculated with".to_owned());
    match (left, right) {
        (Val::Quantity(a), Val::Quantity(b)) => match operator {
            Binary::Add => Ok(Val::Quantity(a + b)),
            Binary::Subtract => Ok(Val::Quantity(a - b)),
            _ => none(),
        },
        (Val::Quantity(amount), Val::Json(by)) => match (operator, by.as_f64()) {
            (Binary::Multiply, Some(by)) => Ok(Val::Quantity(amount * by)),
            (Binary::Divide, Some(by)) if by != 0.0 => Ok(Val::Quantity(amount / by)),
            (Binary::Divide, Some(_)) => Err("division by zero".to_owned()),
            _ => none(),
        },
        (Val::Time(a), Val::Time(b)) if operator == Binary::Subtract => Ok(Val::Duration(a.duration_since(*b))),
        (Val::Time(time), Val::Duration(span)) | (Val::Duration(span), Val::Time(time)) => {
            let sum = match operator {
                Binary::Add => time.checked_add(*span),
                Binary::Subtract => time.checked_sub(*span),
                _ => return none(),
            };
            sum.map(Val::Time).map_err(|error| error.to_string())
        }
        (Val::Duration(a), Val::Duration(b)) => {
            let sum = match operator {
                Binary::Add => a.checked_add(*b),
                Binary::Subtract => a.checked_sub(*b),
                _ => return none(),
            };
            sum.map(Val::Duration).ok_or_else(|| "duration overflow".to_owned())
        }
        (Val::Json(a), Val::Json(b)) => match (&**a, &**b) {
            (Value::String(a), Value::String(b)) if operator == Binary::Add => {
                Ok(Val::from(Value::from(format!("{a}{b}"))))
            }
            (Value::Array(a), Value::Array(b)) if operator == Binary::Add => {
                Ok(Val::from(Value::Array(a.iter().chain(b).cloned().collect())))
            }
            (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
                (Some(a), Some(b)) => whole(operator, a, b),
                _ => real(operator, a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN)),
            },
            _ => none(),
        },
        _ => none(),
    }
}

fn whole<'a>(operator: Binary, a: i64, b: i64) -> Found<'a> {
    let result = match operator {
        Binary::Divide | Binary::Remainder if b == 0 => return Err("division by zero".to_owned()),
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::Divide => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    result.map(|number| Val::from(Value::from(number))).ok_or_else(|| "integer overflow".to_owned())
}

fn real<'a>(operator: Binary, a: f64, b: f64) -> Found<'a> {
    let result = match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        _ => return Err("no such overload: %".to_owned()),
    };
    Ok(Val::from(Value::from(result)))
}

/// A function, or a method of a value. What a function does to its first argument, a method does to its receiver.
pub(super) fn call<'a>(scope: &dyn Scope, name: &str, of: Option<Val<'a>>, arguments: Vec<Val<'a>>) -> Found<'a> {
    let is_method = of.is_some();
    let mut all: Vec<Val<'a>> = of.into_iter().chain(arguments).collect();
    let unknown = || Err(format!("no such overload: {name}"));
    let text = |value: &Val<'a>| value.as_str().map(str::to_owned);
    match (name, all.len()) {
        ("Now", 0) => Ok(Val::Time(scope.now())),
        ("Rand", 0) => Ok(Val::from(Value::from(scope.random()))),
        ("contains" | "startsWith" | "endsWith", 2) if is_method => match (text(&all[0]), text(&all[1])) {
            (Some(of), Some(part)) => Ok(Val::from(Value::Bool(match name {
                "contains" => of.contains(&part),
                "startsWith" => of.starts_with(&part),
                _ => of.ends_with(&part),
            }))),
            _ => unknown(),
        },
        ("matches", 2) => match (text(&all[0]), text(&all[1])) {
            (Some(of), Some(pattern)) => {
                let pattern = regex::RegexBuilder::new(&pattern).size_limit(PATTERN).build();
                pattern.map(|pattern| Val::from(Value::Bool(pattern.is_match(&of)))).map_err(|error| error.to_string())
            }
            _ => unknown(),
        },
        ("split", 2) if is_method => match (text(&all[0]), text(&all[1])) {
            (Some(of), Some(by)) => Ok(Val::from(Value::from(of.split(&by).collect::<Vec<_>>()))),
            _ => unknown(),
        },
        ("lowerAscii" | "upperAscii" | "trim", 1) if is_method => match text(&all[0]) {
            Some(of) => Ok(Val::from(Value::from(match name {
                "lowerAscii" => of.to_ascii_lowercase(),
                "upperAscii" => of.to_ascii_uppercase(),
                _ => of.trim().to_owned(),
            }))),
            None => unknown(),
        },
        (_, 1) => {
            let value = all.remove(0);
            unary(scope, name, value).unwrap_or_else(unknown)
        }
        _ => unknown(),
    }
}

/// Functions of one value.
fn unary<'a>(scope: &dyn Scope, name: &str, of: Val<'a>) -> Option<Found<'a>> {
    let number = |number: f64| Val::from(Value::from(number));
    Some(match name {
        "Quantity" => {
            let text = of.as_str()?;
            parse_quantity(text).map(Val::Quantity).ok_or_else(|| format!("{text:?} is no quantity"))
        }
        "SinceSecond" => {
            let created = of.as_json()?["metadata"]["creationTimestamp"].as_str();
            let created: Timestamp = created.and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH);
            Ok(number(scope.now().duration_since(created).as_secs_f64()))
        }
        "UnixSecond" => {
            let time = time(&of)?;
            Ok(number(time.as_nanosecond() as f64 / 1e9))
        }
        "size" => {
            let size = match &of {
                Val::Json(value) | Val::Resources(value) => match &**value {
                    Value::String(text) => text.chars().count(),
                    Value::Array(items) => items.len(),
                    Value::Object(map) => map.len(),
                    Value::Null => 0,
                    _ => return None,
                },
                _ => return None,
            };
            Ok(Val::from(Value::from(size)))
        }
        "int" => match (&of, of.as_str()) {
            (_, Some(text)) => {
                text.parse::<i64>().map(|number| Val::from(Value::from(number))).map_err(|e| e.to_string())
            }
            (Val::Time(time), None) => Ok(Val::from(Value::from(time.as_second()))),
            _ => Ok(Val::from(Value::from(of.as_f64()? as i64))),
        },
        "uint" => match of.as_str() {
            Some(text) => text.parse::<u64>().map(|number| Val::from(Value::from(number))).map_err(|e| e.to_string()),
            None => Ok(Val::from(Value::from(of.as_f64()? as u64))),
        },
        "double" => match of.as_str() {
            Some(text) => text.parse().map(number).map_err(|e: std::num::ParseFloatError| e.to_string()),
            None => Ok(number(of.as_f64()?)),
        },
        "bool" => match of.as_str() {
            Some("true" | "True" | "TRUE" | "t" | "1") => Ok(Val::from(Value::Bool(true))),
            Some("false" | "False" | "FALSE" | "f" | "0") => Ok(Val::from(Value::Bool(false))),
            Some(text) => Err(format!("{text:?} is no boolean")),
            None => Ok(Val::from(Value::Bool(of.as_bool()?))),
        },
        "string" => {
            let value = of.into_json();
            Ok(Val::from(Value::from(value.as_str().map_or_else(|| value.to_string(), str::to_owned))))
        }
        "duration" => match &of {
            Val::Duration(span) => Ok(Val::Duration(*span)),
            _ => duration(of.as_str()?).map(Val::Duration).ok_or_else(|| "no duration".to_owned()),
        },
        "timestamp" => time(&of).map(Val::Time).ok_or_else(|| "no time".to_owned()),
        "getFullYear" | "getMonth" | "getDayOfMonth" | "getDate" | "getDayOfWeek" | "getHours" | "getMinutes"
        | "getSeconds" | "getMilliseconds" => part(name, &of).map(|part| Ok(Val::from(Value::from(part))))?,
        _ => return None,
    })
}

fn time(of: &Val<'_>) -> Option<Timestamp> {
    match of {
        Val::Time(time) => Some(*time),
        _ => of.as_str()?.parse().ok(),
    }
}

/// A part of a date in UTC, or of a duration.
fn part(name: &str, of: &Val<'_>) -> Option<i64> {
    if let Val::Duration(span) = of {
        return match name {
            "getHours" => Some(span.as_hours()),
            "getMinutes" => Some(span.as_mins()),
            "getSeconds" => Some(span.as_secs()),
            "getMilliseconds" => i64::try_from(span.as_millis()).ok(),
            _ => None,
        };
    }
    let date = time(of)?.to_zoned(TimeZone::UTC);
    Some(match name {
        "getFullYear" => date.year().into(),
        "getMonth" => i64::from(date.month()) - 1,
        "getDayOfMonth" => i64::from(date.day()) - 1,
        "getDate" => date.day().into(),
        "getDayOfWeek" => date.weekday().to_sunday_zero_offset().into(),
        "getHours" => date.hour().into(),
        "getMinutes" => date.minute().into(),
        "getSeconds" => date.second().into(),
        _ => date.millisecond().into(),
    })
}
