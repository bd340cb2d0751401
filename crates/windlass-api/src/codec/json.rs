//! JSON text to [`Value`], with the error texts of Go's decoder.
//!
//! Clients read these messages, and upstream's are the ones they know, so a syntax error names the
//! offending character and what the decoder was looking for just as Go's scanner does. One pass builds
//! the value, notes duplicate keys and bounds the nesting.
//!
//! Two rules differ from `serde_json`: integers beyond `i64` become floats, and bytes that are not UTF-8
//! inside strings become U+FFFD instead of failing. Both are what Go does.

use std::borrow::Cow;

use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::depth;
use crate::field::{Path, quote};

/// Whether an object nests no deeper than is allowed.
pub fn is_shallow(object: &Value) -> bool {
    let limit = depth::limit();
    let Value::Object(map) = object else { return nests_within(object, limit, &mut 0) };
    map.iter().all(|(key, value)| match value {
        Value::Object(metadata) if key == "metadata" => metadata.iter().all(|(key, value)| {
            let managed = if key == "managedFields" { depth::MANAGED } else { 0 };
            nests_within(value, limit - 2 + managed, &mut 0)
        }),
        value => nests_within(value, limit - 1, &mut 0),
    })
}

/// Whether `value` nests at most `levels` deep. Counts the values it looks at.
pub(crate) fn nests_within(value: &Value, levels: usize, visited: &mut usize) -> bool {
    *visited += 1;
    let mut fits = |below: &Value| levels > 0 && nests_within(below, levels - 1, visited);
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(&mut fits),
        Value::Object(map) => levels > 0 && map.values().all(&mut fits),
        _ => true,
    }
}

/// The most strict errors reported for one document, as upstream caps them.
pub(crate) const MAX_STRICT_ERRORS: usize = 100;

/// Why a text is not a JSON value, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// What Go would print.
    pub message: String,
    /// The byte it is about.
    pub offset: usize,
}

/// A key that is there twice in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Where the second key starts.
    pub offset: usize,
    /// The field, as upstream prints it: `spec.containers[0].name`.
    pub path: String,
}

/// A parsed text.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of duplicate keys the last one counts.
    pub value: Value,
    /// Duplicate keys in document order, each path once.
    pub duplicates: Vec<Duplicate>,
}

/// Parses a complete text: one value and white space around it.
pub fn parse(bytes: &[u8]) -> Result<Parsed, SyntaxError> {
    parse_at(bytes, 0, depth::limit())
}

/// Parses a text that becomes part of a value `depth` levels down; it may be the fields of a manager.
pub(super) fn parse_below(bytes: &[u8], depth: usize) -> Result<Parsed, SyntaxError> {
    parse_at(bytes, depth, depth::limit() + depth::MANAGED)
}

fn parse_at(bytes: &[u8], depth: usize, limit: usize) -> Result<Parsed, SyntaxError> {
    let text = std::str::from_utf8(bytes).ok();
    let mut parser = Parser { bytes, text, at: 0, duplicates: Vec::new(), limit };
    parser.skip_space();
    let value = parser.value(&Path::root(), depth)?;
    parser.skip_space();
    if parser.at < bytes.len() {
        return Err(parser.unexpected("after top-level value"));
    }
    let mut duplicates = parser.duplicates;
    if duplicates.len() > 1 {
        duplicates.sort_by_key(|d| d.offset);
        let mut seen = std::collections::HashSet::new();
        duplicates.retain(|d| seen.insert(d.path.clone()));
    }
    duplicates.truncate(MAX_STRICT_ERRORS);
    Ok(Parsed { value, duplicates })
}

struct Parser<'a> {
    bytes: &'a [u8],
    /// The same bytes as text, if all of them are UTF-8.
    text: Option<&'a str>,
    at: usize,
    duplicates: Vec<Duplicate>,
    /// How deep values may nest here.
    limit: usize,
}

type Result<T, E = SyntaxError> = std::result::Result<T, E>;

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The error about the byte at the current place, or about the end of the text.
    fn unexpected(&self, context: &str) -> SyntaxError {
        let message = match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {context}", quote_char(byte)),
        };
        SyntaxError { message, offset: self.at }
    }

    fn value(&mut self, path: &Path<'_>, depth: usize) -> Result<Value> {
        match self.peek() {
            Some(b'{') => self.object(path, depth + 1),
            Some(b'[') => self.array(path, depth + 1),
            Some(b'"') => Ok(Value::String(self.string()?.into_owned())),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn object(&mut self, path: &Path<'_>, depth: usize) -> Result<Value> {
        if depth > self.limit {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.at += 1;
        let mut map = Map::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_space();
            let offset = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            let managed = if depth == 2 && key == "managedFields" { depth::MANAGED } else { 0 };
            self.limit += managed;
            let value = self.value(&path.child(&key), depth)?;
            self.limit -= managed;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    self.duplicates.push(Duplicate { offset, path: path.child(entry.key()).to_string() });
                    entry.insert(value);
                }
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn array(&mut self, path: &Path<'_>, depth: usize) -> Result<Value> {
        if depth > self.limit {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_space();
            let item = self.value(&path.index(items.len()), depth)?;
            items.push(item);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value> {
        for &expected in word.as_bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(&format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let mut whole = true;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            whole = false;
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            whole = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if whole && let Ok(integer) = text.parse::<i64>() {
            return Ok(integer.into());
        }
        let number = text.parse::<f64>().ok().and_then(Number::from_f64);
        number.map(Value::Number).ok_or_else(|| {
            let message = format!("json: cannot unmarshal number {text} into Go value of type float64");
            SyntaxError { message, offset: start }
        })
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        self.digits();
        Ok(())
    }

    /// Reads a string from its opening quote on. Borrows unless there are escapes or bad bytes.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let content = self.slice(start, self.at);
                    self.at += 1;
                    return Ok(content);
                }
                Some(b'\\') => return self.escaped_string(start),
                None | Some(..0x20) => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escaped_string(&mut self, start: usize) -> Result<Cow<'a, str>> {
        let mut out = self.slice(start, self.at).into_owned();
        loop {
            let run = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | ..0x20)) {
                self.at += 1;
            }
            out.push_str(&self.slice(run, self.at));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// Reads what follows a backslash. Lone surrogates become U+FFFD.
    fn escape(&mut self) -> Result<char> {
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.hex4()?;
        if !(0xD800..0xDC00).contains(&first) || !self.bytes[self.at..].starts_with(b"\\u") {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let before = self.at;
        self.at += 2;
        let second = self.hex4()?;
        if (0xDC00..0xE000).contains(&second) {
            let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        // The second escape stands for itself.
        self.at = before;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn slice(&self, start: usize, end: usize) -> Cow<'a, str> {
        match self.text {
            Some(text) => Cow::Borrowed(&text[start..end]),
            None => lossy(&self.bytes[start..end]),
        }
    }
}

/// Text with one U+FFFD for each byte that is no part of a character, as Go's decoder has it.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// A byte as Go quotes it in syntax errors.
fn quote_char(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        // Not printable in Latin-1, which is how Go reads the byte.
        0x80..=0xA0 | 0xAD => format!("'\\u{byte:04x}'"),
        _ => {
            let quoted = quote(char::from(byte).encode_utf8(&mut [0; 4]));
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

/// What Go calls a JSON value in type errors.
pub fn go_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
pub(super) mod tests;
