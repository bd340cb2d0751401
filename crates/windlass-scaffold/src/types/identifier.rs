//! Names of Kubernetes' fields, kinds and values as Rust identifiers.

use std::collections::HashSet;

/// Words that are no plain identifiers. All but the last ones can be written as `r#word`.
const KEYWORDS: [&str; 52] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "self", "super", "crate", "_",
];
const NEVER_RAW: [&str; 4] = ["self", "super", "crate", "_"];

/// The words of a name: `clusterIPs` is `cluster` and `IPs`, `HTTPRoute` is `HTTP` and `Route`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let chars: Vec<char> = name.chars().collect();
    for (at, &c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
            continue;
        }
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(at + 1).copied();
        let from_lower = before.is_some_and(|before| before.is_ascii_lowercase() || before.is_ascii_digit());
        // The last letter of an acronym begins the next word, unless that would be the plural's `s`.
        let ends_acronym = before.is_some_and(|before| before.is_ascii_uppercase())
            && after.is_some_and(|after| after.is_ascii_lowercase())
            && !(after == Some('s') && chars.get(at + 2).is_none_or(|next| !next.is_ascii_lowercase()));
        if c.is_ascii_uppercase() && (from_lower || ends_acronym) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        word.push(c);
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// `cluster_ips` for `clusterIPs`; not yet an identifier.
fn snake(name: &str) -> String {
    let words = words(name);
    words.iter().map(|word| word.to_ascii_lowercase()).collect::<Vec<_>>().join("_")
}

/// What serde's `rename_all = "camelCase"` makes of a field.
pub(super) fn serde_camel(field: &str) -> String {
    let field = field.strip_prefix("r#").unwrap_or(field);
    let mut text = String::new();
    let mut upper = false;
    for c in field.chars() {
        if c == '_' {
            upper = true;
        } else {
            text.push(if upper { c.to_ascii_uppercase() } else { c });
            upper = false;
        }
    }
    // Serde makes Pascal case first, and then the first letter small.
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}", first.to_ascii_lowercase(), chars.as_str()))
}

/// `HttpRoute` for `httpRoute`. Words with small and large letters stay: `HTTPRoute`.
pub(super) fn pascal(name: &str) -> String {
    let mut text = String::new();
    for word in words(name) {
        let digits = text.ends_with(|c: char| c.is_ascii_digit()) && word.starts_with(|c: char| c.is_ascii_digit());
        if digits {
            text.push('_');
        }
        let lower = word.len() > 1 && !word.contains(|c: char| c.is_ascii_lowercase());
        let mut chars = word.chars();
        text.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(&if lower { chars.as_str().to_ascii_lowercase() } else { chars.as_str().to_owned() });
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, 'V');
    }
    text
}

/// The name of one of many: `Rule` for `rules`.
pub(super) fn singular(name: &str) -> String {
    let ends = |end: &str| name.len() > end.len() + 1 && name.ends_with(end);
    let cut = |count: usize| name[..name.len() - count].to_owned();
    if ends("ies") {
        return format!("{}y", cut(3));
    }
    if ["sses", "shes", "ches", "xes", "zes"].iter().any(|end| ends(end)) {
        return cut(2);
    }
    if ends("s") && !["ss", "us", "is"].iter().any(|end| name.ends_with(end)) {
        return cut(1);
    }
    name.to_owned()
}

/// The type of a kind. A kind is one already, unless it begins with a small letter, has dashes or is taken.
pub(super) fn kind(kind: &str) -> String {
    let plain = kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let name = if plain { kind.to_owned() } else { pascal(kind) };
    if TAKEN.contains(&name.as_str()) { format!("{name}Resource") } else { name }
}

/// The module of a kind: `http_route`.
pub(super) fn module(kind: &str) -> String {
    let name = snake(kind);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || KEYWORDS.contains(&name.as_str()) {
        return format!("kind_{name}").trim_end_matches('_').to_owned();
    }
    name
}

/// Fields of a struct, each under a name of its own.
#[derive(Default)]
pub(super) struct Fields {
    used: HashSet<String>,
}

impl Fields {
    /// The identifier of a field, `r#type` if it must be.
    pub(super) fn add(&mut self, name: &str) -> String {
        let mut base = snake(name);
        if base.is_empty() {
            "field".clone_into(&mut base);
        }
        if base.starts_with(|c: char| c.is_ascii_digit()) {
            base.insert(0, 'n');
        }
        if NEVER_RAW.contains(&base.as_str()) {
            base.push('_');
        }
        let name = unused(&mut self.used, &base, |base, number| format!("{}_{number}", base.trim_end_matches('_')));
        if KEYWORDS.contains(&name.as_str()) { format!("r#{name}") } else { name }
    }
}

/// Variants of an enum, each under a name of its own.
#[derive(Default)]
pub(super) struct Variants {
    used: HashSet<String>,
}

impl Variants {
    /// The identifier of a variant for a value.
    pub(super) fn add(&mut self, value: &str) -> String {
        let mut base = pascal(value);
        if base.is_empty() {
            base = symbols(value);
        }
        if base == "Self" {
            base.push_str("Value");
        }
        if self.used.contains(&base) {
            // `debug` and `DEBUG` are values of the same field.
            let mut chars = value.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            let verbatim: String = first.into_iter().chain(chars).collect();
            let plain = verbatim.starts_with(|c: char| c.is_ascii_uppercase())
                && verbatim.chars().all(|c| c.is_ascii_alphanumeric());
            if plain && !self.used.contains(&verbatim) && verbatim != "Self" {
                base = verbatim;
            }
        }
        unused(&mut self.used, &base, |base, number| format!("{base}{number}"))
    }
}

/// A name for a value that has no letter and no digit.
fn symbols(value: &str) -> String {
    if value.is_empty() {
        return "Empty".to_owned();
    }
    let name = |c: char| match c {
        '=' => "Equal".to_owned(),
        '!' => "Not".to_owned(),
        '<' => "Less".to_owned(),
        '>' => "Greater".to_owned(),
        '*' => "Star".to_owned(),
        '+' => "Plus".to_owned(),
        '-' => "Minus".to_owned(),
        '/' => "Slash".to_owned(),
        '.' => "Dot".to_owned(),
        '~' => "Tilde".to_owned(),
        '^' => "Caret".to_owned(),
        '&' => "And".to_owned(),
        '|' => "Or".to_owned(),
        '%' => "Percent".to_owned(),
        '_' => "Underscore".to_owned(),
        ' ' => "Space".to_owned(),
        _ => format!("U{:X}", u32::from(c)),
    };
    value.chars().map(name).collect()
}

/// Types of a module, each under a name of its own.
pub(super) struct Types {
    used: HashSet<String>,
}

/// What generated code means by these names.
const TAKEN: [&str; 41] = [
    "BTreeMap",
    "Box",
    "Clone",
    "Condition",
    "Copy",
    "Cow",
    "CustomResource",
    "Debug",
    "Default",
    "Deserialize",
    "Deserializer",
    "Drop",
    "Eq",
    "Err",
    "From",
    "Fn",
    "FnMut",
    "FnOnce",
    "Hash",
    "IntOrString",
    "Into",
    "Iterator",
    "JsonSchema",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Quantity",
    "Result",
    "Schema",
    "SchemaGenerator",
    "Self",
    "Send",
    "Serialize",
    "Some",
    "String",
    "Sync",
    "Value",
    "Vec",
];

/// Names that say nothing without what they belong to.
const VAGUE: [&str; 12] =
    ["Config", "Data", "Item", "Kind", "Metadata", "Name", "Object", "Ref", "Spec", "State", "Status", "Type"];

impl Types {
    pub(super) fn new() -> Self {
        Self { used: TAKEN.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// Takes a name, or one like it.
    pub(super) fn take(&mut self, name: &str) -> String {
        let base = if name.is_empty() { "Unnamed" } else { name };
        unused(&mut self.used, base, |base, number| format!("{base}{number}"))
    }

    /// Takes the short name if it is free, and otherwise the one that names the parent as well.
    pub(super) fn take_short(&mut self, parent: &str, short: &str) -> String {
        if !short.is_empty() && !self.used.contains(short) && !VAGUE.contains(&short) {
            return self.take(short);
        }
        self.take(&format!("{parent}{short}"))
    }
}

fn unused(used: &mut HashSet<String>, base: &str, numbered: impl Fn(&str, u32) -> String) -> String {
    let mut name = base.to_owned();
    let mut number = 2;
    while !used.insert(name.clone()) {
        name = numbered(base, number);
        number += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_identifiers() {
        for (name, expected) in [
            ("name", "name"),
            ("clusterIP", "cluster_ip"),
            ("clusterIPs", "cluster_ips"),
            ("HTTPRoute", "http_route"),
            ("podCIDRBlock", "pod_cidr_block"),
            ("ipv4Address", "ipv4_address"),
            ("x-kubernetes-foo", "x_kubernetes_foo"),
            ("instance_name", "instance_name"),
            ("type", "r#type"),
            ("self", "self_"),
            ("3scale", "n3scale"),
            ("$ref", "r#ref"),
            ("größe", "gr_e"),
            ("*", "field"),
        ] {
            assert_eq!(Fields::default().add(name), expected, "{name}");
        }
        let mut fields = Fields::default();
        assert_eq!(["self", "Self", "self_"].map(|name| fields.add(name)), ["self_", "self_2", "self_3"]);
        let mut fields = Fields::default();
        assert_eq!(["fooBar", "foo_bar", "FooBar"].map(|name| fields.add(name)), ["foo_bar", "foo_bar_2", "foo_bar_3"]);
    }

    #[test]
    fn values_become_variants() {
        let names = |values: &[&str]| {
            let mut variants = Variants::default();
            values.iter().map(|value| variants.add(value)).collect::<Vec<_>>()
        };
        assert_eq!(names(&["", "Always", "IfNotPresent"]), ["Empty", "Always", "IfNotPresent"]);
        assert_eq!(names(&["1.2", "1.3", "10"]), ["V1_2", "V1_3", "V10"]);
        assert_eq!(names(&["debug", "DEBUG", "Debug"]), ["Debug", "DEBUG", "Debug2"]);
        assert_eq!(names(&["=", "!=", ">=", "*"]), ["Equal", "NotEqual", "GreaterEqual", "Star"]);
        assert_eq!(names(&["ROUND_ROBIN", "self", "RFC3339"]), ["RoundRobin", "SelfValue", "Rfc3339"]);
        assert_eq!(names(&["§", "日本"]), ["UA7", "U65E5U672C"]);
    }

    #[test]
    fn many_become_one() {
        for (name, expected) in [
            ("rules", "rule"),
            ("policies", "policy"),
            ("addresses", "address"),
            ("matches", "match"),
            ("status", "status"),
            ("class", "class"),
            ("s", "s"),
        ] {
            assert_eq!(singular(name), expected);
        }
    }

    #[test]
    fn serde_renames_as_expected() {
        for (field, expected) in [("foo_bar", "fooBar"), ("r#type", "type"), ("n3scale", "n3scale"), ("a_1", "a1")] {
            assert_eq!(serde_camel(field), expected);
        }
    }
}
