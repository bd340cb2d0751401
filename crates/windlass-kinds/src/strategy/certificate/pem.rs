//! PEM blocks, found as Go's `encoding/pem` finds them: text around a block is passed over, and so is a block that
//! cannot be read, so that what follows it is still looked at.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";
/// Go does not mind what the bits after the last byte are.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// One block.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    /// What the block says that it is, e.g. `CERTIFICATE`.
    pub(super) label: String,
    /// Whether there are headers before the contents.
    pub(super) has_headers: bool,
    /// What the block holds.
    pub(super) contents: Vec<u8>,
}

/// The blocks of `data` that can be read, in order.
pub(super) fn blocks(data: &[u8]) -> impl Iterator<Item = Block> {
    let mut rest = data;
    std::iter::from_fn(move || {
        loop {
            let end = find(rest, END)?;
            let block = block(rest, end);
            rest = line(&rest[end + END.len()..], block.is_some());
            if block.is_some() {
                return block;
            }
        }
    })
}

/// What follows the line, or all of the text if the line is not to be passed over.
fn line(text: &[u8], pass: bool) -> &[u8] {
    if pass { next_line(text).1 } else { text }
}

/// The block that ends at `end`, if it is one.
fn block(text: &[u8], end: usize) -> Option<Block> {
    let begin = text[..end].windows(BEGIN.len()).rposition(|window| window == BEGIN)?;
    if begin > 0 && text[begin - 1] != b'\n' {
        return None;
    }
    let mut start = begin + BEGIN.len();
    let (first, rest) = next_line(&text[start..]);
    let label = first.strip_suffix(DASHES)?;
    start = text.len() - rest.len();
    let mut has_headers = false;
    while start <= end {
        let (header, rest) = next_line(&text[start..]);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        start = text.len() - rest.len();
    }
    // Only a block without headers may end with the line that begins it.
    if has_headers && start > end {
        return None;
    }
    let last = text[end + END.len()..].strip_prefix(label)?.strip_prefix(DASHES)?;
    if !next_line(last).0.is_empty() {
        return None;
    }
    let base64: Vec<u8> =
        text.get(start..end).unwrap_or_default().iter().copied().filter(|byte| !b" \t\r\n".contains(byte)).collect();
    let contents = BASE64.decode(base64).ok()?;
    Some(Block { label: String::from_utf8_lossy(label).into_owned(), has_headers, contents })
}

/// The first line, without the blanks at its end, and what follows it.
fn next_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &text[text.len()..]),
    };
    (line.trim_ascii_end(), rest)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, bool, &[u8])]) {
        let expected: Vec<Block> = expected
            .iter()
            .map(|(label, has_headers, contents)| Block {
                label: (*label).to_owned(),
                has_headers: *has_headers,
                contents: contents.to_vec(),
            })
            .collect();
        assert_eq!(blocks(text.as_bytes()).collect::<Vec<_>>(), expected, "{text}");
    }

    #[test]
    fn blocks_are_found_in_other_text() {
        check("", &[]);
        check("abc", &[]);
        check("-----BEGIN A-----\nAAEC\n-----END A-----", &[("A", false, &[0, 1, 2])]);
        check("x\n-----BEGIN A-----  \r\nA A\tE\r\nC\r\n-----END A-----\t\nx", &[("A", false, &[0, 1, 2])]);
        check(
            "-----BEGIN A-----\nAAEC\n-----END A-----\nx\n-----BEGIN B C-----\nAw==\n-----END B C-----\n",
            &[("A", false, &[0, 1, 2]), ("B C", false, &[3])],
        );
        check("-----BEGIN A-----\n-----END A-----\n", &[("A", false, &[])]);
        check("-----BEGIN A-----\nkey: value\n\nAAEC\n-----END A-----\n", &[("A", true, &[0, 1, 2])]);
    }

    #[test]
    fn what_is_no_block_is_passed_over() {
        let good = "-----BEGIN B-----\nAw==\n-----END B-----\n";
        for bad in [
            "-----BEGIN A-----\n%\n-----END A-----\n",
            "-----BEGIN A-----\nAAEC\n-----END C-----\n",
            "-----BEGIN A-----\nAAEC\n-----END A----- x\n",
            "x-----BEGIN A-----\nAAEC\n-----END A-----\n",
            "-----BEGIN A\nAAEC\n-----END A-----\n",
            "-----BEGIN A-----\nkey: value\n-----END A-----:\n",
            "-----BEGIN A-----\nAAEC\n",
            "\n-----END A-----\n",
        ] {
            check(&format!("{bad}{good}"), &[("B", false, &[3])]);
        }
    }
}
