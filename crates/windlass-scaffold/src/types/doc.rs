//! Descriptions as documentation comments.
//!
//! A description is text that was written for `kubectl explain`. Rustdoc reads it as CommonMark: what would be an
//! HTML tag, a link to an item, a bare address or a test is written so that it is none.

/// The lines of a documentation comment, without the slashes. None for an empty description.
pub(super) fn lines(description: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in description.trim().lines() {
        let line = line.trim_end();
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                // The text between fences is seldom Rust, and never a test.
                lines.push(format!("{mark}text"));
            }
            (Some(open), Some(mark)) if open == mark => {
                fence = None;
                lines.push(open.to_owned());
            }
            (Some(_), _) => lines.push(visible(line)),
            (None, None) => lines.extend(wrapped(&escaped(start), width)),
        }
    }
    lines.extend(fence.map(str::to_owned));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// The first paragraph, for types that a field describes at length.
pub(super) fn summary(description: &str, width: usize) -> Vec<String> {
    let paragraph = description.trim().split("\n\n").next().unwrap_or_default();
    let paragraph = paragraph.split("```").next().unwrap_or_default();
    let end = paragraph.match_indices(". ").next().map_or(paragraph.len(), |(at, _)| at + 1);
    lines(&paragraph[..end], width)
}

/// Without characters that the compiler or an editor would stumble over.
fn visible(line: &str) -> String {
    let seen = |c: &char| {
        !(c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}'))
    };
    line.replace('\t', "    ").chars().filter(seen).collect()
}

/// A line of prose with nothing in it that rustdoc warns about.
fn escaped(line: &str) -> String {
    let line = visible(line);
    let line = line.trim_start();
    let mut text = String::with_capacity(line.len() + 8);
    let mut rest = line;
    // A heading would make the page's outline, and a block of quotation or a rule comes by accident.
    if rest.starts_with(['#', '>', '|', '=']) {
        text.push('\\');
        text.extend(rest.chars().next());
        rest = &rest[1..];
    }
    while let Some(c) = rest.chars().next() {
        if c == '`' {
            let span = code_span(rest);
            if let Some(span) = span {
                text.push_str(span);
                rest = &rest[span.len()..];
            } else {
                text.push_str("\\`");
                rest = &rest[1..];
            }
            continue;
        }
        if let Some(link) = link(rest) {
            text.push_str(link);
            rest = &rest[link.len()..];
            continue;
        }
        if let Some(address) = address(rest) {
            text.push('<');
            text.push_str(address);
            text.push('>');
            rest = &rest[address.len()..];
            continue;
        }
        if matches!(c, '[' | ']' | '<' | '>' | '\\') {
            text.push('\\');
        }
        text.push(c);
        rest = &rest[c.len_utf8()..];
    }
    text
}

/// The code between backticks that begins here.
fn code_span(text: &str) -> Option<&str> {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let mark = &text[..ticks];
    let inner = &text[ticks..];
    let mut from = 0;
    while let Some(at) = inner[from..].find(mark) {
        let end = from + at;
        let run = inner[end..].len() - inner[end..].trim_start_matches('`').len();
        if run == ticks && end > 0 {
            return Some(&text[..ticks + end + ticks]);
        }
        from = end + run;
    }
    None
}

/// The link `[text](address)` that begins here.
fn link(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('[')?;
    let close = inner.find(']')?;
    let label = &inner[..close];
    if label.is_empty() || label.contains(['[', '<', '>', '`', '\\']) {
        return None;
    }
    let target = inner[close + 1..].strip_prefix('(')?;
    let end = target.find(')')?;
    let target = &target[..end];
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '(' | '\\' | '`');
    let web = target.starts_with("https://") || target.starts_with("http://");
    (web && target.chars().all(plain)).then(|| &text[..close + end + 4])
}

/// The bare address that begins here.
fn address(text: &str) -> Option<&str> {
    if !(text.starts_with("https://") || text.starts_with("http://")) {
        return None;
    }
    let end =
        text.find(|c: char| !c.is_ascii_graphic() || matches!(c, '<' | '>' | '`' | '"' | '\\' | '[' | ']' | '{' | '}'));
    let address =
        text[..end.unwrap_or(text.len())].trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', ')', '*', '_']);
    (address.len() > "https://".len()).then_some(address)
}

/// A line broken at spaces. What follows a break never begins a list, a heading or anything else.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    let mut length = 0;
    for word in line.split(' ') {
        let count = word.chars().count();
        let begins = word.starts_with(['-', '+', '*', '#', '>', '|', '=', '~', '`', '<']) || word.ends_with(['.', ')']);
        if length > 0 && length + 1 + count > width && !word.is_empty() && !begins && open_ticks(&current) {
            lines.push(std::mem::take(&mut current).trim_end().to_owned());
            length = 0;
        }
        if length > 0 {
            current.push(' ');
            length += 1;
        }
        current.push_str(word);
        length += count;
    }
    lines.push(current.trim_end().to_owned());
    lines
}

/// Whether no code span is open at the end: one that is broken over lines is hard to read.
fn open_ticks(text: &str) -> bool {
    text.matches('`').count().saturating_sub(text.matches("\\`").count()).is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(description: &str, expected: &[&str]) {
        assert_eq!(lines(description, 60), expected);
    }

    #[test]
    fn nothing_is_taken_for_markup() {
        check("Vec<String> or [foo]", &[r"Vec\<String\> or \[foo\]"]);
        check("see https://example.com/a_b. Then", &["see <https://example.com/a_b>. Then"]);
        check("(http://example.com)", &["(<http://example.com>)"]);
        check("[docs](https://example.com/x) here", &["[docs](https://example.com/x) here"]);
        check("use `Vec<u8>` and `open", &[r"use `Vec<u8>` and \`open"]);
        check("# Heading", &[r"\# Heading"]);
        check("a\\b", &[r"a\\b"]);
        check("https://", &["https://"]);
    }

    #[test]
    fn code_is_never_a_test() {
        check("```yaml\na: <b>\n  c: d\n```\nend", &["```text", "a: <b>", "  c: d", "```", "end"]);
        check("```\nopen", &["```text", "open", "```"]);
        check("text:\n\n    indented code", &["text:", "", "indented code"]);
    }

    #[test]
    fn long_lines_are_broken_at_words() {
        let line = "word ".repeat(30);
        let broken = lines(&line, 60);
        assert!(broken.len() == 3 && broken.iter().all(|line| line.chars().count() <= 60), "{broken:?}");
        let listed = format!("{} - not a list 1. nor this", "x".repeat(55));
        assert!(lines(&listed, 60).iter().skip(1).all(|line| !line.starts_with(['-', '1'])), "{listed}");
    }

    #[test]
    fn nothing_is_said_about_nothing() {
        check("  \n ", &[]);
        assert_eq!(summary("One. Two.\n\nThree", 60), ["One."]);
    }
}
