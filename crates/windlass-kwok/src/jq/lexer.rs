//! The words of a query.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name, or a keyword.
    Word(String),
    /// A name right after a dot.
    Field(String),
    Text(String),
    Number(Value),
    /// An operator or a bracket.
    Sign(&'static str),
}

const SIGNS: [&str; 27] = [
    "//", "==", "!=", "<=", ">=", "..", "|", ",", ".", "[", "]", "(", ")", "{", "}", ":", ";", "<", ">", "+", "-", "*",
    "/", "%", "?", "=", "$",
];

pub(super) fn tokens(query: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = query;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if first == '#' {
            rest = rest.find('\n').map_or("", |at| &rest[at..]);
        } else if first == '"' {
            let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let text = texts.next().and_then(Result::ok).ok_or("a text has no end")?;
            rest = &rest[texts.byte_offset()..];
            let is_field = tokens.last() == Some(&Token::Sign("."));
            if is_field {
                tokens.pop();
            }
            tokens.push(if is_field { Token::Field(text) } else { Token::Text(text) });
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            let number = serde_json::from_str(&rest[..end]).map_err(|_| format!("{} is no number", &rest[..end]))?;
            tokens.push(Token::Number(number));
            rest = &rest[end..];
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let is_field = tokens.last() == Some(&Token::Sign(".")) && query[..query.len() - rest.len()].ends_with('.');
            let word = rest[..end].to_owned();
            if is_field {
                tokens.pop();
            }
            tokens.push(if is_field { Token::Field(word) } else { Token::Word(word) });
            rest = &rest[end..];
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| format!("unexpected {first:?}"))?;
            if matches!(sign, "$" | "=" | "..") {
                return Err(format!("{sign:?} is not supported"));
            }
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        }
    }
}
