//! What the escape sequences of a string or bytes literal mean.

const BAD: &str = "unable to unescape string";

/// The value of a literal, quotes included in `text`.
pub(super) fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let raw = text.starts_with(['r', 'R']);
    let quoted = if raw { &text[1..] } else { text.as_str() };
    let triple = quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\""));
    let width = if triple { 3 } else { 1 };
    let inner = quoted.get(width..quoted.len().saturating_sub(width)).ok_or(BAD)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            escape(&mut rest, bytes, &mut out)?;
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}

fn escape(rest: &mut std::str::Chars<'_>, bytes: bool, out: &mut Vec<u8>) -> Result<(), String> {
    let c = rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
    let simple = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => c as u8,
        'x' | 'X' => return number(rest, 2, 16, bytes, out),
        'u' if !bytes => return number(rest, 4, 16, false, out),
        'U' if !bytes => return number(rest, 8, 16, false, out),
        '0'..='3' => {
            let mut value = c as u32 - '0' as u32;
            for _ in 0..2 {
                let digit = rest.next().and_then(|c| c.to_digit(8));
                value = value * 8 + digit.ok_or("unable to unescape octal sequence in string")?;
            }
            return push(value, bytes, out);
        }
        _ => return Err(BAD.to_owned()),
    };
    out.push(simple);
    Ok(())
}

fn number(
    rest: &mut std::str::Chars<'_>,
    digits: usize,
    radix: u32,
    byte: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut value = 0u32;
    for _ in 0..digits {
        let digit = rest.next().and_then(|c| c.to_digit(radix)).ok_or(BAD)?;
        value = value.wrapping_mul(radix).wrapping_add(digit);
    }
    push(value, byte, out)
}

fn push(value: u32, byte: bool, out: &mut Vec<u8>) -> Result<(), String> {
    if byte {
        out.push(value as u8);
        return Ok(());
    }
    let c = char::from_u32(value).ok_or("invalid unicode code point")?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}
