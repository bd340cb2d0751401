//! Makes of events what the API accepts, whatever their names and reporters.
//!
//! The rules are those of `pkg/apis/core/validation/events.go`. Without this, a controller whose name
//! has a space in it would lose every event.

use std::borrow::Cow;

use super::NewEvent;
pub(super) use crate::names::is_subdomain;
use crate::names::{NAME, is_qualified};

/// Bytes of a note.
const NOTE: usize = 1024;
/// Bytes of a reason, and of an action.
const WORD: usize = 128;
/// The reporter and the reason, if none is given.
const NOBODY: &str = "windlass";
const NOTHING: &str = "Unknown";

/// Fills in what must be there and cuts off what is too long.
pub(super) fn complete(event: &mut NewEvent) {
    if event.reason.is_empty() {
        event.reason = if event.action.is_empty() { NOTHING.to_owned() } else { event.action.clone() };
    }
    if event.action.is_empty() {
        event.action.clone_from(&event.reason);
    }
    truncate(&mut event.reason, WORD);
    truncate(&mut event.action, WORD);
    note(&mut event.note);
}

/// Cuts off what is too long of a note.
pub(super) fn note(note: &mut String) {
    truncate(note, NOTE);
}

/// The name of a reporter: a qualified name, as like its own as can be.
pub(super) fn reporter(name: &str) -> Cow<'_, str> {
    if is_qualified(name) {
        return name.into();
    }
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let plain: String = name.chars().map(|letter| if allowed(letter) { letter } else { '-' }).collect();
    let edge = |letter: char| !letter.is_ascii_alphanumeric();
    let plain = plain.trim_start_matches(edge);
    let plain = plain[..plain.len().min(NAME)].trim_end_matches(edge);
    if plain.is_empty() { NOBODY.into() } else { plain.to_owned().into() }
}

/// Who reports, and where: at most 128 bytes, and never none.
pub(super) fn instance(reporter: &str, host: &str) -> String {
    let mut text = if host.is_empty() { reporter.to_owned() } else { format!("{reporter}-{host}") };
    truncate(&mut text, WORD);
    text
}

fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporters_have_qualified_names() {
        let long = "n".repeat(64);
        for (name, expected) in [
            ("petstore", "petstore"),
            ("Pet_store.v1-a", "Pet_store.v1-a"),
            ("example.com/petstore", "example.com/petstore"),
            ("pet store", "pet-store"),
            ("a/b/c", "a-b-c"),
            ("Example.com/x", "Example.com-x"),
            ("/x/", "x"),
            ("(größe)", "gr--e"),
            ("", "windlass"),
            ("é", "windlass"),
            (&long, &long[..63]),
        ] {
            assert_eq!(reporter(name), expected, "{name}");
            assert!(is_qualified(&reporter(name)), "{name}");
        }
        // Cutting must leave no dash at the end.
        assert_eq!(reporter(&format!("{}-b", "a".repeat(62))), "a".repeat(62));
        assert_eq!(instance("a", ""), "a");
        assert_eq!(instance("a", "host"), "a-host");
        assert_eq!(instance("a", &"h".repeat(200)).len(), 128);
    }

    #[test]
    fn words_are_there_and_short_enough() {
        let event = |reason: &str, action: &str| {
            let mut event = NewEvent::normal(reason, "ü".repeat(600)).action(action);
            complete(&mut event);
            assert_eq!(event.note.len(), 1024);
            (event.reason, event.action)
        };
        let words = |reason: &str, action: &str| (reason.to_owned(), action.to_owned());
        assert_eq!(event("Fed", ""), words("Fed", "Fed"));
        assert_eq!(event("", "Feeding"), words("Feeding", "Feeding"));
        assert_eq!(event("", ""), words("Unknown", "Unknown"));
        assert_eq!(event(&"r".repeat(129), "a"), (("r".repeat(128)), "a".to_owned()));
    }
}
