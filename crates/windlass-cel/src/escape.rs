//! How field names that are no identifiers are written in expressions: `a-b` as `a__dash__b`.

use super::parser::is_reserved;

/// The identifier a field is written as, or `None` if it cannot be written at all.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// The field an identifier stands for, or `None` if its escapes mean nothing.
pub(super) fn unescape(ident: &str) -> Option<std::borrow::Cow<'_, str>> {
    if !ident.contains("__") {
        return Some(ident.into());
    }
    let mut out = String::with_capacity(ident.len());
    let mut rest = ident;
    while let Some(start) = rest.find("__") {
        // An escape is two underscores, something without any, and two more.
        let inner = &rest[start + 2..];
        let length = inner.find('_').unwrap_or(inner.len());
        if length == 0 || !inner[length..].starts_with("__") {
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        }
        out.push_str(&rest[..start]);
        match &inner[..length] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if is_reserved(word) && length + 4 == ident.len() => out.push_str(word),
            _ => return None,
        }
        rest = &inner[length + 2..];
    }
    out.push_str(rest);
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_come_back() {
        for (name, escaped) in [
            ("foo", "foo"),
            ("my_field", "my_field"),
            ("a.b", "a__dot__b"),
            ("a-b", "a__dash__b"),
            ("a/b", "a__slash__b"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("in", "__in__"),
            ("a___b", "a__underscores___b"),
            ("int", "int"),
            ("_a", "_a"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
        }
        for name in ["", "0a", "a$b", "é"] {
            assert_eq!(escape(name), None);
        }
        assert_eq!(unescape("__nope__"), None);
        assert_eq!(unescape("__true____false__"), None);
    }
}
