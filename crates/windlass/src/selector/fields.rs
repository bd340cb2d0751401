//! Field selectors: `metadata.name=a,status.phase!=Running`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::scalar::{self, Scalar};

/// A parsed field selector; without terms it selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    /// The names that lead to the field.
    path: Vec<String>,
    value: String,
    /// Whether the field must have the value, or must not.
    equal: bool,
}

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let terms = split(text).into_iter().filter(|term| !term.is_empty()).map(Term::parse);
        let terms: Result<_, String> = terms.collect();
        terms.map(|terms| Self { terms }).map_err(|reason| format!("field selector {text:?}: {reason}"))
    }

    /// Whether an object is selected. A field that is missing has the empty value, as on the server; one with more than
    /// a single value cannot be selected by.
    pub(crate) fn matches(&self, meta: &ObjectMeta, object: &impl Serialize) -> Result<bool, String> {
        for term in &self.terms {
            let text = |field: &Option<String>| field.as_deref().unwrap_or_default() == term.value;
            let equal = match term.names()[..] {
                ["metadata", "name"] => text(&meta.name),
                ["metadata", "namespace"] => text(&meta.namespace),
                ref path => match scalar::read(object, path) {
                    Scalar::Value(value) => value == term.value,
                    Scalar::Absent => term.value.is_empty(),
                    Scalar::Compound => {
                        return Err(format!("field selector: {} is not a single value", term.path.join(".")));
                    }
                },
            };
            if equal != term.equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Term {
    fn names(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let operators = ["!=", "==", "="].into_iter();
        let (field, value, equal) = operators
            .filter_map(|operator| text.find(operator).map(|at| (at, operator)))
            // The leftmost operator counts; of two at one place the longer one.
            .min_by_key(|(at, operator)| (*at, 2 - operator.len()))
            .map(|(at, operator)| (&text[..at], &text[at + operator.len()..], operator != "!="))
            .ok_or_else(|| format!("{text:?} has no operator (=, ==, !=)"))?;
        let path: Vec<String> = field.split('.').map(str::to_owned).collect();
        if path.iter().any(|name| name.is_empty() || name.contains(char::is_whitespace)) {
            return Err(format!("{field:?} is not the path of a field"));
        }
        Ok(Self { path, value: unescaped(value)?, equal })
    }
}

/// The parts between commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'\\' if !escaped => escaped = true,
            b',' if !escaped => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => escaped = false,
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescaped(text: &str) -> Result<String, String> {
    let (mut value, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                _ => return Err(format!("{text:?} has a backslash that escapes nothing")),
            },
            '=' => return Err(format!("{text:?} has an equals sign that is not escaped by a backslash")),
            letter => value.push(letter),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_select_by_any_single_value() {
        let object = json!({
            "metadata": {"name": "web-0", "namespace": "shop"},
            "spec": {"nodeName": "n1", "replicas": 3, "paused": false, "none": null, "text": "a,b=c\\d"},
        });
        let meta: ObjectMeta = serde_json::from_value(object["metadata"].clone()).expect("metadata");
        for (text, selected) in [
            ("", true),
            ("metadata.name=web-0", true),
            ("metadata.name==web-0,metadata.namespace=shop", true),
            ("metadata.name!=web-0", false),
            ("metadata.namespace!=shop", false),
            ("spec.nodeName=n1,", true),
            ("spec.nodeName!=n1", false),
            ("spec.replicas=3", true),
            ("spec.replicas=4", false),
            ("spec.paused=false", true),
            ("spec.none=", true),
            ("spec.missing=", true),
            ("spec.missing!=x", true),
            ("spec.nodeName.deeper=", true),
            ("spec.text=a\\,b\\=c\\\\d", true),
        ] {
            let selector = FieldSelector::parse(text).expect(text);
            assert_eq!(selector.matches(&meta, &object), Ok(selected), "{text}");
        }
        let selector = FieldSelector::parse("spec=x").expect("parsed");
        assert_eq!(selector.matches(&meta, &object), Err("field selector: spec is not a single value".into()));
    }

    #[test]
    fn errors_say_what_is_not_understood() {
        let check = |text: &str, reason: &str| {
            assert_eq!(FieldSelector::parse(text), Err(format!("field selector {text:?}: {reason}")));
        };
        check("metadata.name", "\"metadata.name\" has no operator (=, ==, !=)");
        check("a=b,metadata.name in (a)", "\"metadata.name in (a)\" has no operator (=, ==, !=)");
        check("metadata.name = a", "\"metadata.name \" is not the path of a field");
        check(".a=b", "\".a\" is not the path of a field");
        check("=b", "\"\" is not the path of a field");
        check("a=b=c", "\"b=c\" has an equals sign that is not escaped by a backslash");
        check("a=\\x", "\"\\\\x\" has a backslash that escapes nothing");
    }

    proptest! {
        #[test]
        fn a_value_that_is_escaped_is_found(value in "[a-c,=\\\\ ]{0,8}", equal: bool) {
            let escaped: String = value.chars().flat_map(|letter| {
                let special = matches!(letter, ',' | '=' | '\\');
                special.then_some('\\').into_iter().chain([letter])
            }).collect();
            let text = format!("spec.value{}{escaped},metadata.name=x", if equal { "=" } else { "!=" });
            let selector = FieldSelector::parse(&text).expect("parsed");
            let object = json!({"spec": {"value": value}});
            let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            prop_assert_eq!(selector.matches(&named("x"), &object), Ok(equal));
            prop_assert_eq!(selector.matches(&named("y"), &object), Ok(false));
        }

        #[test]
        fn no_text_is_too_odd_to_be_parsed(text in "[ a-c=!,.\\\\]{0,16}") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
