//! Looks single fields up in JSON bytes without parsing the rest.
//!
//! Lists with a label selector, metadata-only answers and the garbage collector look at a field or two of
//! thousands of stored objects. A [`Raw`] is a slice of valid JSON that knows where it lies; descending
//! into it skips over siblings and allocates nothing. Objects written by
//! [`write_object`](super::write::write_object) have their metadata in front, so such looks end early.
//!
//! The input must be valid JSON; anything else gives `None` or wrong fields, but never a panic. Of
//! duplicate keys the first one counts; stored objects have none.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// A JSON value somewhere inside a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    document: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> Raw<'a> {
    /// The whole document.
    pub fn new(document: &'a [u8]) -> Self {
        let start = skip_space(document, 0);
        let end = document.len() - document.iter().rev().take_while(|b| is_space(**b)).count();
        Self { document, start, end: end.max(start) }
    }

    /// The bytes of the value.
    pub fn bytes(&self) -> &'a [u8] {
        &self.document[self.start..self.end]
    }

    /// Where the value lies in the document.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.bytes() == b"null"
    }

    /// The text of a string; `None` for other values.
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        let content = self.bytes().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        text_of(content)
    }

    /// The value, parsed.
    pub fn to_value(&self) -> Option<Value> {
        super::json::parse(self.bytes()).ok().map(|parsed| parsed.value)
    }

    /// The field `name` of an object.
    pub fn field(&self, name: &str) -> Option<Raw<'a>> {
        let start = self.find(name)?;
        let end = value_end(&self.document[..self.end], start)?;
        Some(Raw { document: self.document, start, end })
    }

    /// The value below several fields, e.g. `["spec", "nodeName"]`.
    pub fn path(&self, names: &[&str]) -> Option<Raw<'a>> {
        let (last, parents) = names.split_last()?;
        // The ends of values on the way do not matter: walking over members stops at their bracket.
        let parent = parents.iter().try_fold(*self, |raw, name| Some(Raw { start: raw.find(name)?, ..raw }))?;
        parent.field(last)
    }

    /// The fields of an object; nothing for other values.
    pub fn entries(&self) -> impl Iterator<Item = (Cow<'a, str>, Raw<'a>)> + use<'a> {
        let mut members = self.members(b'{');
        std::iter::from_fn(move || {
            let key = members.key()?;
            Some((key, members.value()?))
        })
        .filter_map(|(key, value)| Some((text_of(key)?, value)))
    }

    /// The items of a list; nothing for other values.
    pub fn items(&self) -> impl Iterator<Item = Raw<'a>> + use<'a> {
        let mut members = self.members(b'[');
        std::iter::from_fn(move || members.value())
    }

    /// Where the value of the field `name` starts.
    fn find(&self, name: &str) -> Option<usize> {
        let mut members = self.members(b'{');
        loop {
            let key = members.key()?;
            members.advance()?;
            if key_is(key, name) {
                return Some(members.at);
            }
            members.at = value_end(&self.document[..self.end], members.at)?;
        }
    }

    fn members(&self, open: u8) -> Members<'a> {
        let inside = self.document[..self.end].get(self.start) == Some(&open);
        Members { document: self.document, at: if inside { self.start + 1 } else { self.end }, end: self.end }
    }
}

/// `metadata` of an object.
pub fn metadata(object: &[u8]) -> Option<Raw<'_>> {
    Raw::new(object).field("metadata")
}

/// `metadata.name`.
pub fn name(object: &[u8]) -> Option<Cow<'_, str>> {
    Raw::new(object).path(&["metadata", "name"])?.as_str()
}

/// `metadata.namespace`.
pub fn namespace(object: &[u8]) -> Option<Cow<'_, str>> {
    Raw::new(object).path(&["metadata", "namespace"])?.as_str()
}

/// `metadata.labels`, as pairs.
pub fn labels(object: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let entries = Raw::new(object).path(&["metadata", "labels"]).map(|labels| labels.entries());
    entries.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
}

/// The label `key`.
pub fn label<'a>(object: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    Raw::new(object).path(&["metadata", "labels", key])?.as_str()
}

/// `metadata.uid`.
pub fn uid(object: &[u8]) -> Option<Cow<'_, str>> {
    Raw::new(object).path(&["metadata", "uid"])?.as_str()
}

/// `metadata.deletionTimestamp`, which is there while the object is being deleted.
pub fn deletion_timestamp(object: &[u8]) -> Option<Cow<'_, str>> {
    Raw::new(object).path(&["metadata", "deletionTimestamp"])?.as_str()
}

/// Walks over what is between the brackets of an object or a list.
struct Members<'a> {
    document: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Members<'a> {
    /// Skips to the next member's first byte.
    fn advance(&mut self) -> Option<u8> {
        loop {
            match *self.document[..self.end].get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' | b',' | b':' => self.at += 1,
                b'}' | b']' => {
                    self.at = self.end;
                    return None;
                }
                other => return Some(other),
            }
        }
    }

    /// A key, between its quotes, escapes and all.
    fn key(&mut self) -> Option<&'a [u8]> {
        if self.advance()? != b'"' {
            self.at = self.end;
            return None;
        }
        let start = self.at;
        self.at = string_end(&self.document[..self.end], start)?;
        Some(&self.document[start + 1..self.at - 1])
    }

    fn value(&mut self) -> Option<Raw<'a>> {
        self.advance()?;
        let start = self.at;
        self.at = value_end(&self.document[..self.end], start)?;
        Some(Raw { document: self.document, start, end: self.at })
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\t' | b'\r')
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|b| is_space(*b)) {
        at += 1;
    }
    at
}

/// The end of the string whose opening quote is at `start`, past its closing quote.
pub(super) fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    // Most strings are short: a plain loop is over before a vectorised search has begun.
    const SHORT: usize = 24;
    let mut at = start + 1;
    for &byte in bytes.get(at..)?.iter().take(SHORT) {
        match byte {
            b'"' => return Some(at + 1),
            b'\\' => break,
            _ => at += 1,
        }
    }
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// The end of the value that starts at `start`.
fn value_end(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start)? {
        b'"' => string_end(bytes, start),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = start;
            loop {
                match *bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let rest = &bytes[start..];
            let length = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b':' | b'"') || is_space(*b));
            // At least one byte, so that walking over garbage ends.
            Some(start + length.unwrap_or(rest.len()).max(1))
        }
    }
}

/// The text between the quotes of a string.
fn text_of(content: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', content).is_none() {
        return Some(super::json::lossy(content));
    }
    let mut quoted = Vec::with_capacity(content.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(content);
    quoted.push(b'"');
    match super::json::parse(&quoted).ok()?.value {
        Value::String(text) => Some(Cow::Owned(text)),
        _ => None,
    }
}

fn key_is(key: &[u8], name: &str) -> bool {
    // A key with escapes is longer than what it stands for; anything else compares as it is.
    if key.len() > name.len() && memchr::memchr(b'\\', key).is_some() {
        return text_of(key).as_deref() == Some(name);
    }
    key == name.as_bytes() && memchr::memchr(b'\\', key).is_none()
}

#[cfg(test)]
mod tests;
