//! The part of TOML that `hosts.toml` needs: tables, and text, flags and lists of text in them.

use std::iter::Peekable;
use std::str::CharIndices;

use serde_json::Value;

/// A table; the first is the one without a name.
#[derive(Debug)]
pub(super) struct Table {
    /// The line of its name.
    pub(super) line: usize,
    pub(super) name: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

/// A key with its value: text, a flag, or a list of text.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Value,
}

/// Reads a file. A mistake comes with its line.
pub(super) fn parse(text: &str) -> Result<Vec<Table>, (usize, String)> {
    let mut reader = Reader { text, rest: text.char_indices().peekable() };
    let mut tables = vec![Table { line: 1, name: Vec::new(), entries: Vec::new() }];
    loop {
        reader.skip(char::is_whitespace);
        let Some((at, next)) = reader.rest.peek().copied() else { return Ok(tables) };
        let line = text[..at].matches('\n').count() + 1;
        let mistake = |why: String| (line, why);
        if next == '[' {
            reader.rest.next();
            let name = reader.name(']').map_err(mistake)?;
            tables.push(Table { line, name, entries: Vec::new() });
        } else {
            let name = reader.name('=').map_err(mistake)?;
            let [key] = <[String; 1]>::try_from(name).map_err(|_| mistake("a key has no dots".to_owned()))?;
            let value = reader.value().map_err(mistake)?;
            if let Some(table) = tables.last_mut() {
                table.entries.push(Entry { line, key, value });
            }
        }
        reader.end_of_line().map_err(mistake)?;
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
}

const VALUE: &str = "a value is \"text\", true, false, or [\"a\", \"list\"]";

impl Reader<'_> {
    /// Skips what a function accepts, and comments.
    fn skip(&mut self, accepts: fn(char) -> bool) {
        while let Some((_, next)) = self.rest.peek().copied() {
            if next == '#' {
                while self.rest.next_if(|(_, next)| *next != '\n').is_some() {}
            } else if self.rest.next_if(|(_, next)| accepts(*next)).is_none() {
                return;
            }
        }
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.rest.next_if(|(_, next)| *next == wanted).is_some()
    }

    fn blank(next: char) -> bool {
        matches!(next, ' ' | '\t')
    }

    fn end_of_line(&mut self) -> Result<(), String> {
        self.skip(|next| Self::blank(next) || next == '\r');
        match self.rest.next() {
            None | Some((_, '\n')) => Ok(()),
            Some((at, _)) => {
                let rest = self.text[at..].lines().next().unwrap_or_default();
                Err(format!("{rest:?} is not expected at the end of a line"))
            }
        }
    }

    /// Letters, digits and the like.
    fn word(&mut self) -> String {
        let mut word = String::new();
        let accepts = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '-');
        while let Some((_, next)) = self.rest.next_if(|(_, next)| accepts(*next)) {
            word.push(next);
        }
        word
    }

    /// Words and texts between dots, up to a sign.
    fn name(&mut self, end: char) -> Result<Vec<String>, String> {
        let mut parts = Vec::new();
        loop {
            self.skip(Self::blank);
            let part = match self.rest.peek() {
                Some((_, '"' | '\'')) => self.string()?,
                _ => self.word(),
            };
            if part.is_empty() {
                return Err(format!("a name is expected before {end:?}"));
            }
            parts.push(part);
            self.skip(Self::blank);
            if self.takes(end) {
                return Ok(parts);
            }
            if !self.takes('.') {
                return Err(format!("{end:?} is expected after {:?}", parts.join(".")));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let Some((_, quote)) = self.rest.next() else { return Err(VALUE.to_owned()) };
        let mut text = String::new();
        while let Some((_, next)) = self.rest.next() {
            match next {
                next if next == quote => return Ok(text),
                '\n' => break,
                '\\' if quote == '"' => match self.rest.next() {
                    Some((_, next @ ('"' | '\\'))) => text.push(next),
                    Some((_, next)) => {
                        return Err(format!("\\{next} is not understood in text; use 'text' for backslashes"));
                    }
                    None => break,
                },
                next => text.push(next),
            }
        }
        Err(format!("text without {quote} at its end"))
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip(Self::blank);
        match self.rest.peek() {
            Some((_, '"' | '\'')) => self.string().map(Value::String),
            Some((_, '[')) => {
                self.rest.next();
                let mut values = Vec::new();
                loop {
                    self.skip(char::is_whitespace);
                    if self.takes(']') {
                        return Ok(Value::Array(values));
                    }
                    match self.rest.peek() {
                        Some((_, '"' | '\'')) => values.push(Value::String(self.string()?)),
                        _ => return Err(VALUE.to_owned()),
                    }
                    self.skip(char::is_whitespace);
                    if !self.takes(',') && self.rest.peek().is_none_or(|(_, next)| *next != ']') {
                        return Err("a comma is expected between the texts of a list".to_owned());
                    }
                }
            }
            _ => match self.word().as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(VALUE.to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_read_as_it_was_quoted() {
        let check =
            |text: &str, expected: Value| assert_eq!(parse(text).unwrap()[0].entries[0].value, expected, "{text}");
        check(r#"a = "x # \" \\ y" # comment"#, Value::String(r#"x # " \ y"#.to_owned()));
        check(r"'a b' = 'C:\dir'", Value::String(r"C:\dir".to_owned()));
        check("a = [] ", Value::Array(Vec::new()));
        check("a=[\n 'x' , # one\n \"y\",\n]", Value::Array(vec!["x".into(), "y".into()]));
        for text in
            ["a", "a = ", "a = 'x", "a = x", "a = ['x' 'y']", "[a", "[a] b", "a = 'x' 'y'", "a.b = 'x'", "= 'x'"]
        {
            parse(text).unwrap_err();
        }
        assert_eq!(parse("\n\n[a.\"b.c\"] # comment\r\n").unwrap()[1].name, ["a", "b.c"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]a\"'=.,# \n\\\\]{0,40}") {
            let _ = parse(&text);
        }
    }
}
