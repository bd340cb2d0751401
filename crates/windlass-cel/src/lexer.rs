//! From text to tokens, following the lexer rules of cel-go's grammar (`parser/gen/CEL.g4`).

use super::source::Issues;

/// A token: what it is and where it starts, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) text: String,
    pub(super) offset: usize,
}

/// What a token is. Operators, brackets and keywords are `Symbol`s and told apart by their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Symbol,
    Ident,
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    End,
}

impl Token {
    pub(super) fn is(&self, symbol: &str) -> bool {
        self.kind == TokenKind::Symbol && self.text == symbol
    }

    /// The token as error messages show it.
    pub(super) fn shown(&self) -> &str {
        if self.kind == TokenKind::End { "<EOF>" } else { &self.text }
    }
}

/// Splits a text into tokens; the last one is the end. What is no token is reported and skipped.
pub(super) fn tokens(text: &str, issues: &mut Issues) -> Vec<Token> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let start = lexer.at;
        if start >= lexer.chars.len() {
            tokens.push(Token { kind: TokenKind::End, text: String::new(), offset: start });
            return tokens;
        }
        match lexer.next() {
            Ok((kind, end)) => {
                lexer.at = end;
                tokens.push(Token { kind, text: lexer.text(start, end), offset: start });
            }
            Err(failed) => {
                let end = (failed + 1).min(lexer.chars.len());
                let shown = lexer.text(start, end).replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
                issues.push(Some(start), format!("Syntax error: token recognition error at: '{shown}'"));
                lexer.at = end.max(start + 1);
            }
        }
    }
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

/// The kind of a token and where it ends, or where it became clear that it is none.
type Lexed = Result<(TokenKind, usize), usize>;

impl Lexer {
    fn peek(&self, at: usize) -> Option<char> {
        self.chars.get(at).copied()
    }

    fn text(&self, start: usize, end: usize) -> String {
        self.chars[start..end].iter().collect()
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(self.at) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(self.at + 1) == Some('/') => {
                    while self.peek(self.at).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&self) -> Lexed {
        let start = self.at;
        let Some(first) = self.peek(start) else { return Err(start) };
        let second = self.peek(start + 1);
        match first {
            '0'..='9' => Ok(self.number(start)),
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => Ok(self.number(start)),
            '"' | '\'' => self.string(start, false).map(|end| (TokenKind::String, end)),
            'r' | 'R' if matches!(second, Some('"' | '\'')) => {
                self.string(start + 1, true).map(|end| (TokenKind::String, end))
            }
            'b' | 'B' if matches!(second, Some('"' | '\'')) => {
                self.string(start + 1, false).map(|end| (TokenKind::Bytes, end))
            }
            'b' | 'B' if matches!(second, Some('r' | 'R')) && matches!(self.peek(start + 2), Some('"' | '\'')) => {
                self.string(start + 2, true).map(|end| (TokenKind::Bytes, end))
            }
            'a'..='z' | 'A'..='Z' | '_' => Ok(self.ident(start)),
            '`' => self.escaped_ident(start),
            '=' | '&' | '|' if second == Some(first) => Ok((TokenKind::Symbol, start + 2)),
            '=' | '&' | '|' => Err(start + 1),
            '!' | '<' | '>' if second == Some('=') => Ok((TokenKind::Symbol, start + 2)),
            '!' | '<' | '>' | '[' | ']' | '{' | '}' | '(' | ')' | '.' | ',' | '-' | '?' | ':' | '+' | '*' | '/'
            | '%' => Ok((TokenKind::Symbol, start + 1)),
            _ => Err(start),
        }
    }

    fn ident(&self, start: usize) -> (TokenKind, usize) {
        let mut end = start;
        while self.peek(end).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            end += 1;
        }
        let keyword = matches!(self.text(start, end).as_str(), "in" | "true" | "false" | "null");
        (if keyword { TokenKind::Symbol } else { TokenKind::Ident }, end)
    }

    fn escaped_ident(&self, start: usize) -> Lexed {
        let mut end = start + 1;
        while self.peek(end).is_some_and(|c| c.is_ascii_alphanumeric() || "_.-/ ".contains(c)) {
            end += 1;
        }
        if end > start + 1 && self.peek(end) == Some('`') { Ok((TokenKind::EscapedIdent, end + 1)) } else { Err(end) }
    }

    fn number(&self, start: usize) -> (TokenKind, usize) {
        let digits = |mut at: usize| {
            while self.peek(at).is_some_and(|c| c.is_ascii_digit()) {
                at += 1;
            }
            at
        };
        let unsigned = |at: usize| {
            if matches!(self.peek(at), Some('u' | 'U')) { (TokenKind::Uint, at + 1) } else { (TokenKind::Int, at) }
        };
        let exponent = |at: usize| {
            if !matches!(self.peek(at), Some('e' | 'E')) {
                return at;
            }
            let sign = at + 1 + usize::from(matches!(self.peek(at + 1), Some('+' | '-')));
            let end = digits(sign);
            if end > sign { end } else { at }
        };
        if self.peek(start) == Some('0') && self.peek(start + 1) == Some('x') {
            let mut end = start + 2;
            while self.peek(end).is_some_and(|c| c.is_ascii_hexdigit()) {
                end += 1;
            }
            if end > start + 2 {
                return unsigned(end);
            }
        }
        let whole = digits(start);
        let has_fraction = self.peek(whole) == Some('.') && self.peek(whole + 1).is_some_and(|c| c.is_ascii_digit());
        let mantissa = if has_fraction { digits(whole + 1) } else { whole };
        let end = exponent(mantissa);
        if has_fraction || end > mantissa { (TokenKind::Float, end) } else { unsigned(whole) }
    }

    /// Where the string whose quote is at `start` ends, or where it goes wrong.
    fn string(&self, start: usize, raw: bool) -> Result<usize, usize> {
        let Some(quote) = self.peek(start) else { return Err(start) };
        let triple = self.peek(start + 1) == Some(quote) && self.peek(start + 2) == Some(quote);
        let mut at = start + if triple { 3 } else { 1 };
        while let Some(c) = self.peek(at) {
            match c {
                '\\' if !raw => at = self.escape(at)?,
                '\n' | '\r' if !triple => return Err(at),
                c if c == quote => {
                    if !triple {
                        return Ok(at + 1);
                    }
                    if self.peek(at + 1) == Some(quote) && self.peek(at + 2) == Some(quote) {
                        return Ok(at + 3);
                    }
                    at += 1;
                }
                _ => at += 1,
            }
        }
        Err(at)
    }

    fn escape(&self, start: usize) -> Result<usize, usize> {
        let all = |from: usize, count: usize, fits: fn(char) -> bool| match (from..from + count)
            .find(|at| !self.peek(*at).is_some_and(fits))
        {
            Some(bad) => Err(bad),
            None => Ok(from + count),
        };
        match self.peek(start + 1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => Ok(start + 2),
            Some('x' | 'X') => all(start + 2, 2, |c| c.is_ascii_hexdigit()),
            Some('u') => all(start + 2, 4, |c| c.is_ascii_hexdigit()),
            Some('U') => all(start + 2, 8, |c| c.is_ascii_hexdigit()),
            Some('0'..='3') => all(start + 2, 2, |c| ('0'..='7').contains(&c)),
            _ => Err(start + 1),
        }
    }
}
