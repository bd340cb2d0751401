//! Text to nodes. Mirrors `client-go/util/jsonpath/parser.go` rule by rule, quirks included: a key in
//! brackets is parsed as a field again, so `['a.b']` selects `b` in `a` unless the dot is escaped.

use super::{End, Node, ParseError};

/// Expressions nest in filters only; two levels are more than expressions have.
const MAX_DEPTH: usize = 16;

/// Parses a template, which starts with `{`, and returns its first expression. The rest must parse too.
pub(super) fn template(text: &str, depth: usize) -> Result<Vec<Node>, ParseError> {
    if depth > MAX_DEPTH {
        return Err(ParseError::TooDeep);
    }
    let mut parser = Parser { input: text, pos: 0, depth };
    let mut first = None;
    // Between expressions there is literal text, which a column does not show.
    while let Some(at) = parser.rest().find('{') {
        parser.pos += at + 1;
        let nodes = parser.action()?;
        first.get_or_insert(nodes);
    }
    Ok(first.unwrap_or_default())
}

/// Parses an expression of its own, as if it stood in braces.
fn expression(text: &str, depth: usize) -> Result<Vec<Node>, ParseError> {
    template(&format!("{{{text}}}"), depth + 1)
}

struct Parser<'a> {
    input: &'a str,
    pos: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.input.get(self.pos..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    /// Everything up to and including the closing brace.
    fn action(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with('}') {
                self.pos += 1;
                return Ok(nodes);
            } else if rest.starts_with("[?(") {
                self.pos += 3;
                nodes.push(self.filter()?);
                continue;
            } else if rest.starts_with("..") {
                if nodes.last() == Some(&Node::Recursive) {
                    return Err(ParseError::RepeatedDescent);
                }
                self.pos += 2;
                nodes.push(Node::Recursive);
                if self.peek().is_some_and(is_word) {
                    nodes.push(self.field());
                }
                continue;
            }
            match self.next() {
                None | Some('\r' | '\n') => return Err(ParseError::UnclosedAction),
                // The current object and the root are the same thing here.
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(self.quoted(quote)?),
                Some('.') => nodes.push(self.field()),
                Some(c) if c == '+' || c == '-' || c.is_ascii_digit() => {
                    self.pos -= c.len_utf8();
                    nodes.push(self.number()?);
                }
                Some(c) if is_word(c) => {
                    self.pos -= c.len_utf8();
                    nodes.push(self.identifier());
                }
                Some(c) => return Err(ParseError::UnrecognizedCharacter(c)),
            }
        }
    }

    fn identifier(&mut self) -> Node {
        let start = self.pos;
        while self.peek().is_some_and(|c| !is_terminator(c)) {
            self.next();
        }
        match &self.input[start..self.pos] {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            _ => Node::Identifier,
        }
    }

    fn number(&mut self) -> Result<Node, ParseError> {
        let start = self.pos;
        if let Some('+' | '-') = self.peek() {
            self.next();
        }
        while self.peek().is_some_and(|c| c == '.' || c.is_ascii_digit()) {
            self.next();
        }
        let text = &self.input[start..self.pos];
        if let Ok(int) = text.parse() {
            return Ok(Node::Int(int));
        }
        text.parse().map(Node::Float).map_err(|_| ParseError::Number(text.into()))
    }

    /// A name up to the next terminator that is not escaped.
    fn field(&mut self) -> Node {
        let start = self.pos;
        while let Some(c) = self.peek() {
            if c == '\\' {
                self.next();
                self.next();
            } else if is_terminator(c) {
                break;
            } else {
                self.next();
            }
        }
        match &self.input[start..self.pos] {
            "*" => Node::Wildcard,
            name => Node::Field(name.replace('\\', "")),
        }
    }

    /// What follows `[`: a union, a key, an index or a slice.
    fn brackets(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let rest = self.rest();
        let end = rest.find([']', '\n']).filter(|at| rest[*at..].starts_with(']'));
        let Some(end) = end else { return Err(ParseError::UnterminatedArray) };
        self.pos += end + 1;
        let text = match &rest[..end] {
            "*" => ":",
            other => other,
        };
        if text.contains(',') {
            let parts = text.split(',').map(|part| expression(&format!("[{}]", part.trim_matches(' ')), self.depth));
            nodes.push(Node::Union(parts.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).filter(|key| !key.contains('\''));
        if let Some(key) = key {
            nodes.extend(expression(&format!(".{key}"), self.depth)?);
            return Ok(());
        }
        nodes.push(slice(text)?);
        Ok(())
    }

    /// What follows `[?(`, up to and including `)]`.
    fn filter(&mut self) -> Result<Node, ParseError> {
        let start = self.pos;
        let (mut quote, mut closed, mut previous) = (None, false, '(');
        loop {
            let c = self.next();
            match c {
                None | Some('\n') => return Err(ParseError::UnterminatedFilter),
                Some(c @ ('"' | '\'')) => match quote {
                    None => quote = Some(c),
                    Some(open) if open == c && previous != '\\' => closed = true,
                    Some(_) => {}
                },
                // A parenthesis inside a string does not end the filter.
                Some(')') if quote.is_some() == closed => break,
                Some(_) => {}
            }
            previous = c.unwrap_or_default();
        }
        let text = &self.input[start..self.pos - 1];
        if self.next() != Some(']') {
            return Err(ParseError::UnclosedFilter);
        }
        let Some((left, operator, right)) = comparison(text) else {
            return Ok(Node::Filter { left: expression(text, self.depth)?, operator: None, right: Vec::new() });
        };
        Ok(Node::Filter {
            left: expression(left, self.depth)?,
            operator: Some(operator.into()),
            right: expression(right, self.depth)?,
        })
    }

    fn quoted(&mut self, quote: char) -> Result<Node, ParseError> {
        let start = self.pos;
        let mut previous = quote;
        loop {
            match self.next() {
                None | Some('\n') => return Err(ParseError::UnterminatedQuote),
                Some(c) if c == quote && previous != '\\' => break,
                Some(c) => previous = c,
            }
        }
        let text = &self.input[start..self.pos - quote.len_utf8()];
        unquote(text, quote).map(Node::Text).ok_or_else(|| ParseError::Unquote(text.into()))
    }
}

/// Splits `left op right` at the first run of comparison characters.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let start = text.find(is_operator).filter(|at| *at > 0)?;
    let mut end = text[start..].find(|c| !is_operator(c)).map_or(text.len(), |at| start + at);
    if end == text.len() {
        // There must be something to compare with, even if it is an operator's last character.
        end -= 1;
    }
    (end > start).then(|| (&text[..start], &text[start..end], &text[end..]))
}

fn slice(text: &str) -> Result<Node, ParseError> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_index = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|b| b.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(is_index) {
        return Err(ParseError::ArrayIndex(text.into()));
    }
    let number = |part: Option<&&str>| match part {
        None | Some(&"") => Ok(None),
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| ParseError::IndexNumber((*part).into())),
    };
    let end = match (parts.get(1), number(parts.get(1))?) {
        (None, _) => End::One,
        (Some(_), Some(at)) => End::At(at),
        (Some(_), None) => End::Open,
    };
    Ok(Node::Slice { start: number(parts.first())?, end, step: number(parts.get(2))? })
}

/// Resolves Go's escapes in the inside of a quoted string.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escape = rest.chars().next()?;
        let (c, used) = match escape {
            'a' => ('\u{7}', 1),
            'b' => ('\u{8}', 1),
            'f' => ('\u{c}', 1),
            'n' => ('\n', 1),
            'r' => ('\r', 1),
            't' => ('\t', 1),
            'v' => ('\u{b}', 1),
            '\\' => ('\\', 1),
            c if c == quote => (c, 1),
            'x' => (numbered(rest.get(1..3)?, 16)?, 3),
            'u' => (numbered(rest.get(1..5)?, 16)?, 5),
            'U' => (numbered(rest.get(1..9)?, 16)?, 9),
            '0'..='7' => (numbered(rest.get(..3)?, 8)?, 3),
            _ => return None,
        };
        out.push(c);
        rest = &rest[used..];
    }
    Some(out)
}

fn numbered(digits: &str, radix: u32) -> Option<char> {
    let valid = digits.chars().all(|c| c.is_digit(radix));
    valid.then(|| u32::from_str_radix(digits, radix).ok()).flatten().and_then(char::from_u32)
}

/// What may be part of a word.
fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// What ends a field or an identifier.
fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
