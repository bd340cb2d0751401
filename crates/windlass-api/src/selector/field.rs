//! Field selectors: `metadata.name=a,status.phase!=Running`.

/// A parsed field selector; empty selects everything.
#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// One `field=value` or `field!=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field's path.
    pub field: String,
    /// The value, unescaped.
    pub value: String,
    /// Whether the field must have the value or must not.
    pub equal: bool,
}

impl FieldSelector {
    /// Parses a selector; the error is what a client reads.
    pub fn parse(text: &str) -> Result<Self, String> {
        let terms: Result<Vec<Term>, String> =
            split_terms(text).into_iter().filter(|part| !part.is_empty()).map(|part| parse_term(text, part)).collect();
        Ok(Self { terms: terms? })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value that `field` must equal, if the selector says so.
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether an object, whose fields are looked up through `get`, is selected.
    pub fn matches(&self, get: impl Fn(&str) -> String) -> bool {
        self.terms.iter().all(|term| (get(&term.field) == term.value) == term.equal)
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'\\' if !escaped => escaped = true,
            b',' if !escaped => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => escaped = false,
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_term(whole: &str, part: &str) -> Result<Term, String> {
    let (field, value, equal) = ["!=", "==", "="]
        .iter()
        .filter_map(|operator| part.find(operator).map(|at| (at, *operator)))
        // The leftmost operator counts; of two at one place the longer one.
        .min_by_key(|(at, operator)| (*at, 2 - operator.len()))
        .map(|(at, operator)| (&part[..at], &part[at + operator.len()..], operator != "!="))
        .ok_or_else(|| format!("invalid selector: '{whole}'; can't understand '{part}'"))?;
    Ok(Term { field: field.to_owned(), value: unescape(value)?, equal })
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(format!("invalid field selector: invalid escape sequence: \\{other}")),
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {c}")),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_parse_and_match() {
        let selector = FieldSelector::parse("metadata.name=a,status.phase!=Running,spec.nodeName=").expect("parses");
        assert_eq!(selector.requires("metadata.name"), Some("a"));
        let get = |field: &str| if field == "metadata.name" { "a".to_owned() } else { String::new() };
        assert!(selector.matches(get));
        assert!(!selector.matches(|_| "Running".to_owned()));
    }

    #[test]
    fn errors_read_as_upstream() {
        let check = |text: &str, expect: &str| assert_eq!(FieldSelector::parse(text).expect_err("fails"), expect);
        check("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
        check(
            "metadata.name in (a)",
            "invalid selector: 'metadata.name in (a)'; can't understand 'metadata.name in (a)'",
        );
    }
}
