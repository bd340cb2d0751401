//! Base64 as Go's `encoding/base64` reads it: line breaks are skipped, and errors name the offending byte.

use base64::Engine as _;

/// The bytes a text stands for, or Go's complaint.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    decode_bytes(text.as_bytes()).map_err(|at| format!("illegal base64 data at input byte {at}"))
}

/// The canonical text of some bytes.
pub fn encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Decodes in groups of four; the error is the offset Go reports.
fn decode_bytes(source: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(source.len() / 4 * 3);
    let mut at = 0;
    loop {
        let mut group = [0u8; 4];
        let mut filled = 0;
        while filled < 4 {
            let Some(&byte) = source.get(at) else {
                return if filled == 0 { Ok(out) } else { Err(at - filled) };
            };
            at += 1;
            match byte {
                b'\n' | b'\r' => {}
                b'=' => return finish(source, at, &group[..filled], out),
                _ => {
                    group[filled] = sextet(byte).ok_or(at - 1)?;
                    filled += 1;
                }
            }
        }
        out.extend_from_slice(&[
            group[0] << 2 | group[1] >> 4,
            group[1] << 4 | group[2] >> 2,
            group[2] << 6 | group[3],
        ]);
    }
}

/// Handles the padding, whose first `=` lies before `at`.
fn finish(source: &[u8], mut at: usize, group: &[u8], mut out: Vec<u8>) -> Result<Vec<u8>, usize> {
    let skip_breaks = |at: &mut usize| {
        while let Some(b'\n' | b'\r') = source.get(*at) {
            *at += 1;
        }
    };
    match *group {
        [a, b] => {
            skip_breaks(&mut at);
            match source.get(at) {
                None => return Err(source.len()),
                Some(b'=') => at += 1,
                Some(_) => return Err(at - 1),
            }
            out.push(a << 2 | b >> 4);
        }
        [a, b, c] => out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2]),
        _ => return Err(at - 1),
    }
    skip_breaks(&mut at);
    if at < source.len() { Err(at) } else { Ok(out) }
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_name_the_byte() {
        for (text, at) in
            [("***", 0), ("YQ", 0), ("YWJjYQ", 4), ("YQ=", 3), ("YQ=x", 2), ("YWI=x", 4), ("Y===", 1), ("YW\nJ", 1)]
        {
            assert_eq!(decode(text), Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
        assert_eq!(decode("YW\nJj\r\n").as_deref(), Ok(&b"abc"[..]));
        assert_eq!(decode("").as_deref(), Ok(&b""[..]));
    }

    proptest! {
        #[test]
        fn bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "[A-Za-z=\n+/é]{0,20}") {
            let _ = decode(&text);
        }
    }
}
