//! Conversions between types.

use super::Fixed;
use super::format_string::go_value;
use super::{Builtin, Context, Value, no_overload};
use crate::ast::Const;
use crate::go::{duration, float};
use crate::meter::{Allowance, Meter};
use crate::time::{self, Timestamp};
use crate::value::{Error, Outcome};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "type" => |_, args| match args {
            [value] => Ok(Value::Type(value.type_name().into())),
            _ => Err(Error::no_overload()),
        },
        "dyn" => |_, args| args.first().cloned().ok_or_else(Error::no_overload),
        "bool" => bool,
        "bytes" => bytes,
        "double" => double,
        "duration" => duration,
        "int" => int,
        "string" => string,
        "timestamp" => timestamp,
        "uint" => uint,
        _ => return None,
    })
}

/// The conversion of a constant, if its result can be one.
pub(crate) fn fixed(function: &str, value: &Fixed) -> Result<Option<Fixed>, String> {
    let constant = match value {
        Fixed::Const(constant) => Value::constant(constant),
        Fixed::Timestamp(time) => Value::Timestamp(*time),
        Fixed::Duration(nanos) => Value::Duration(*nanos),
        Fixed::Type(name) => Value::Type((&**name).into()),
        Fixed::List(_) | Fixed::Map(_) if function == "dyn" => return Ok(Some(value.clone())),
        Fixed::List(_) if function == "type" => return Ok(Some(Fixed::Type("list".into()))),
        Fixed::Map(_) if function == "type" => return Ok(Some(Fixed::Type("map".into()))),
        Fixed::List(_) | Fixed::Map(_) => return Ok(None),
    };
    let Some((name, builtin)) = find_static(function) else { return Ok(None) };
    let mut meter = Meter::new(Allowance::ONE);
    let mut context = Context { function: name, overload: "", meter: &mut meter, regex: None };
    let converted = builtin(&mut context, &[constant]).map_err(|error| error.to_string())?;
    Ok(Some(match converted {
        Value::Null => Fixed::Const(Const::Null),
        Value::Bool(value) => Fixed::Const(Const::Bool(value)),
        Value::Int(value) => Fixed::Const(Const::Int(value)),
        Value::Uint(value) => Fixed::Const(Const::Uint(value)),
        Value::Double(value) => Fixed::Const(Const::Double(value)),
        Value::String(text) => Fixed::Const(Const::String((*text).into())),
        Value::Bytes(bytes) => Fixed::Const(Const::Bytes((*bytes).into())),
        Value::Timestamp(time) => Fixed::Timestamp(time),
        Value::Duration(nanos) => Fixed::Duration(nanos),
        Value::Type(name) => Fixed::Type((*name).into()),
        _ => return Ok(None),
    }))
}

fn find_static(function: &str) -> Option<(&'static str, Builtin)> {
    let name = crate::functions::find(function)?.name;
    Some((name, find(name)?))
}

fn conversion(from: &Value<'_>, to: &str) -> Error {
    Error::new(format!("type conversion error from '{}' to '{to}'", from.type_name()))
}

fn bool<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [from @ Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(conversion(from, "bool")),
        },
        _ => Err(no_overload(context, args)),
    }
}

fn bytes<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bytes(value)] => Ok(Value::Bytes(value.clone())),
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(no_overload(context, args)),
    }
}

fn double<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(*value)),
        [Value::Int(value)] => Ok(Value::Double(*value as f64)),
        [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
        [from @ Value::String(text)] => match text.parse::<f64>() {
            Ok(value) if value.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) => Ok(Value::Double(value)),
            _ => Err(conversion(from, "double")),
        },
        _ => Err(no_overload(context, args)),
    }
}

fn duration<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Duration(value)] => Ok(Value::Duration(*value)),
        [from @ Value::String(text)] => match duration::parse(text) {
            Some(nanos) => Ok(Value::Duration(nanos)),
            None => Err(conversion(from, "google.protobuf.Duration")),
        },
        _ => Err(no_overload(context, args)),
    }
}

fn int<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || Error::new("integer overflow");
    match args {
        [Value::Int(value) | Value::Duration(value)] => Ok(Value::Int(*value)),
        [Value::Uint(value)] => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        [Value::Double(value)] => {
            if value.is_finite() && *value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_808.0 {
                Ok(Value::Int(*value as i64))
            } else {
                Err(overflow())
            }
        }
        [Value::Timestamp(time)] => Ok(Value::Int(time.seconds)),
        [from @ Value::String(text)] => text.parse().map(Value::Int).map_err(|_| conversion(from, "int")),
        _ => Err(no_overload(context, args)),
    }
}

fn uint<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || Error::new("unsigned integer overflow");
    match args {
        [Value::Uint(value)] => Ok(Value::Uint(*value)),
        [Value::Int(value)] => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        [Value::Double(value)] => {
            if value.is_finite() && *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 {
                Ok(Value::Uint(*value as u64))
            } else {
                Err(overflow())
            }
        }
        [from @ Value::String(text)] => {
            let unsigned = text.bytes().all(|b| b.is_ascii_digit());
            match text.parse() {
                Ok(value) if unsigned => Ok(Value::Uint(value)),
                _ => Err(conversion(from, "uint")),
            }
        }
        _ => Err(no_overload(context, args)),
    }
}

fn timestamp<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || Error::new("timestamp overflow");
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::Int(seconds)] => Timestamp::new(*seconds, 0).map(Value::Timestamp).ok_or_else(overflow),
        [from @ Value::String(text)] => match time::parse_rfc3339(text) {
            Some(time) if time::in_range(time) => Ok(Value::Timestamp(time)),
            Some(_) => Err(overflow()),
            None => Err(conversion(from, "google.protobuf.Timestamp")),
        },
        _ => Err(no_overload(context, args)),
    }
}

fn string<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::String(text)] => Ok(Value::String(text.clone())),
        [value] => match to_text(value)? {
            Some(text) => super::text(context, text),
            None => Err(no_overload(context, args)),
        },
        _ => Err(no_overload(context, args)),
    }
}

/// What `string()` makes of a value, if anything.
pub(super) fn to_text(value: &Value<'_>) -> Result<Option<String>, Error> {
    Ok(Some(match value {
        Value::String(text) => (**text).to_owned(),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) => go_value(value),
        Value::Double(double) => float::verbose(*double),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(Error::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => format!("{}s", seconds(*nanos)),
        Value::Timestamp(time) => time.display(),
        Value::Type(name) => (**name).to_owned(),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return Ok(None),
    }))
}

/// Nanoseconds as seconds, with as few decimals as tell it apart.
fn seconds(nanos: i64) -> String {
    let whole = nanos / 1_000_000_000;
    let fraction = nanos % 1_000_000_000;
    let value = whole as f64 + fraction as f64 / 1e9;
    format!("{value}")
}
