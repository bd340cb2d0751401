//! URLs, as Go's `net/url` takes them apart.

use std::fmt::Write as _;

use crate::format::{Format, supported};
use crate::go::quote;
use crate::shape::JsonType;

/// A URL.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    path: String,
    pub(crate) query: String,
}

/// Why a text is no URL, in Go's words.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if matches!(supported(JsonType::String, "uri"), Some(Format::Text(accepts)) if accepts(text)) {
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

/// A URL, or why a text is none.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
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
    pub(crate) fn hostname(&self) -> &str {
        match self.host.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
            Some((name, _)) => name,
            None => self.host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(&self.host, |(name, _)| name),
        }
    }

    pub(crate) fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(&*self.host, |(_, after)| after);
        after.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or("", |(_, port)| port)
    }

    /// The path as it was written, if it is properly escaped, else escaped.
    pub(crate) fn escaped_path(&self) -> String {
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
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|b| b.is_ascii_digit())
}

/// Percent escapes replaced; in a query, `+` is a space.
pub(crate) fn unescape(text: &str, query: bool) -> String {
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
