//! YAML to [`Value`] as `sigs.k8s.io/yaml` reads it, and back (see [`write`](fn@write)).
//!
//! That library speaks YAML 1.1: `y`, `yes` and `on` are booleans, `0777` is octal, `<<` merges. The syntax
//! is left to `granit-parser`; this module gives scalars their meaning, expands aliases within bounds and
//! notes duplicate keys. Only the first document of a stream is read.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Number, Value};

use crate::depth;
use crate::field::quote;

mod emit;

pub use emit::to_yaml as write;

/// A parsed document.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of duplicate keys the last one counts.
    pub value: Value,
    /// What a strict decoder says about duplicate keys; all of them in one text.
    pub duplicates: Option<String>,
}

/// The most nodes kept for aliases.
const MAX_ANCHORED: usize = 1_000_000;
/// The most bytes of text kept for aliases: ten times what a request may hold. Nodes alone say little, as one may be a
/// text of megabytes.
const MAX_ANCHORED_TEXT: usize = 32 << 20;
/// The most bytes of JSON that aliases may add, at the least that they come to: what a request may hold. A larger
/// document could not be sent as JSON, nor stored, so no memory is spent on it.
const MAX_ALIASED_BYTES: usize = 3 << 20;
/// The least that a node takes in JSON besides its text: a digit, brackets or quotes, and a comma.
const NODE_BYTES: usize = 2;

const EXCESSIVE: &str = "yaml: document contains excessive aliasing";

/// Reads the first document.
pub fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let limit = depth::limit();
    let options = granit_parser::options! {
        flow_nesting_limit: limit + depth::MANAGED,
        block_nesting_limit: limit + depth::MANAGED,
        emit_comments: false,
    };
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text.trim_start_matches('\u{feff}'), options),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        nodes: 0,
        aliased: 0,
        anchored: 0,
        anchored_text: 0,
        aliased_bytes: 0,
        limit,
    };
    let value = reader.document()?;
    let duplicates = (!reader.duplicates.is_empty())
        .then(|| format!("yaml: unmarshal errors:\n  {}", reader.duplicates.join("\n  ")));
    Ok(Parsed { value, duplicates })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    duplicates: Vec<String>,
    /// How many nodes were decoded, and how many of them through aliases.
    nodes: usize,
    aliased: usize,
    /// How many nodes are kept for aliases. An anchor within another is kept twice.
    anchored: usize,
    /// How many bytes of text are kept for aliases, and how many bytes of JSON they added at least.
    anchored_text: usize,
    aliased_bytes: usize,
    /// How deep values may nest here.
    limit: usize,
}

/// A value with what it costs to repeat it.
#[derive(Clone)]
struct Node {
    value: Value,
    /// Whether a plain `<<` stands here.
    merge: bool,
    nodes: usize,
    /// How many bytes its texts have, names of fields included.
    text: usize,
    depth: usize,
    line: usize,
}

impl Node {
    fn leaf(value: Value, line: usize) -> Self {
        let text = value.as_str().map_or(0, str::len);
        Self { value, merge: false, nodes: 1, text, depth: 0, line }
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) => {
                Err(format!("yaml: line {}: exceeded max depth of {}", error.marker().line(), self.limit))
            }
            Some(Err(error)) => Err(format!("yaml: line {}: {}", error.marker().line(), error.info())),
            None => Err("yaml: unexpected end of stream".to_owned()),
        }
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Value::Null),
                (event, span) => {
                    let node = self.node(event, &span, 0)?;
                    // Whatever follows the node within the document must still be well-formed.
                    self.next()?;
                    return Ok(node.value);
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, String> {
        if depth > self.limit {
            return Err(format!("yaml: line {}: exceeded max depth of {}", span.start.line(), self.limit));
        }
        self.nodes += 1;
        let line = span.start.line();
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (scalar(&text, style, tag.as_deref(), line)?, anchor),
            Event::SequenceStart(_, anchor, _) => (self.sequence(line, depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(line, depth)?, anchor),
            Event::Alias(id) => return self.alias(id, line, depth),
            other => return Err(format!("yaml: line {line}: unexpected {other:?}")),
        };
        if anchor != 0 {
            self.anchored += node.nodes;
            self.anchored_text += node.text;
            if self.anchored > MAX_ANCHORED || self.anchored_text > MAX_ANCHORED_TEXT {
                return Err(EXCESSIVE.to_owned());
            }
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, line: usize, depth: usize) -> Result<Node, String> {
        let Some(node) = self.anchors.get(&id) else {
            return Err(format!("yaml: line {line}: anchor value contains itself"));
        };
        if depth + node.depth > self.limit {
            return Err(format!("yaml: line {line}: exceeded max depth of {}", self.limit));
        }
        self.nodes += node.nodes;
        self.aliased += node.nodes;
        self.aliased_bytes += node.text + NODE_BYTES * node.nodes;
        let share = self.aliased as f64 / self.nodes as f64;
        let many = self.aliased > 100 && self.nodes > 1000 && share > alias_ratio(self.nodes);
        if many || self.aliased_bytes > MAX_ALIASED_BYTES {
            return Err(EXCESSIVE.to_owned());
        }
        Ok(Node { line, merge: false, ..node.clone() })
    }

    fn sequence(&mut self, line: usize, depth: usize) -> Result<Node, String> {
        let mut out = Node { depth: 1, ..Node::leaf(Value::Null, line) };
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                out.value = Value::Array(items);
                return Ok(out);
            }
            let item = self.node(event, &span, depth + 1)?;
            out.nodes += item.nodes;
            out.text += item.text;
            out.depth = out.depth.max(item.depth + 1);
            items.push(item.value);
        }
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<Node, String> {
        let mut out = Node { depth: 1, ..Node::leaf(Value::Null, line) };
        let mut map = Map::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                out.value = Value::Object(map);
                return Ok(out);
            }
            let key = self.node(event, &span, depth + 1)?;
            let (event, span) = self.next()?;
            let managed = if depth == 1 && key.value == "managedFields" { depth::MANAGED } else { 0 };
            self.limit += managed;
            let value = self.node(event, &span, depth + 1)?;
            self.limit -= managed;
            out.nodes += key.nodes + value.nodes;
            out.text += key.text + value.text;
            out.depth = out.depth.max(value.depth + 1);
            if key.merge {
                merge(value.value, &mut map)?;
                continue;
            }
            let text = key_text(&key.value)?;
            if map.contains_key(&*text) {
                let shown = if key.value.is_string() { quote(&text) } else { text.clone().into_owned() };
                self.duplicates.push(format!("line {}: key {shown} already set in map", value.line));
            }
            map.insert(text.into_owned(), value.value);
        }
    }
}

/// The share of nodes that may come from aliases, as go-yaml bounds it: nearly all in small documents,
/// a tenth in very large ones.
fn alias_ratio(nodes: usize) -> f64 {
    const LOW: f64 = 400_000.0;
    const HIGH: f64 = 4_000_000.0;
    0.99 - 0.89 * ((nodes as f64 - LOW) / (HIGH - LOW)).clamp(0.0, 1.0)
}

fn merge(value: Value, map: &mut Map<String, Value>) -> Result<(), String> {
    const WRONG: &str = "yaml: map merge requires map or sequence of maps as the value";
    match value {
        Value::Object(merged) => map.extend(merged),
        Value::Array(items) => {
            // Earlier maps win, so they go last.
            for item in items.into_iter().rev() {
                let Value::Object(merged) = item else { return Err(WRONG.to_owned()) };
                map.extend(merged);
            }
        }
        _ => return Err(WRONG.to_owned()),
    }
    Ok(())
}

/// A key as JSON needs it.
fn key_text(key: &Value) -> Result<Cow<'_, str>, String> {
    match key {
        Value::String(text) => Ok(Cow::Borrowed(text)),
        Value::Bool(true) => Ok(Cow::Borrowed("true")),
        Value::Bool(false) => Ok(Cow::Borrowed("false")),
        Value::Number(number) => Ok(Cow::Owned(match number.as_i64() {
            Some(integer) => integer.to_string(),
            None => windlass_cel::go::float::general(number.as_f64().unwrap_or_default()),
        })),
        Value::Null => Err("unsupported map key of type: %!s(<nil>), key: <nil>".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: invalid map key".to_owned()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, line: usize) -> Result<Node, String> {
    let core = tag.and_then(Tag::core_suffix);
    let binary = tag.is_some_and(|tag| tag.handle() == "tag:yaml.org,2002:" && tag.suffix() == "binary");
    let plain = style == ScalarStyle::Plain;
    let resolved = match core {
        // Quoted without a tag, or with one of the user's own: text.
        None if !plain || tag.is_some() => None,
        Some("str") => None,
        _ => resolve(text),
    };
    let is_merge = plain && text == "<<" && (tag.is_none() || core.is_none());
    let value = match (core, resolved) {
        (Some("float"), Some(Scalar::Integer(integer))) => Scalar::Float(integer as f64).into_value()?,
        (None | Some("str" | "map" | "seq"), None) if binary => {
            let bytes = super::base64::decode(text)
                .map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())?;
            Value::String(super::json::lossy(&bytes).into_owned())
        }
        (None | Some("str" | "map" | "seq"), None) => Value::String(text.to_owned()),
        (Some(wanted), found) if found.as_ref().map_or("str", Scalar::tag) != wanted => {
            let found = found.as_ref().map_or("str", Scalar::tag);
            return Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{wanted}"));
        }
        (_, Some(resolved)) => resolved.into_value()?,
        (_, None) => Value::String(text.to_owned()),
    };
    Ok(Node { merge: is_merge, ..Node::leaf(value, line) })
}

/// What a plain scalar means when it is not text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
}

impl Scalar {
    fn tag(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Integer(_) => "int",
            Self::Float(_) => "float",
        }
    }

    fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Integer(integer) => integer.into(),
            Self::Float(float) => match Number::from_f64(float) {
                // JSON in between makes whole numbers integers again.
                Some(_) if float.fract() == 0.0 && float.abs() < 9e15 => (float as i64).into(),
                Some(number) => Value::Number(number),
                None if float.is_nan() => return Err("json: unsupported value: NaN".to_owned()),
                None if float > 0.0 => return Err("json: unsupported value: +Inf".to_owned()),
                None => return Err("json: unsupported value: -Inf".to_owned()),
            },
        })
    }
}

/// The meaning of a plain scalar in YAML 1.1; `None` if it is text.
fn resolve(text: &str) -> Option<Scalar> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Some(Scalar::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Some(Scalar::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return Some(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Scalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => float(text),
        b'+' | b'-' | b'0'..=b'9' => {
            let plain = text.replace('_', "");
            match integer(&plain) {
                Some(value) => Some(i64::try_from(value).map_or(Scalar::Float(value as f64), Scalar::Integer)),
                None => float(&plain),
            }
        }
        _ => None,
    }
}

/// An integer as Go's `strconv` reads it in base 0; up to the end of `u64`.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match lower.as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some(prefix) if prefix.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    (value >= i128::from(i64::MIN) && value <= i128::from(u64::MAX)).then_some(value)
}

/// A decimal float: digits with a point or an exponent somewhere.
fn float(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_holds = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_holds = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !mantissa_holds || !exponent_holds {
        return None;
    }
    text.parse::<f64>().ok().filter(|float| float.is_finite()).map(Scalar::Float)
}

#[cfg(test)]
mod tests;
