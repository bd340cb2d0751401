//! What people and programs read: plain lines on a terminal, JSON for programs.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::IsTerminal as _;

use serde_json::Value;

/// A line for people.
pub(crate) fn line(text: impl std::fmt::Display) {
    println!("{text}");
}

/// A document for programs.
pub(crate) fn json(value: &Value) {
    println!("{value:#}");
}

/// What went wrong, with its causes, and on a terminal in colour.
pub(crate) fn error(error: &anyhow::Error) {
    let (on, off) = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{on}error:{off} {error:#}");
}
