//! Regular expressions as Go's `regexp` package (RE2) reads them.
//!
//! CRD authors write patterns for Go. The `regex` crate is the same family, but its `\d`, `\w`, `\s`
//! and `\b` know Unicode, its character classes nest, `{` must be a repetition, and there are flags, escapes and
//! properties that Go does not have. [`translate`] rewrites what differs and refuses what Go would. A pattern compiles
//! when it is first used: big CRDs have hundreds that no object ever meets.

use std::fmt::Write as _;
use std::str::Chars;
use std::sync::OnceLock;

use regex_syntax::ast::{self, Ast, RepetitionKind, RepetitionRange};
use regex_syntax::hir::Hir;

pub use self::machine::{Machine, Spend, TooLong};

mod automaton;
mod machine;
mod places;
mod program;

/// How often a part of a pattern may be repeated.
const MOST_REPETITIONS: u64 = 1000;

/// A pattern as its author wrote it, compiled on first use.
pub struct Pattern {
    source: Box<str>,
    compiled: OnceLock<Option<Machine>>,
}

impl Pattern {
    /// The pattern `source`, which need not be well-formed.
    pub fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// The pattern as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The compiled pattern; `None` if it is malformed.
    fn machine(&self) -> Option<&Machine> {
        self.compiled.get_or_init(|| compile(&self.source).ok()).as_ref()
    }

    /// Whether `text` contains a match. A malformed pattern matches nothing.
    pub fn matches(&self, text: &str, spend: Spend<'_>) -> Result<bool, TooLong> {
        self.machine().map_or(Ok(false), |machine| machine.is_match(text, spend))
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pattern").field(&self.source).finish()
    }
}

/// Compiles a Go pattern, of which [`check`] says nothing; the error is worded as Go words it where we can tell.
pub fn compile(source: &str) -> Result<Machine, String> {
    read(source).map(Machine::new)
}

/// Reads a Go pattern, unless it is malformed or Go has no room for it.
fn read(source: &str) -> Result<Hir, String> {
    let translated = sized(source)?;
    check_repetitions(&translated)?;
    let hir = parse(&translated).map_err(|error| explain(source, &error.to_string()))?;
    program::instructions(&hir).map(|_| hir).ok_or_else(|| too_large(source))
}

fn too_large(source: &str) -> String {
    format!("error parsing regexp: expression too large: `{source}`")
}

/// In how many places of a Go pattern a match can be, roughly.
pub fn states(source: &str) -> u64 {
    sized(source).ok().and_then(|translated| parse(&translated).ok()).map_or(1, |hir| machine::count_states(&hir))
}

/// How often a pattern may name a class of Unicode, each of which is a list of up to 700 ranges. Go limits what all
/// ranges of a pattern take together, and comes to about as many.
const UNICODE_CLASSES: usize = 24_000;

/// A translated pattern, unless it takes too much memory to be read.
fn sized(source: &str) -> Result<String, String> {
    // Before anything is looked up.
    let named = |class: &str| source.matches(class).count();
    if named(r"\p") + named(r"\P") > UNICODE_CLASSES {
        return Err(too_large(source));
    }
    translate(source)
}

/// Reads a translated pattern. Go knows words of ASCII alone, so places between words may be between any bytes.
fn parse(translated: &str) -> Result<Hir, Box<regex_syntax::Error>> {
    regex_syntax::ParserBuilder::new().utf8(false).build().parse(translated).map_err(Box::new)
}

/// Says what is wrong with a Go pattern, without the cost of compiling it.
pub fn check(source: &str) -> Result<(), String> {
    read(source).map(|_| ())
}

/// Go allows no part of a pattern to be repeated more than a thousand times, repetitions of repetitions
/// included. What cannot be parsed is for others to explain.
fn check_repetitions(translated: &str) -> Result<(), String> {
    if translated.matches('{').nth(1).is_none() {
        return Ok(());
    }
    let Ok(ast) = ast::parse::Parser::new().parse(translated) else { return Ok(()) };
    match ast::visit(&ast, TooOften::default()) {
        Ok(()) => Ok(()),
        Err(span) => {
            let operator = &translated[span.start.offset..span.end.offset];
            Err(format!("error parsing regexp: invalid repeat count: `{operator}`"))
        }
    }
}

/// Finds a repetition that comes to more than a thousand, the innermost first.
#[derive(Default)]
struct TooOften {
    /// For each part of the pattern that is being looked at, how often the repetitions in it come to at most.
    most: Vec<u64>,
}

impl TooOften {
    /// Takes the finished part into the one around it.
    fn merge(&mut self, times: u64) {
        if let Some(around) = self.most.last_mut() {
            *around = (*around).max(times);
        }
    }
}

impl ast::Visitor for TooOften {
    type Output = ();
    type Err = ast::Span;

    fn finish(self) -> Result<(), ast::Span> {
        Ok(())
    }

    fn visit_pre(&mut self, node: &Ast) -> Result<(), ast::Span> {
        if matches!(node, Ast::Repetition(_)) {
            self.most.push(1);
        }
        Ok(())
    }

    fn visit_post(&mut self, node: &Ast) -> Result<(), ast::Span> {
        let Ast::Repetition(repetition) = node else { return Ok(()) };
        let inside = self.most.pop().unwrap_or(1);
        let RepetitionKind::Range(range) = &repetition.op.kind else {
            self.merge(inside);
            return Ok(());
        };
        let bound = match range {
            RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n) | RepetitionRange::Bounded(_, n) => u64::from(*n),
        };
        let times = inside * bound.max(1);
        if bound >= 2 && times > MOST_REPETITIONS {
            return Err(repetition.op.span);
        }
        self.merge(times);
        Ok(())
    }
}

/// What is left of a pattern to be translated.
#[derive(Clone)]
struct Rest<'s> {
    chars: Chars<'s>,
    /// Whether there may be a `:]` in it. Where there is none there never will be, and it is not looked for again.
    closes_posix: bool,
}

impl<'s> Rest<'s> {
    fn new(source: &'s str) -> Self {
        Self { chars: source.chars(), closes_posix: true }
    }

    fn as_str(&self) -> &'s str {
        self.chars.as_str()
    }

    fn next(&mut self) -> Option<char> {
        self.chars.next()
    }

    fn peek(&self) -> Option<char> {
        self.chars.clone().next()
    }

    fn next_if(&mut self, wanted: impl FnOnce(char) -> bool) -> Option<char> {
        self.peek().filter(|c| wanted(*c))?;
        self.next()
    }

    fn next_if_eq(&mut self, wanted: char) -> Option<char> {
        self.next_if(|c| c == wanted)
    }

    /// Leaves out so many bytes, which end where a character does.
    fn skip(&mut self, bytes: usize) {
        self.chars = self.as_str()[bytes..].chars();
    }
}

/// A Go pattern in the syntax of the `regex` crate, in time that is linear in its length.
pub fn translate(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + 8);
    let mut rest = Rest::new(source);
    // The repetition just before; none may follow it directly.
    let mut before = String::new();
    while let Some(c) = rest.next() {
        let operator = match c {
            '*' | '+' | '?' => Some(c.to_string()),
            '{' => bounds(&mut rest)?,
            _ => None,
        };
        if let Some(mut operator) = operator {
            if rest.next_if_eq('?').is_some() {
                operator.push('?');
            }
            if !before.is_empty() {
                return Err(format!("error parsing regexp: invalid nested repetition operator: `{before}{operator}`"));
            }
            out.push_str(&operator);
            before = operator;
            continue;
        }
        before.clear();
        match c {
            '\\' => escape(&mut rest, &mut out)?,
            '[' => class(&mut rest, &mut out)?,
            '{' => out.push_str("\\{"),
            '(' if rest.next_if_eq('?').is_some() => group(&mut rest, &mut out)?,
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Translates what follows `(?`: flags, and the name of a group.
fn group(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let mut ahead = rest.clone();
    let named = ahead.next_if_eq('P');
    if ahead.next_if_eq('<').is_some() {
        *rest = ahead;
        return named_group(named.is_some(), rest, out);
    }
    let mut flags = String::new();
    // After a `-` there must be a flag.
    let (mut negative, mut complete) = (false, true);
    while let Some(c) = rest.next() {
        match c {
            'i' | 'm' | 's' | 'U' => complete = true,
            '-' if !negative => (negative, complete) = (true, false),
            ':' | ')' if complete => {
                // Go has no objection to flags that are none.
                if !(flags.is_empty() && c == ')') {
                    out.push_str("(?");
                    out.push_str(&flags);
                    out.push(c);
                }
                return Ok(());
            }
            _ => return Err(format!("error parsing regexp: invalid or unsupported Perl syntax: `(?{flags}{c}`")),
        }
        if !flags.split('-').next_back().is_some_and(|same| same.contains(c)) {
            flags.push(c);
        }
    }
    Err(format!("error parsing regexp: missing closing ): `(?{flags}`"))
}

fn named_group(p: bool, rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let start = if p { "(?P<" } else { "(?<" };
    let Some((name, _)) = rest.as_str().split_once('>') else {
        return Err(format!("error parsing regexp: invalid named capture: `{start}{}`", rest.as_str()));
    };
    if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
        return Err(format!("error parsing regexp: invalid named capture: `{start}{name}>`"));
    }
    rest.skip(name.len() + 1);
    // Names are not asked for, and in Go several groups may have the same one.
    out.push('(');
    Ok(())
}

/// Takes the rest of `{n,m}` if it is one.
fn bounds(rest: &mut Rest<'_>) -> Result<Option<String>, String> {
    // No number is longer than this.
    let end = rest.as_str().bytes().take(33).position(|byte| byte == b'}');
    let Some(ahead) = end.map(|end| &rest.as_str()[..end]).filter(|ahead| is_repetition(ahead)) else {
        return Ok(None);
    };
    let (low, high) = ahead.split_once(',').unwrap_or((ahead, ""));
    let count = |bound: &str| bound.parse::<u64>().unwrap_or(if bound.is_empty() { 0 } else { u64::MAX });
    let reversed = !high.is_empty() && count(low) > count(high);
    if reversed || count(low).max(count(high)) > MOST_REPETITIONS {
        return Err(format!("error parsing regexp: invalid repeat count: `{{{ahead}}}`"));
    }
    rest.skip(ahead.len() + 1);
    Ok(Some(format!("{{{ahead}}}")))
}

fn is_repetition(bounds: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match bounds.split_once(',') {
        None => digits(bounds),
        Some((low, high)) => digits(low) && (high.is_empty() || digits(high)),
    }
}

/// Translates what follows a backslash outside of character classes.
fn escape(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    match rest.peek() {
        Some('b') => out.push_str("(?-u:\\b)"),
        Some('B') => out.push_str("(?-u:\\B)"),
        Some('A') => out.push_str("\\A"),
        Some('z') => out.push_str("\\z"),
        Some('Q') => {
            rest.next();
            quoted(rest, out);
            return Ok(());
        }
        _ if escaped_class(rest, out)? => return Ok(()),
        _ => {
            literal(escaped_char(rest)?, out);
            return Ok(());
        }
    }
    rest.next();
    Ok(())
}

/// Translates what follows a backslash if it stands for several characters.
fn escaped_class(rest: &mut Rest<'_>, out: &mut String) -> Result<bool, String> {
    let Some(c) = rest.peek() else { return Ok(false) };
    let class = match c {
        'd' => "[0-9]",
        'w' => "[0-9A-Za-z_]",
        's' => "[\\t\\n\\x0C\\r ]",
        'D' => "[^0-9]",
        'W' => "[^0-9A-Za-z_]",
        'S' => "[^\\t\\n\\x0C\\r ]",
        'p' | 'P' => "",
        _ => return Ok(false),
    };
    rest.next();
    if class.is_empty() {
        unicode_class(c, rest, out)?;
    }
    out.push_str(class);
    Ok(true)
}

/// The character that is meant by what follows a backslash.
fn escaped_char(rest: &mut Rest<'_>) -> Result<char, String> {
    let Some(c) = rest.next() else {
        return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
    };
    Ok(match c {
        'a' => '\x07',
        'f' => '\x0C',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0B',
        'x' => hexadecimal(rest)?,
        '0' => octal(c, rest),
        // One digit alone would be a reference to a group.
        '1'..='7' if rest.peek().is_some_and(|c| c.is_digit(8)) => octal(c, rest),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        c => return Err(format!("error parsing regexp: invalid escape sequence: `\\{c}`")),
    })
}

fn quoted(rest: &mut Rest<'_>, out: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some('E') {
            rest.next();
            return;
        }
        literal(c, out);
    }
}

/// Translates what follows `\p`: a general category or a script, and no other property.
fn unicode_class(kind: char, rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let unknown = |written: &str| Err(format!("error parsing regexp: invalid character class range: `{written}`"));
    let mut written = format!("\\{kind}");
    let mut name = String::new();
    match rest.next() {
        None => return unknown(&written),
        Some('{') => {
            written.push('{');
            loop {
                let Some(c) = rest.next() else { return unknown(&written) };
                written.push(c);
                if c == '}' {
                    break;
                }
                name.push(c);
            }
        }
        Some(c) => {
            written.push(c);
            name.push(c);
        }
    }
    let (negated, name) = name.strip_prefix('^').map_or((false, &*name), |name| (true, name));
    let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' '));
    let property = ["gc", "sc"].into_iter().find_map(|property| {
        let class = format!("{{{property}={name}}}");
        regex_syntax::parse(&format!("\\p{class}")).is_ok().then_some(class)
    });
    let Some(class) = property.filter(|_| is_word && !name.is_empty()) else { return unknown(&written) };
    out.push_str(if negated == (kind == 'P') { "\\p" } else { "\\P" });
    out.push_str(&class);
    Ok(())
}

/// Translates what follows `\x`: two digits, or any number of them in braces.
fn hexadecimal(rest: &mut Rest<'_>) -> Result<char, String> {
    let braced = rest.next_if_eq('{').is_some();
    let mut written = String::from(if braced { "\\x{" } else { "\\x" });
    let mut code = None;
    loop {
        let next = rest.next();
        written.extend(next);
        match next.map(|c| (c, c.to_digit(16))) {
            Some((_, Some(digit))) => {
                let value = code.unwrap_or(0) * 16 + digit;
                if value > u32::from(char::MAX) {
                    break;
                }
                code = Some(value);
                if !braced && written.len() == 4 {
                    return character(value);
                }
            }
            Some(('}', None)) if braced => match code {
                Some(value) => return character(value),
                None => break,
            },
            _ => break,
        }
    }
    Err(format!("error parsing regexp: invalid escape sequence: `{written}`"))
}

/// A character by its number. Half of a surrogate pair is one in Go, but no text has it.
fn character(value: u32) -> Result<char, String> {
    char::from_u32(value).ok_or_else(|| format!("error parsing regexp: invalid escape sequence: `\\x{{{value:x}}}`"))
}

fn octal(first: char, rest: &mut Rest<'_>) -> char {
    let digits = std::iter::once(first).chain(std::iter::from_fn(|| rest.next_if(|c| c.is_digit(8))).take(2));
    let value = digits.filter_map(|c| c.to_digit(8)).fold(0, |value, digit| value * 8 + digit);
    char::from_u32(value).unwrap_or_default()
}

fn literal(c: char, out: &mut String) {
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

/// Translates a character class: in Go it does not nest and has no set operators, and a dash is a range only between
/// two characters.
fn class(rest: &mut Rest<'_>, out: &mut String) -> Result<(), String> {
    let whole = rest.as_str();
    let missing = || format!("error parsing regexp: missing closing ]: `[{whole}`");
    out.push('[');
    if rest.next_if_eq('^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let from = rest.as_str();
        let c = rest.next().ok_or_else(missing)?;
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            '[' if rest.peek() == Some(':') && posix_class(rest, out)? => {}
            '\\' if escaped_class(rest, out)? => {}
            c => {
                let low = if c == '\\' { escaped_char(rest)? } else { c };
                literal(low, out);
                let mut ahead = rest.clone();
                if ahead.next() == Some('-') && ahead.peek().is_some_and(|c| c != ']') {
                    *rest = ahead;
                    let high = match rest.next() {
                        Some('\\') => escaped_char(rest)?,
                        high => high.ok_or_else(missing)?,
                    };
                    if high < low {
                        let range = &from[..from.len() - rest.as_str().len()];
                        return Err(format!("error parsing regexp: invalid character class range: `{range}`"));
                    }
                    out.push('-');
                    literal(high, out);
                }
            }
        }
        first = false;
    }
}

/// Translates the rest of `[:name:]` if it is one.
fn posix_class(rest: &mut Rest<'_>, out: &mut String) -> Result<bool, String> {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    ];
    let ahead = rest.as_str();
    let end = if rest.closes_posix { ahead[1..].find(":]") } else { None };
    let Some(end) = end else {
        rest.closes_posix = false;
        return Ok(false);
    };
    let name = &ahead[1..=end];
    if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(format!("error parsing regexp: invalid character class range: `[:{name}:]`"));
    }
    let _ = write!(out, "[:{name}:]");
    rest.skip(name.len() + 3);
    Ok(true)
}

/// Go's wording for the failures people really make.
fn explain(source: &str, text: &str) -> String {
    let what = if text.contains("unclosed group") {
        "missing closing )"
    } else if text.contains("unopened group") {
        "unexpected )"
    } else if text.contains("repetition operator missing expression") {
        return format!("error parsing regexp: missing argument to repetition operator: `{}`", repetition(source));
    } else {
        "invalid syntax"
    };
    format!("error parsing regexp: {what}: `{source}`")
}

fn repetition(source: &str) -> &str {
    source.find(['*', '+', '?']).map_or(source, |at| &source[at..=at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &Pattern, text: &str) -> bool {
        pattern.matches(text, &mut |_| true).expect("no limit")
    }

    #[track_caller]
    fn matching(pattern: &str, matching: &[&str], other: &[&str]) {
        let pattern = Pattern::new(pattern);
        assert_eq!(check(pattern.source()), Ok(()));
        for text in matching {
            assert!(matches(&pattern, text), "{pattern:?} should match {text:?}");
        }
        for text in other {
            assert!(!matches(&pattern, text), "{pattern:?} should not match {text:?}");
        }
    }

    #[test]
    fn go_syntax_means_what_it_means_in_go() {
        matching(r"^\d+$", &["12"], &["", "١٢"]);
        matching(r"^[\w.-]+$", &["a.b-c_1"], &["é"]);
        matching(r"^[\w-.]+$", &["a-b.c"], &["a/b"]);
        matching(r"^[\w-z]+$", &["-", "z"], &["`"]);
        matching(r"^[\s-x]$", &[" ", "-", "x"], &["A"]);
        matching(r"^[\pL-z]+$", &["é-z"], &["1"]);
        matching(r"^[a-c-e]+$", &["b-e"], &["d"]);
        matching(r"^[[:alpha:]-z[:^word:]]+$", &["a-z!"], &["1"]);
        matching(r"^[[:alpha]+$", &["[:a"], &["b"]);
        matching(r"^(?P<n>a)(?P<n>b)$", &["ab"], &["a"]);
        matching(r"^[[a]$", &["[", "a"], &["b"]);
        matching(r"^[a&&b]+$", &["a&b"], &["c"]);
        matching(r"^[+--]$", &["+", ",", "-"], &["."]);
        matching(r"^a{,2}$", &["a{,2}"], &["aa"]);
        matching(r"^a{2,}$", &["aaa"], &["a"]);
        matching(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        matching(r"^[^\s]+$", &["\u{a0}"], &[" "]);
        matching(r"^[[:alpha:]]+\/\-\_$", &["ab/-_"], &["1/-_"]);
        matching(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$",
            &["10Mi"],
            &["x"],
        );
        matching(r"^\x41\101$", &["AA"], &[]);
        matching(r"^[]a]$", &["]", "a"], &["b"]);
        matching(r"^(?:a+?)+(?P<b>b{2})??$", &["aa", "abb"], &["b"]);
    }

    #[test]
    fn characters_may_be_given_by_number() {
        matching(r"^\x{4a}\x4a$", &["JJ"], &["J"]);
        matching(r"^[\x{4e00}-\x{9fff}]+$", &["日本語"], &["abc"]);
        matching(r"^\x{1F600}\x{10000}*\x{ffff}*$", &["😀", "😀\u{10000}"], &["x"]);
        matching(r"^\12\0$", &["\n\0"], &["12"]);
        for wrong in [r"\x{110000}", r"\x{}", r"\x{4a", r"\x4", r"\xg0", r"\8"] {
            let why = check(wrong).expect_err(wrong);
            assert!(why.starts_with("error parsing regexp: invalid escape sequence: `\\"), "{why}");
        }
    }

    #[test]
    fn what_go_does_not_have_is_refused() {
        let refused = |pattern: &str, why: &str| {
            assert_eq!(check(pattern).expect_err(pattern), format!("error parsing regexp: {why}"));
        };
        refused(r"(a)\1", r"invalid escape sequence: `\1`");
        refused("(?x)a b", "invalid or unsupported Perl syntax: `(?x`");
        refused("(?u)a", "invalid or unsupported Perl syntax: `(?u`");
        refused("(?R)a", "invalid or unsupported Perl syntax: `(?R`");
        refused("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`");
        refused("(?P=a)", "invalid or unsupported Perl syntax: `(?P`");
        refused(r"\p{Script=Greek}", r"invalid character class range: `\p{Script=Greek}`");
        refused(r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`");
        refused("^[[:foo:]]$", "invalid character class range: `[:foo:]`");
        refused("[z-a]b", "invalid character class range: `z-a`");
        refused("[a--b]", "invalid character class range: `a--`");
        refused(r"[\x{41}-\n]", r"invalid character class range: `\x{41}-\n`");
        refused(r"[a-\d]", r"invalid escape sequence: `\d`");
        refused("x{2,1}", "invalid repeat count: `{2,1}`");
        refused("(a[b)c[d", "missing closing ]: `[b)c[d`");
        refused(r"\pX", r"invalid character class range: `\pX`");
        refused("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`");
        matching(r"^\p{Greek}+\pN\P{Lu}\p{^Lu}$", &["αβ1aa"], &["ab1aa"]);
        matching(r"^(?i:AB)(?)(?s-m).(?:c)$", &["ab\nc"], &["ab\nC"]);
        matching(r"^(?<n>a)(?P<n2>b)(?ii-s)C$", &["abc"], &["ab"]);
    }

    /// The rest of the pattern was looked through at each of these: a megabyte took minutes.
    #[test]
    fn translation_takes_linear_time() {
        let started = std::time::Instant::now();
        let many = |part: &str| part.repeat(1_000_000 / part.len());
        assert!(translate(&format!("[{}a]", many("[:"))).is_ok());
        assert!(translate(&format!("[{}", many("[:"))).is_err());
        assert!(translate(&many("[[:alpha:]]")).is_ok());
        assert!(translate(&many("(?<n>a)")).is_ok());
        assert!(translate(&many("(?i)")).is_ok());
        assert!(translate(&many("a{2,")).is_ok());
        assert!(translate(&many("(?<")).is_err());
        assert!(translate(&many(r"\Q\E")).is_ok());
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn a_pattern_that_names_very_many_classes_is_refused() {
        assert_eq!(check(&r"\pL".repeat(1_000)), Ok(()));
        let large = check(&r"\pL".repeat(100_000)).expect_err("too large");
        assert!(large.starts_with(r"error parsing regexp: expression too large: `\pL\pL"), "{}", &large[..80]);
    }

    /// What is accepted is matched, and what would take too much memory is refused at once.
    #[test]
    fn no_pattern_is_too_large_unless_it_is_to_go() {
        let large = "(x?y?){1000}".repeat(400);
        matching(&format!("^{large}$"), &["", "xyyx"], &["é"]);
        let larger = "(x?y?){1000}".repeat(1_000);
        let refused = check(&larger).expect_err("too large");
        assert_eq!(refused, format!("error parsing regexp: expression too large: `{larger}`"));
        assert_eq!(compile(&larger).map(|_| ()), Err(refused));
    }

    #[test]
    fn malformed_patterns_are_explained() {
        assert_eq!(check("[a").expect_err("malformed"), "error parsing regexp: missing closing ]: `[a`");
        assert_eq!(check("(a").expect_err("malformed"), "error parsing regexp: missing closing ): `(a`");
        assert_eq!(
            check("*a").expect_err("malformed"),
            "error parsing regexp: missing argument to repetition operator: `*`"
        );
        assert_eq!(
            check("a(?=b)").expect_err("malformed"),
            "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
        );
        assert_eq!(
            check("x++").expect_err("malformed"),
            "error parsing regexp: invalid nested repetition operator: `++`"
        );
        assert_eq!(check("a{1001}").expect_err("malformed"), "error parsing regexp: invalid repeat count: `{1001}`");
        assert_eq!(
            check("^(x|(a{10}b?){101})*$").expect_err("too often"),
            "error parsing regexp: invalid repeat count: `{101}`"
        );
        assert_eq!(check("^((a{10}){100}|(b{1,1000}c){1}){0,1}$"), Ok(()));
        assert!(compile("[a").is_err());
        assert!(!matches(&Pattern::new("(a"), "(a"));
    }
}
