//! The words of an expression.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name, or a keyword.
    Word(String),
    Text(String),
    Number(Value),
    /// An operator or a bracket.
    Sign(&'static str),
}

const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=",
];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |at| &rest[at..]);
        } else if let Some(raw) = rest.strip_prefix(['r', 'R']).filter(|raw| raw.starts_with(['"', '\''])) {
            let (text, after) = string(raw, true)?;
            tokens.push(Token::Text(text));
            rest = after;
        } else if matches!(first, '"' | '\'') {
            let (text, after) = string(rest, false)?;
            tokens.push(Token::Text(text));
            rest = after;
        } else if first.is_ascii_digit() {
            let (number, after) = number(rest)?;
            tokens.push(Token::Number(number));
            rest = after;
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign) && *sign != "=");
            let sign = sign.ok_or_else(|| format!("unexpected {first:?}"))?;
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        }
    }
}

fn number(text: &str) -> Result<(Value, &str), String> {
    let wrong = |number: &str| format!("{number} is no number");
    if let Some(digits) = text.strip_prefix("0x") {
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let number = i64::from_str_radix(&digits[..end], 16).map_err(|_| wrong(&digits[..end]))?;
        return Ok((number.into(), &digits[end..]));
    }
    let mut end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = |from: &str| from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
    let mut is_double = false;
    if text[end..].starts_with('.') && text[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        is_double = true;
        end += 1 + digits(&text[end + 1..]);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let exponent = digits(&text[end + 1 + sign..]);
        if exponent > 0 {
            is_double = true;
            end += 1 + sign + exponent;
        }
    }
    let (number, rest) = text.split_at(end);
    if is_double {
        let number: f64 = number.parse().map_err(|_| wrong(number))?;
        return Ok((number.into(), rest));
    }
    let rest = rest.strip_prefix(['u', 'U']).unwrap_or(rest);
    // The smallest whole number has no positive counterpart, and is not supported.
    let number: i64 = number.parse().map_err(|_| wrong(number))?;
    Ok((number.into(), rest))
}

/// A text in any of the four kinds of quotes, and what follows it.
fn string(text: &str, is_raw: bool) -> Result<(String, &str), String> {
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| text.starts_with(quote)).unwrap_or("\"");
    let mut rest = &text[quote.len()..];
    let mut found = String::new();
    loop {
        if let Some(after) = rest.strip_prefix(quote) {
            return Ok((found, after));
        }
        let mut characters = rest.chars();
        match characters.next() {
            None => return Err("a text has no end".to_owned()),
            Some('\n' | '\r') if quote.len() == 1 => return Err("a text has no end".to_owned()),
            Some('\\') if !is_raw => {
                let (character, after) = escape(characters.as_str())?;
                found.push(character);
                rest = after;
            }
            Some(character) => {
                found.push(character);
                rest = characters.as_str();
            }
        }
    }
}

/// The character that an escape sequence stands for, and what follows it.
fn escape(text: &str) -> Result<(char, &str), String> {
    let mut characters = text.chars();
    let first = characters.next().ok_or("a text has no end")?;
    let plain = match first {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '\\' | '"' | '\'' | '`' | '?' => first,
        'x' | 'X' | 'u' | 'U' | '0'..='3' => {
            let (skipped, length, radix) = match first {
                'x' | 'X' => (1, 2, 16),
                'u' => (1, 4, 16),
                'U' => (1, 8, 16),
                _ => (0, 3, 8),
            };
            let digits = text.get(skipped..skipped + length).ok_or("an escape sequence has no end")?;
            let code = u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
            let character = code.ok_or_else(|| format!("\\{first}{digits} is no character"))?;
            return Ok((character, &text[skipped + length..]));
        }
        _ => return Err(format!("unknown escape sequence \\{first}")),
    };
    Ok((plain, characters.as_str()))
}
