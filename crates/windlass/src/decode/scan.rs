//! The lexical rules of JSON text, for those who look for positions in it without decoding it: where white space, strings
//! and values end. Nothing here checks that the text is JSON; what is not gives `None` or some position, never a panic.

use memchr::memchr2;

/// The first position from `at` on that is no white space.
pub(crate) fn skip_space(json: &[u8], mut at: usize) -> usize {
    while json.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// The end of the string that starts at `at`.
pub(crate) fn skip_string(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The end of the value that starts at `at`.
pub(crate) fn skip_value(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match json.get(at)? {
            b'"' => at = skip_string(json, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth > 0 => {
                at += 1;
                continue;
            }
            b',' | b':' => return None,
            // A number or a word.
            _ => {
                while json.get(at).is_some_and(|byte| !b",:]} \n\r\t\"".contains(byte)) {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}
