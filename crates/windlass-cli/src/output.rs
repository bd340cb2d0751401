//! What people and programs read: plain lines on a terminal, JSON for programs.

use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::args::ListFormat;
use crate::paint::{Ink, Paint};

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
        // The reader has read enough; what is being done goes on.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !LOST.swap(true, Ordering::Relaxed) {
                note(format_args!("error: cannot write to standard output: {error}"));
            }
        }
    }
}

/// Whether all that was said reached standard output, or its reader went away.
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
    let label = Paint::on(&std::io::stderr()).ink(Ink::Red, "error:");
    note(format_args!("{label} {}", with_causes(error)));
}

/// A line beside the result. Where it cannot be written, that cannot be reported either.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// An error and its causes, without those that an error above them has quoted.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain() {
        let boxed = || cause.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
        let text = match cause.downcast_ref::<kube::Error>().or_else(boxed) {
            // Its own text has the whole answer in Rust's notation.
            Some(kube::Error::Api(status)) => answer(status),
            // What follows is what they are about.
            Some(kube::Error::Service(_) | kube::Error::HyperError(_)) => continue,
            _ => cause.to_string(),
        };
        if said.is_empty() {
            said = text;
        } else if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        if matches!(cause.downcast_ref().or_else(boxed), Some(kube::Error::Api(_))) {
            break;
        }
    }
    said
}

/// What an API server answered, in its words.
pub(crate) fn answer(status: &kube::core::Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the server answers with HTTP status {}", status.code),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = anyhow::anyhow!("disk full").context("cannot write x: disk full").context("cannot start");
        assert_eq!(with_causes(&error), "cannot start: cannot write x: disk full");
    }

    #[test]
    fn answers_of_a_server_are_in_its_words() {
        let check = |error: kube::Error, expected: &str| {
            assert_eq!(with_causes(&anyhow::Error::new(error).context("cannot read pets")), expected);
        };
        let api = |message: &str, reason: &str| {
            let (message, reason) = (message.to_owned(), reason.to_owned());
            kube::Error::Api(Box::new(kube::core::Status {
                message,
                reason,
                code: 403,
                ..kube::core::Status::default()
            }))
        };
        check(api("you may not", "Forbidden"), "cannot read pets: you may not");
        check(api("", "Forbidden"), "cannot read pets: Forbidden");
        check(api("", ""), "cannot read pets: the server answers with HTTP status 403");
        check(kube::Error::Service("connection refused".into()), "cannot read pets: connection refused");
        let error = anyhow::Error::new(Box::new(api("you may not", "Forbidden")));
        assert_eq!(with_causes(&error), "you may not");
    }
}
