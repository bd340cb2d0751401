//! [`Value`] to YAML, laid out as go-yaml lays it out for `Accept: application/yaml`.
//!
//! Keys are sorted the natural way (`a2` before `a10`), lists sit at their key's indentation, strings are
//! quoted only when they would read as something else, and long ones wrap after column 80.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::resolve;

const INDENT: usize = 2;
const WIDTH: usize = 80;
/// What is indented further is written as JSON, which is YAML as well: each line of thousands of levels would begin
/// with thousands of blanks.
const MAX_INDENT: usize = 512;

/// Writes a document, with its final line break.
pub fn to_yaml(value: &Value) -> String {
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(map) if !map.is_empty() => writer.mapping(map, 0, true),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0, true),
        leaf => writer.leaf(leaf, INDENT, false),
    }
    if !writer.out.ends_with('\n') {
        writer.out.push('\n');
    }
    writer.out
}

struct Writer {
    out: String,
    column: usize,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn line(&mut self, indent: usize) {
        if !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    /// Writes the entries of a map; the first continues the current line if `inline`.
    fn mapping(&mut self, map: &Map<String, Value>, indent: usize, inline: bool) {
        let mut keys: Vec<&str> = map.keys().map(String::as_str).collect();
        natural_sort(&mut keys);
        for (i, key) in keys.into_iter().enumerate() {
            if i > 0 || !inline {
                self.line(indent);
            }
            if key.len() <= 128 && !key.contains(is_break) {
                self.string(key, indent + INDENT, true);
                self.put(":");
            } else {
                self.put("? ");
                self.string(key, indent + INDENT, false);
                self.line(indent);
                self.put(":");
            }
            match &map[key] {
                Value::Object(map) if !map.is_empty() && indent < MAX_INDENT => {
                    self.mapping(map, indent + INDENT, false);
                }
                Value::Array(items) if !items.is_empty() && indent < MAX_INDENT => self.sequence(items, indent, false),
                leaf => {
                    self.put(" ");
                    self.leaf(leaf, indent + INDENT, false);
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 || !inline {
                self.line(indent);
            }
            self.put("- ");
            match item {
                Value::Object(map) if !map.is_empty() && indent < MAX_INDENT => {
                    self.mapping(map, indent + INDENT, true);
                }
                Value::Array(items) if !items.is_empty() && indent < MAX_INDENT => {
                    self.sequence(items, indent + INDENT, true);
                }
                leaf => self.leaf(leaf, indent + INDENT, false),
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize, key: bool) {
        match value {
            Value::Null => self.put("null"),
            Value::Bool(value) => self.put(if *value { "true" } else { "false" }),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (None, None) => self.put(&windlass_cel::go::float::general(number.as_f64().unwrap_or_default())),
                _ => self.put(&number.to_string()),
            },
            Value::String(text) => self.string(text, indent, key),
            Value::Array(_) | Value::Object(_) => self.put(&value.to_string()),
        }
    }

    /// Writes a string. Its continuation lines start at `indent`; a simple key has none.
    fn string(&mut self, text: &str, indent: usize, simple_key: bool) {
        let shape = Shape::of(text);
        if text.contains('\n') {
            if shape.block && !simple_key {
                self.literal(text, indent);
            } else {
                self.double_quoted(text, indent, !simple_key);
            }
        } else if !shape.reads_as_text {
            self.double_quoted(text, indent, !simple_key);
        } else if shape.plain {
            self.wrapped(text, indent, !simple_key, "");
        } else if shape.single_quoted {
            self.put("'");
            self.wrapped(text, indent, !simple_key, "'");
            self.put("'");
        } else {
            self.double_quoted(text, indent, !simple_key);
        }
    }

    /// Writes text that needs no escapes but doubled quotes, broken at spaces when lines get long.
    fn wrapped(&mut self, text: &str, indent: usize, breaks: bool, quote: &str) {
        let mut previous_space = false;
        let mut rest = text.chars().peekable();
        let mut first = true;
        while let Some(c) = rest.next() {
            if c == ' ' {
                let inner = quote.is_empty() || (!first && rest.peek().is_some());
                if breaks && !previous_space && self.column > WIDTH && inner && rest.peek() != Some(&' ') {
                    self.line_break(indent);
                } else {
                    self.put(" ");
                }
                previous_space = true;
            } else {
                if c == '\'' {
                    self.put(quote);
                }
                self.put(c.encode_utf8(&mut [0; 4]));
                previous_space = false;
            }
            first = false;
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, breaks: bool) {
        self.put("\"");
        let mut previous_space = false;
        let mut first = true;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c == ' ' {
                if breaks && !previous_space && self.column > WIDTH && !first && rest.peek().is_some() {
                    self.line_break(indent);
                    if rest.peek() == Some(&' ') {
                        self.put("\\");
                    }
                } else {
                    self.put(" ");
                }
                previous_space = true;
            } else {
                if is_printable(c) && !is_break(c) && c != '"' && c != '\\' {
                    self.put(c.encode_utf8(&mut [0; 4]));
                } else {
                    self.put(&escape(c));
                }
                previous_space = false;
            }
            first = false;
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with(' ') || text.starts_with(is_break) {
            self.put("2");
        }
        let trimmed = text.strip_suffix(is_break);
        match trimmed {
            None => self.put("-"),
            Some(rest) if rest.is_empty() || rest.ends_with(is_break) => self.put("+"),
            Some(_) => {}
        }
        let mut fresh = true;
        self.out.push('\n');
        for c in text.chars() {
            if c == '\n' {
                self.out.push('\n');
                fresh = true;
            } else {
                if fresh {
                    self.out.extend(std::iter::repeat_n(' ', indent));
                }
                self.out.push(c);
                fresh = false;
            }
        }
        self.column = 0;
    }

    fn line_break(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }
}

/// Which ways of writing a string would read back right.
struct Shape {
    /// Unquoted, it would not be taken for a number, a boolean or the like.
    reads_as_text: bool,
    plain: bool,
    single_quoted: bool,
    block: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self { reads_as_text: is_text(text), plain: true, single_quoted: true, block: true };
        if text.is_empty() {
            shape.block = false;
            return shape;
        }
        if text.starts_with("---") || text.starts_with("...") {
            shape.plain = false;
        }
        let (mut before, mut after_space, mut after_break) = (' ', false, false);
        let mut rest = text.chars().peekable();
        let mut first = true;
        while let Some(c) = rest.next() {
            let blank_follows = rest.peek().is_none_or(|c| matches!(c, ' ' | '\t'));
            let indicator = if first {
                "#,[]{}&*!|>'\"%@`".contains(c) || ("?:-".contains(c) && blank_follows)
            } else {
                (c == ':' && blank_follows) || (c == '#' && (matches!(before, ' ' | '\t' | '\0') || is_break(before)))
            };
            let broken = is_break(c);
            if indicator || broken {
                shape.plain = false;
            }
            if !is_printable(c) || (broken && after_space) {
                shape = Self { plain: false, single_quoted: false, block: false, ..shape };
            }
            if c == ' ' {
                if first || rest.peek().is_none() {
                    shape.plain = false;
                }
                if rest.peek().is_none() {
                    shape.block = false;
                }
                if after_break {
                    shape.plain = false;
                    shape.single_quoted = false;
                }
            }
            (before, after_space, after_break, first) = (c, c == ' ', broken, false);
        }
        shape
    }
}

/// Whether an unquoted string stays a string, also for readers that know base 60 and timestamps.
fn is_text(text: &str) -> bool {
    resolve(text).is_none() && text != "<<" && !is_base60(text) && !is_timestamp(text)
}

fn is_base60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let leading = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    leading.starts_with(|c: char| c.is_ascii_digit())
        && leading.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        && !rest.is_empty()
        && rest.iter().all(|part| match part.as_bytes() {
            [a] => a.is_ascii_digit(),
            [a, b] => (b'0'..=b'5').contains(a) && b.is_ascii_digit(),
            _ => false,
        })
        && fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Dates (`2006-1-2`), alone or with a time of day after `T`, `t` or a space.
fn is_timestamp(text: &str) -> bool {
    let (date, rest) = text.split_at(text.find(['T', 't', ' ']).unwrap_or(text.len()));
    let mut parts = date.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let two = |text: &str| -> Option<String> {
        ((1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then(|| format!("{text:0>2}"))
    };
    let (Some(month), Some(day)) = (two(month), two(day)) else { return false };
    let clock = match rest.split_at_checked(1) {
        None => "00:00:00Z".to_owned(),
        Some((separator, clock)) => {
            let zone = if separator == " " { "Z" } else { "" };
            let mut parts = clock.splitn(3, ':');
            let (Some(hour), Some(minute), Some(second)) = (parts.next(), parts.next(), parts.next()) else {
                return false;
            };
            let digits = second.bytes().take_while(u8::is_ascii_digit).count();
            let (second, rest) = second.split_at(digits);
            let (Some(hour), Some(minute), Some(second)) = (two(hour), two(minute), two(second)) else { return false };
            format!("{hour}:{minute}:{second}{rest}{zone}")
        }
    };
    crate::codec::time::parse(&format!("{year}-{month}-{day}T{clock}"), crate::codec::time::Precision::Seconds).is_ok()
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What go-yaml writes as it is; beyond the basic plane nothing is.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match c as u32 {
                code @ ..=0xFF => format!("\\x{code:02X}"),
                code @ ..=0xFFFF => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// Sorts keys as go-yaml does. Its order is not a proper one for all inputs, which the standard library's
/// sort may refuse with a panic, so this is a plain merge sort.
fn natural_sort(keys: &mut Vec<&str>) {
    if keys.len() < 2 {
        return;
    }
    let mut right = keys.split_off(keys.len() / 2);
    natural_sort(keys);
    natural_sort(&mut right);
    let mut merged = Vec::with_capacity(keys.len() + right.len());
    let (mut left, mut right) = (keys.drain(..).peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if natural_order(b, a) == Ordering::Less { right.next() } else { left.next() };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    *keys = merged;
}

/// Letters compare by code, other characters come before letters, runs of digits compare by value.
fn natural_order(left: &str, right: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(l, r)| l != r) else { return left.len().cmp(&right.len()) };
    let (x, y) = (left[at], right[at]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero inside a number is a digit of it, one in front is not.
    let digits_before = left[..at].iter().rev().take_while(|c| c.is_ascii_digit());
    let inside = (x == '0' || y == '0') && digits_before.into_iter().any(|c| *c != '0');
    let number = |text: &[char]| {
        let digits = text.iter().take_while(|c| c.is_ascii_digit());
        digits.fold((i64::from(inside), 0), |(value, length), c| {
            (value.wrapping_mul(10).wrapping_add(i64::from(*c as u32 - 48)), length + 1)
        })
    };
    let ((an, al), (bn, bl)) = (number(&left[at..]), number(&right[at..]));
    an.cmp(&bn).then(al.cmp(&bl)).then(x.cmp(&y))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Also where go-yaml's order contradicts itself, nothing is lost and nothing panics.
        #[test]
        fn sorting_keys_keeps_all_of_them(keys in proptest::collection::vec("[a-c0-2._-]{0,6}", 0..100)) {
            let mut sorted: Vec<&str> = keys.iter().map(String::as_str).collect();
            natural_sort(&mut sorted);
            let mut expected: Vec<&str> = keys.iter().map(String::as_str).collect();
            sorted.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }

        #[test]
        fn two_keys_are_in_the_same_order_either_way(a in "[a-c0-2._-]{0,6}", b in "[a-c0-2._-]{0,6}") {
            prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
            prop_assert_eq!(natural_order(&a, &b) == Ordering::Equal, a == b);
        }

        /// Without digits the order is a proper one, and keys come out in it.
        #[test]
        fn keys_without_digits_come_out_in_order(keys in proptest::collection::vec("[a-c._-]{0,4}", 0..50)) {
            let mut sorted: Vec<&str> = keys.iter().map(String::as_str).collect();
            natural_sort(&mut sorted);
            for (at, key) in sorted.iter().enumerate() {
                for later in &sorted[at..] {
                    prop_assert!(natural_order(key, later).is_le(), "{} and {}", key, later);
                }
            }
        }
    }
}
