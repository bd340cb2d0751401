//! Names and namespaces as segments of a URL's path.
//!
//! Nothing that is given as a name leads to another object, resource or query: what no name may be is
//! refused, and what a URL cannot hold as it is, is escaped.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is escaped: all but what RFC 3986 calls unreserved, and `:`, which is common in names of roles.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Why this is not the name of any object, whatever its kind: those of some have no other rules than these
/// (`IsValidPathSegmentName` in apimachinery's validation/path/name.go).
pub(super) fn refusal(name: &str) -> Option<&'static str> {
    match name {
        "." => Some("may not be '.'"),
        ".." => Some("may not be '..'"),
        _ if name.contains('/') => Some("may not contain '/'"),
        _ if name.contains('%') => Some("may not contain '%'"),
        _ => None,
    }
}

/// A name as it stands in a path.
pub(super) fn escaped(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, ESCAPED).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_elsewhere_is_refused() {
        for name in [".", "..", "a/b", "/", "a%2Fb", "%"] {
            assert!(refusal(name).is_some(), "{name}");
        }
        for name in ["a", "...", "a.b", "system:a", "a?b", "a b", ""] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }

    #[test]
    fn names_as_most_are_stay_as_they_are() {
        let check = |name: &str, expected: &str| assert_eq!(escaped(name), expected);
        check("web-0.example_com~1", "web-0.example_com~1");
        check("system:node", "system:node");
        check("a?b#c d&e", "a%3Fb%23c%20d%26e");
        check("gr\u{fc}n", "gr%C3%BCn");
    }
}
