//! Strings that a schema takes: by their format, their length, and their pattern.

use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind, Repetition};
use serde_json::Value;

/// How long a string is made at most.
const LONGEST: usize = 1024;

/// What the API server takes for each format that it checks, and what people mean by the others.
const FORMATS: [(&str, &str); 20] = [
    ("bsonobjectid", "507f1f77bcf86cd799439011"),
    ("byte", "ZXhhbXBsZQ=="),
    ("cidr", "192.0.2.0/24"),
    ("creditcard", "4111111111111111"),
    ("date", "2026-01-01"),
    ("date-time", "2026-01-01T00:00:00Z"),
    ("datetime", "2026-01-01T00:00:00Z"),
    ("duration", "1m"),
    ("email", "somebody@example.com"),
    ("hexcolor", "#ffffff"),
    ("hostname", "example.com"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("mac", "00:00:5e:00:53:01"),
    ("rgbcolor", "rgb(255,255,255)"),
    ("uri", "https://example.com/"),
    ("url", "https://example.com/"),
    ("uuid", "00000000-0000-4000-8000-000000000000"),
    ("uuid4", "00000000-0000-4000-8000-000000000000"),
    ("k8s-short-name", "example"),
];

pub(super) fn example(schema: &Value, name: &str, index: usize) -> String {
    let format = schema["format"].as_str().unwrap_or_default();
    let of_format = FORMATS.iter().find(|(name, _)| *name == format).map(|(_, text)| (*text).to_owned());
    let numbered = |text: &str| if index == 0 { text.to_owned() } else { format!("{text}-{index}") };
    let candidates = of_format.into_iter().chain([numbered("example"), numbered(&name.to_lowercase())]);
    let padded = |text: String| {
        let least = length(schema, "minLength").unwrap_or(0).min(LONGEST);
        let most = length(schema, "maxLength").unwrap_or(LONGEST);
        let text: String = text.chars().chain(std::iter::repeat('x')).take(least.max(text.chars().count())).collect();
        text.chars().take(most).collect::<String>()
    };
    let candidates = candidates.flat_map(|text: String| [text.clone(), padded(text)]);
    let mut candidates = candidates.chain(of_pattern(schema));
    // Where nothing fits the schema asks for more than this knows; a person will see it.
    candidates.find(|text| accepts(text, schema)).unwrap_or_else(|| numbered("example"))
}

pub(super) fn accepts(text: &str, schema: &Value) -> bool {
    let count = text.chars().count();
    length(schema, "minLength").is_none_or(|least| count >= least)
        && length(schema, "maxLength").is_none_or(|most| count <= most)
        && patterns(schema).all(|pattern| regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text)))
}

fn length(schema: &Value, name: &str) -> Option<usize> {
    schema[name].as_u64().map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

fn patterns(schema: &Value) -> impl Iterator<Item = &str> {
    let all = schema["allOf"].as_array().into_iter().flatten();
    std::iter::once(schema).chain(all).filter_map(|schema| schema["pattern"].as_str())
}

/// Strings that the pattern describes, the shortest first.
fn of_pattern(schema: &Value) -> Vec<String> {
    let parsed = patterns(schema).next().and_then(|pattern| regex_syntax::parse(pattern).ok());
    let Some(parsed) = parsed else { return Vec::new() };
    let least = length(schema, "minLength").unwrap_or(0).min(LONGEST);
    (0..=least.max(2))
        .map(|more| {
            let mut text = String::new();
            describe(&parsed, u32::try_from(more).unwrap_or(0), &mut text);
            text
        })
        .collect()
}

/// Adds what a part of a pattern matches. Parts that can be repeated without end are, that many times more.
fn describe(part: &Hir, more: u32, text: &mut String) {
    if text.len() > LONGEST {
        return;
    }
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => text.extend(member(class)),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            for _ in 0..max.unwrap_or(u32::MAX).min(min.saturating_add(more)) {
                if text.len() > LONGEST {
                    break;
                }
                describe(sub, more, text);
            }
        }
        HirKind::Capture(capture) => describe(&capture.sub, more, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| describe(part, more, text)),
        HirKind::Alternation(parts) => {
            if let Some(first) = parts.first() {
                describe(first, more, text);
            }
        }
    }
}

/// A character of a class: one that people type, if there is one.
fn member(class: &Class) -> Option<char> {
    let has = |wanted: char| match class {
        Class::Unicode(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&wanted)),
        Class::Bytes(class) => u8::try_from(wanted)
            .is_ok_and(|wanted| class.iter().any(|range| (range.start()..=range.end()).contains(&wanted))),
    };
    let first = || match class {
        Class::Unicode(class) => class.iter().next().map(ClassUnicodeRange::start),
        Class::Bytes(class) => class.iter().next().map(|range| char::from(range.start())),
    };
    ('a'..='z')
        .chain('1'..='9')
        .chain("0-".chars())
        .chain('A'..='Z')
        .chain('!'..='~')
        .find(|one| has(*one))
        .or_else(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_fit_their_patterns() {
        for pattern in [
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "^v[0-9]+(\\.[0-9]+){2}$",
            "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$",
            "^(http|https)://.+$",
            "^arn:aws:iam::\\d{12}:role/\\S+$",
            "^\\d+(Ki|Mi|Gi)$",
            "^[A-Z]{3,}_[^/]{2}$",
            "",
        ] {
            let schema = json!({"type": "string", "pattern": pattern});
            let text = example(&schema, "field", 0);
            assert!(accepts(&text, &schema), "{text:?} does not match {pattern}");
        }
        let long = json!({"type": "string", "pattern": "^[0-9a-f]+$", "minLength": 40, "maxLength": 40});
        assert_eq!(example(&long, "commit", 0).len(), 40);
        let both = json!({"type": "string", "maxLength": 3});
        assert_eq!(example(&both, "name", 0), "exa");
        for (format, text) in FORMATS {
            assert_eq!(example(&json!({"type": "string", "format": format}), "x", 0), text);
        }
    }
}
