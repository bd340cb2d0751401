//! What people and programs read: plain lines on a terminal, JSON for programs.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::args::ListFormat;

/// Whether something could not be written to standard output.
static LOST: AtomicBool = AtomicBool::new(false);

/// What is wrong with the command line, where its parser cannot see it.
#[derive(Debug)]
pub(crate) struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A line for people.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => {}
        // Whoever read this has read enough; what is being done goes on.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !LOST.swap(true, Ordering::Relaxed) {
                note(format_args!("error: cannot write to standard output: {error}"));
            }
        }
    }
}

/// Whether all that was said reached standard output, or nobody wanted to read it.
pub(crate) fn complete() -> bool {
    !LOST.load(Ordering::Relaxed)
}

/// A document for programs.
pub(crate) fn json(value: &Value) {
    line(format_args!("{value:#}"));
}

/// The same document as YAML.
pub(crate) fn yaml(value: &Value) {
    let text = serde_saphyr::to_string(value).expect("invariant: keys of JSON are text");
    line(text.trim_end());
}

/// The document in the format that was asked for; nothing, and `false`, if that is the one for people.
pub(crate) fn document(format: ListFormat, value: impl FnOnce() -> Value) -> bool {
    match format {
        ListFormat::Table => return false,
        ListFormat::Json => json(&value()),
        ListFormat::Yaml => yaml(&value()),
    }
    true
}

/// What went wrong, with its causes, and on a terminal in colour.
pub(crate) fn error(error: &anyhow::Error) {
    let (on, off) = if std::io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    note(format_args!("{on}error:{off} {}", with_causes(error)));
}

/// A line beside the result. Where it cannot be written, there is nobody to tell.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error and its causes, without those that an error above them has quoted.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        said if said.contains(&cause) => said.to_owned(),
        said => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write x: disk full").context("cannot start");
        assert_eq!(with_causes(&error), "cannot start: cannot write x: disk full");
    }
}
