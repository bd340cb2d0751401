//! `format`, and how values are written.

use std::fmt::Write as _;

use super::convert::to_text;
use super::{Context, MAX_TEXT, Value, text};
use crate::go::{float, quote};
use crate::value::{Error, List, Map, Outcome};

/// Decimals of a number if the clause does not say.
const PRECISION: usize = 6;
const MAX_PRECISION: usize = 1000;

/// One clause of a format: its letter and precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    pub(crate) letter: char,
    pub(crate) precision: Option<usize>,
}

/// A piece of a format string.
pub(crate) enum Piece<'s> {
    Text(&'s str),
    Clause(Clause),
}

/// Splits a format string. `count` is how many arguments there are.
pub(crate) fn pieces(format: &str, count: usize) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut used = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if rest.starts_with('%') {
            pieces.push(Piece::Text("%"));
            rest = &rest[1..];
            continue;
        }
        if used >= count {
            return Err(format!("index {used} out of range"));
        }
        if rest.is_empty() {
            return Err("unexpected end of string".to_owned());
        }
        let (clause, after) =
            clause(rest).map_err(|problem| format!("could not parse formatting clause: {problem}"))?;
        pieces.push(Piece::Clause(clause));
        rest = after;
        used += 1;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

fn clause(text: &str) -> Result<(Clause, &str), String> {
    let mut rest = text;
    let mut precision = None;
    if let Some(after) = text.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == after.len() {
            return Err("error while parsing precision: could not find end of precision specifier".to_owned());
        }
        let value = after[..digits].parse::<usize>().map_err(|_| {
            let number = quote(&after[..digits]);
            format!(
                "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {number}: invalid syntax"
            )
        })?;
        precision = Some(value.min(MAX_PRECISION));
        rest = &after[digits..];
    }
    let Some(letter) = rest.chars().next() else { return Err("unexpected end of string".to_owned()) };
    if !"sdfebxXo".contains(letter) {
        return Err(format!("unrecognized formatting clause \"{letter}\""));
    }
    Ok((Clause { letter, precision }, &rest[letter.len_utf8()..]))
}

/// Fills values into a format.
pub(super) fn format<'a>(context: &mut Context<'_>, format: &str, values: &List<'a>) -> Outcome<'a> {
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces(format, values.len()).map_err(Error::new)? {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause(clause) => {
                let value = values.get(next)?;
                next += 1;
                let written = write(&value, clause)
                    .map_err(|problem| Error::new(format!("error during formatting: {problem}")))?;
                out.push_str(&written);
            }
        }
        if out.len() > MAX_TEXT {
            return Err(Error::Exhausted);
        }
    }
    context.meter.work(out.len())?;
    text(context, out)
}

/// Why a clause does not take a type.
pub(crate) fn refusal(letter: char, given: &str) -> String {
    let takes = match letter {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        'o' => "octal clause can only be used on integers",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
    };
    format!("{takes}, was given {given}")
}

fn write(value: &Value<'_>, clause: Clause) -> Result<String, String> {
    let refuse = || Err(refusal(clause.letter, value.type_name()));
    Ok(match (clause.letter, value) {
        ('s', value) => return shown(value, true),
        ('d', Value::Int(_) | Value::Uint(_)) => go_value(value),
        ('f', value) => match double(value) {
            Some(value) => fixed(value, clause.precision.unwrap_or(PRECISION)),
            None => return refuse(),
        },
        ('e', value) => match double(value) {
            Some(value) => scientific(value),
            None => return refuse(),
        },
        ('b', Value::Int(value)) => signed(*value, |value| format!("{value:b}")),
        ('b', Value::Uint(value)) => format!("{value:b}"),
        ('b', Value::Bool(value)) => if *value { "1" } else { "0" }.to_owned(),
        ('o', Value::Int(value)) => signed(*value, |value| format!("{value:o}")),
        ('o', Value::Uint(value)) => format!("{value:o}"),
        ('x', Value::Int(value)) => signed(*value, |value| format!("{value:x}")),
        ('X', Value::Int(value)) => signed(*value, |value| format!("{value:X}")),
        ('x', Value::Uint(value)) => format!("{value:x}"),
        ('X', Value::Uint(value)) => format!("{value:X}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), clause.letter == 'X'),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, clause.letter == 'X'),
        _ => return refuse(),
    })
}

fn signed(value: i64, write: fn(u64) -> String) -> String {
    let digits = write(value.unsigned_abs());
    if value < 0 { format!("-{digits}") } else { digits }
}

fn hex(bytes: &[u8], upper: bool) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = if upper { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
        out
    })
}

fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(value: f64) -> Option<String> {
    if value.is_nan() {
        return Some("NaN".to_owned());
    }
    value.is_infinite().then(|| if value > 0.0 { "∞" } else { "-∞" }.to_owned())
}

/// A number with decimals, grouped as English writes it.
fn fixed(value: f64, precision: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    let text = format!("{:.precision$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let mut out = String::new();
    if value.is_sign_negative() {
        out.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A number as a power of ten, as English writes it.
fn scientific(value: f64) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    let text = format!("{value:.PRECISION$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut out = format!("{mantissa}×10");
    if exponent < 0 {
        out.push('⁻');
    }
    for digit in format!("{:02}", exponent.abs()).chars() {
        out.push(match digit {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            digit => char::from_u32(0x2070 + (digit as u32 - '0' as u32)).unwrap_or(digit),
        });
    }
    out
}

/// A value as `%s` writes it; `top` is false inside lists and maps.
fn shown(value: &Value<'_>, top: bool) -> Result<String, String> {
    Ok(match value {
        Value::List(list) => {
            let items = list.iter().map(|item| shown(&item.map_err(|error| error.to_string())?, false));
            format!("[{}]", items.collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        Value::Map(map) => shown_map(map)?,
        Value::Null => "null".to_owned(),
        Value::Double(value) if !top => {
            let text = if value.is_finite() { format!("{value:.PRECISION$}") } else { float::verbose(*value) };
            if value.is_finite() { text } else { quote(&text) }
        }
        Value::String(text) if !top => quote(text),
        Value::Bytes(bytes) if !top => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Timestamp(time) if !top => format!("timestamp({})", quote(&time.display())),
        Value::Duration(_) if !top => {
            let text = to_text(value).map_err(|error| error.to_string())?.unwrap_or_default();
            format!("duration({})", quote(&text))
        }
        Value::Ip(_) | Value::Cidr(_) => return Err(no_formatting(value, top)),
        other => match to_text(other).map_err(|error| error.to_string())? {
            Some(text) => text,
            None => return Err(no_formatting(other, top)),
        },
    })
}

fn no_formatting(value: &Value<'_>, top: bool) -> String {
    if top { refusal('s', value.type_name()) } else { format!("no formatting function for {}", value.type_name()) }
}

fn shown_map(map: &Map<'_>) -> Result<String, String> {
    let mut entries = Vec::new();
    for key in map.keys() {
        let value = map.find(&key).map_err(|error| error.to_string())?;
        let Some(value) = value else { return Err(format!("could not find key: {}", quote(&go_value(&key)))) };
        entries.push((shown(&key, false)?, shown(&value, false)?));
    }
    entries.sort();
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", entries.join(", ")))
}

/// A value as Go's `%v` prints it.
pub(crate) fn go_value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => float::verbose(*value),
        Value::String(text) => (**text).to_owned(),
        other => match to_text(other) {
            Ok(Some(text)) => text,
            _ => other.type_name().to_owned(),
        },
    }
}
