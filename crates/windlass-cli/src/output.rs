//! What people and programs read: plain lines on a terminal, JSON for programs.
#![allow(clippy::print_stderr)]

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use serde_json::Value;

/// A line for people.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => {}
        // Whoever read this has read enough; what is being done goes on.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => eprintln!("error: cannot write to standard output: {error}"),
    }
}

/// A document for programs.
pub(crate) fn json(value: &Value) {
    line(format_args!("{value:#}"));
}

/// What went wrong, with its causes, and on a terminal in colour.
pub(crate) fn error(error: &anyhow::Error) {
    let (on, off) = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{on}error:{off} {error:#}");
}
