//! The text of an expression, and complaints about it with the place they are about.

use std::fmt::Write as _;

/// cel-go reports at most this many problems of one expression.
const MAX_REPORTED: usize = 100;
/// Lines longer than this are not shown.
const MAX_SNIPPET: usize = 16_384;

/// A complaint at a place, counted in characters from the start. `None` is no place at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issue {
    pub(super) offset: Option<usize>,
    pub(super) message: String,
}

/// Everything that is wrong with an expression.
#[derive(Clone, Debug, Default)]
pub(super) struct Issues(Vec<Issue>);

impl Issues {
    pub(super) fn push(&mut self, offset: Option<usize>, message: impl Into<String>) {
        self.0.push(Issue { offset, message: message.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All complaints as cel-go prints them: in the order of the text, each with its line below it.
    pub(super) fn display(&self, text: &str) -> String {
        let lines: Vec<&str> = text.split('\n').collect();
        let mut placed: Vec<(i64, i64, &str)> = self
            .0
            .iter()
            .take(MAX_REPORTED)
            .map(|issue| {
                let (line, column) = issue.offset.map_or((-1, -1), |offset| line_and_column(&lines, offset));
                (line, column, issue.message.as_str())
            })
            .collect();
        placed.sort_by_key(|(line, column, _)| (*line, *column));
        let mut shown: Vec<String> =
            placed.into_iter().map(|(line, column, message)| display(&lines, line, column, message)).collect();
        if self.0.len() > MAX_REPORTED {
            shown.push(format!("{} more errors were truncated", self.0.len() - MAX_REPORTED));
        }
        shown.join("\n")
    }
}

fn line_and_column(lines: &[&str], offset: usize) -> (i64, i64) {
    let mut start = 0;
    for (index, line) in lines.iter().enumerate() {
        let length = line.chars().count() + 1;
        if offset < start + length || index + 1 == lines.len() {
            return (index as i64 + 1, (offset - start) as i64);
        }
        start += length;
    }
    (1, offset as i64)
}

fn display(lines: &[&str], line: i64, column: i64, message: &str) -> String {
    let mut out = format!("ERROR: <input>:{line}:{}: {message}", column + 1);
    let Some(snippet) = usize::try_from(line - 1).ok().and_then(|line| lines.get(line)) else { return out };
    if snippet.len() > MAX_SNIPPET {
        return out;
    }
    let snippet = snippet.replace('\t', " ");
    let _ = write!(out, "\n | {snippet}\n | ");
    let mut chars = snippet.chars();
    for c in chars.by_ref().take(column as usize) {
        out.push(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
    }
    out.push(if chars.next().is_some_and(|c| c.len_utf8() > 1) { '\u{ff3e}' } else { '^' });
    out
}
