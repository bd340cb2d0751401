//! Strings: the standard functions and cel-go's strings extension, version 2.

use super::{Builtin, Context, MAX_TEXT, Value, no_overload, part, strings, text};
use crate::value::{Error, List, Outcome, Text};

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "contains" => |context, args| test(context, args, |text, other| text.contains(other)),
        "startsWith" => |context, args| test(context, args, |text, other| text.starts_with(other)),
        "endsWith" => |context, args| test(context, args, |text, other| text.ends_with(other)),
        "charAt" => char_at,
        "lowerAscii" => |context, args| map(context, args, str::to_ascii_lowercase),
        "upperAscii" => |context, args| map(context, args, str::to_ascii_uppercase),
        "trim" => |context, args| match args {
            [Value::String(text)] => {
                let start = text.len() - text.trim_start().len();
                let end = text.trim_end().len().max(start);
                Ok(part(text, start, end))
            }
            _ => Err(no_overload(context, args)),
        },
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "jsonpatch.escapeKey" => |context, args| map(context, args, |key| key.replace('~', "~0").replace('/', "~1")),
        "strings.quote" => |context, args| map(context, args, quote),
        "join" => join,
        "format" => |context, args| match args {
            [Value::String(format), Value::List(values)] => super::format_string::format(context, format, values),
            _ => Err(no_overload(context, args)),
        },
        _ => return None,
    })
}

fn test<'a>(context: &Context<'_>, args: &[Value<'a>], is_it: fn(&str, &str) -> bool) -> Outcome<'a> {
    let _ = context;
    match args {
        [Value::String(text), Value::String(other)] => Ok(Value::Bool(is_it(text, other))),
        _ => Err(Error::no_overload()),
    }
}

fn map<'a>(context: &mut Context<'_>, args: &[Value<'a>], change: fn(&str) -> String) -> Outcome<'a> {
    match args {
        [Value::String(value)] => {
            let changed = change(value);
            text(context, changed)
        }
        _ => Err(no_overload(context, args)),
    }
}

/// Where the character with this index starts; the end is one past the last.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

fn char_at<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::Int(index)] = args else { return Err(no_overload(context, args)) };
    context.meter.work(text.len() / 16)?;
    let start = byte_of(text, *index).ok_or_else(|| out_of_range(*index))?;
    let end = text[start..].chars().next().map_or(start, |c| start + c.len_utf8());
    Ok(part(text, start, end))
}

fn substring<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_overload(context, args)),
    };
    context.meter.work(text.len() / 16)?;
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(Error::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_of(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_of(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(part(text, from, to))
}

fn replace<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (value, from, to, limit) = match args {
        [Value::String(value), Value::String(from), Value::String(to)] => (value, from, to, -1),
        [Value::String(value), Value::String(from), Value::String(to), Value::Int(limit)] => (value, from, to, *limit),
        _ => return Err(no_overload(context, args)),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = value.matches(&**from).count().min(limit);
    if value.len().saturating_add(count.saturating_mul(to.len())) > MAX_TEXT {
        return Err(Error::Exhausted);
    }
    context.meter.work(value.len() / 8)?;
    let replaced = value.replacen(&**from, to, limit);
    text(context, replaced)
}

fn split<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(no_overload(context, args)),
    };
    context.meter.work(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let parts = if separator.is_empty() {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        if parts.len() > limit {
            let rest: String = parts.drain(limit - 1..).collect();
            parts.push(rest);
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(str::to_owned).collect()
    };
    strings(context, parts)
}

fn join<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (list, separator): (&List<'a>, &str) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator),
        _ => return Err(no_overload(context, args)),
    };
    context.meter.work(list.len())?;
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        match item? {
            Value::String(item) => joined.push_str(&item),
            other => {
                let shown = super::format_string::go_value(&other);
                return Err(Error::new(format!("join: invalid input: {shown}")));
            }
        }
        if joined.len() > MAX_TEXT {
            return Err(Error::Exhausted);
        }
    }
    text(context, joined)
}

/// What `strings.quote` makes of a text: unlike Go's `%q`, it leaves other control characters as they are.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `indexOf` of a string.
pub(super) fn index_of<'a>(text: &Text<'a>, other: &Text<'a>, from: i64) -> Outcome<'a> {
    if from < 0 {
        return Err(out_of_range(from));
    }
    if other.is_empty() {
        return Ok(Value::Int(from.min(text.chars().count() as i64)));
    }
    let Some(start) = byte_of(text, from) else { return Ok(Value::Int(-1)) };
    Ok(Value::Int(match text[start..].find(&**other) {
        Some(at) => text[..start + at].chars().count() as i64,
        None => -1,
    }))
}

/// `lastIndexOf` of a string.
pub(super) fn last_index_of<'a>(text: &Text<'a>, other: &Text<'a>, from: Option<i64>) -> Outcome<'a> {
    let length = text.chars().count() as i64;
    if let Some(from) = from.filter(|from| *from < 0) {
        return Err(out_of_range(from));
    }
    if other.is_empty() {
        return Ok(Value::Int(from.map_or(length, |from| from.min(length))));
    }
    if from.is_some_and(|from| from >= length) {
        return Ok(Value::Int(-1));
    }
    // The match starts at or before `from`.
    let end = match from.and_then(|from| byte_of(text, from)) {
        Some(start) => (start + other.len()).min(text.len()),
        None => text.len(),
    };
    let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Ok(Value::Int(match text[..end].rfind(&**other) {
        Some(at) => text[..at].chars().count() as i64,
        None => -1,
    }))
}
