//! URLs, as Go's `net/url` takes them apart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use super::{Builtin, Value, no_overload};
use crate::cel::eval::Context;
use crate::cel::value::{Error, Key, Map, Outcome, Text};
use crate::field::quote;
use crate::schema::Type;
use crate::schema::format::{Format, supported};

/// A URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

/// Why a text is no URL, in Go's words.
pub(super) fn check(text: &str) -> Result<(), String> {
    if matches!(supported(Type::String, "uri"), Some(Format::Text(accepts)) if accepts(text)) {
        return Ok(());
    }
    let why = if text.is_empty() {
        "empty url"
    } else if text.chars().any(|c| c.is_ascii_control()) {
        "net/url: invalid control character in URL"
    } else if text.starts_with(':') {
        "missing protocol scheme"
    } else {
        "invalid URI for request"
    };
    Err(format!("parse {}: {why}", quote(text)))
}

fn parse(text: &str) -> Result<Url, String> {
    check(text)?;
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) =>
        {
            (scheme.to_lowercase(), rest)
        }
        _ => (String::new(), text),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') {
        let path = if scheme.is_empty() { rest.to_owned() } else { String::new() };
        return Ok(Url { scheme, host: String::new(), path, query: query.to_owned() });
    }
    let (authority, path) = match rest.strip_prefix("//").filter(|_| !rest.starts_with("///") || !scheme.is_empty()) {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", rest),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Ok(Url { scheme, host: unescape(host, false), path: path.to_owned(), query: query.to_owned() })
}

impl Url {
    fn hostname(&self) -> &str {
        match self.host.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((name, _)) => name,
            None => self.host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(&self.host, |(name, _)| name),
        }
    }

    fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(&*self.host, |(_, after)| after);
        after.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or("", |(_, port)| port)
    }

    /// The path as it was written, if it is properly escaped, else escaped.
    fn escaped_path(&self) -> String {
        let proper = self.path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&b));
        if proper {
            return self.path.clone();
        }
        let mut out = String::new();
        for byte in unescape(&self.path, false).bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    }

    fn query<'a>(&self) -> Value<'a> {
        let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.entry(unescape(key, true)).or_default().push(Value::text(unescape(value, true)));
        }
        let map = values.into_iter().map(|(key, values)| (Key::String(Text::Shared(key.into())), Value::list(values)));
        Value::Map(Map::Made(Rc::new(map.collect())))
    }
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|b| b.is_ascii_digit())
}

/// Percent escapes replaced; in a query, `+` is a space.
fn unescape(text: &str, query: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let rest = bytes.as_slice_text();
                match rest.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(value) => {
                        out.push(value);
                        bytes.nth(1);
                    }
                    None => out.push(b'%'),
                }
            }
            b'+' if query => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What is left of an iterator over bytes, as text.
trait Rest {
    fn as_slice_text(&self) -> String;
}

impl Rest for std::str::Bytes<'_> {
    fn as_slice_text(&self) -> String {
        String::from_utf8_lossy(&self.clone().take(2).collect::<Vec<u8>>()).into_owned()
    }
}

pub(super) fn find(name: &str) -> Option<Builtin> {
    Some(match name {
        "url" => |context, args| match args {
            [Value::String(text)] => match parse(text) {
                Ok(url) => Ok(Value::Url(url.into())),
                Err(problem) => Err(Error::new(format!("URL parse error during conversion from string: {problem}"))),
            },
            _ => Err(no_overload(context, args)),
        },
        "isURL" => |context, args| match args {
            [Value::String(text)] => Ok(Value::Bool(check(text).is_ok())),
            _ => Err(no_overload(context, args)),
        },
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "getQuery" => part,
        _ => return None,
    })
}

fn part<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = args else { return Err(no_overload(context, args)) };
    Ok(match context.function {
        "getScheme" => Value::text(url.scheme.as_str()),
        "getHost" => Value::text(url.host.as_str()),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.escaped_path()),
        _ => url.query(),
    })
}
