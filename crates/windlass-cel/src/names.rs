//! Rules about single strings: DNS names, label keys and values, ports, environment variables.
//!
//! Each rule returns the reasons the string is refused, worded as upstream words them (apimachinery
//! `util/validation` and `api/validate/content`); an empty list means it is fine. Lengths are bytes.

/// How `metadata.name` must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 label: namespaces and others.
    Label,
    /// A DNS-1035 label.
    Dns1035Label,
    /// Anything that can be one path segment: RBAC kinds.
    PathSegment,
}

/// The longest DNS label.
pub(crate) const LABEL_MAX: usize = 63;
/// The longest DNS subdomain.
pub(crate) const SUBDOMAIN_MAX: usize = 253;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                                 an alphanumeric character";

/// The reasons a string is refused.
pub type Reasons = Vec<String>;

/// A rule as a function, so that checks of lists and maps can take one.
pub type Rule = fn(&str) -> Reasons;

/// Checks `metadata.name` (or, with `prefix`, `metadata.generateName`) against a kind's rule.
pub fn object_name(rule: NameRule, name: &str, prefix: bool) -> Reasons {
    let masked = mask_trailing_dash(name, prefix);
    match rule {
        NameRule::Subdomain => subdomain(&masked),
        NameRule::Label => label(&masked),
        NameRule::Dns1035Label => dns1035_label(&masked),
        NameRule::PathSegment => path_segment(name, prefix),
    }
}

/// A prefix may end in a dash because something follows it. Upstream replaces the last *two*
/// characters; only validity matters.
fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    if prefix && name.len() > 1 && name.ends_with('-') {
        let cut = name.len() - 2;
        if name.is_char_boundary(cut) {
            return format!("{}a", &name[..cut]);
        }
    }
    name.to_owned()
}

/// A DNS-1123 label.
pub fn label(value: &str) -> Reasons {
    let mut reasons = too_long(value, LABEL_MAX, "characters");
    if !is_label(value) {
        if is_subdomain(value) {
            reasons.push("must not contain dots".to_owned());
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                           must start and end with an alphanumeric character";
            reasons.push(pattern(message, LABEL_FORMAT, &["my-name", "123-abc"]));
        }
    }
    reasons
}

/// A DNS-1123 subdomain.
pub fn subdomain(value: &str) -> Reasons {
    subdomain_with_unit(value, "characters")
}

fn subdomain_with_unit(value: &str, unit: &str) -> Reasons {
    let mut reasons = too_long(value, SUBDOMAIN_MAX, unit);
    if !is_subdomain(value) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                       and must start and end with an alphanumeric character";
        reasons.push(pattern(message, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    reasons
}

/// A DNS-1123 subdomain whose labels may also hold underscores: DNS search domains.
pub fn subdomain_with_underscore(value: &str) -> Reasons {
    let mut reasons = too_long(value, SUBDOMAIN_MAX, "characters");
    let fits = value.split('.').all(|part| {
        let body = part.strip_prefix('_').unwrap_or(part);
        framed(body, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-' || b == b'_')
    });
    if !fits {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                       '.', and must start and end with an alphanumeric character";
        let format = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        reasons.push(pattern(message, format, &["example.com"]));
    }
    reasons
}

/// A subdomain with a leading `*.`.
pub fn wildcard_subdomain(value: &str) -> Reasons {
    let mut reasons = too_long(value, SUBDOMAIN_MAX, "characters");
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        let message = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which \
                       must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric \
                       character";
        reasons.push(pattern(message, &format!(r"\*\.{SUBDOMAIN_FORMAT}"), &["*.example.com"]));
    }
    reasons
}

/// A DNS-1035 label.
pub fn dns1035_label(value: &str) -> Reasons {
    let mut reasons = too_long(value, LABEL_MAX, "characters");
    if !(is_label(value) && value.as_bytes()[0].is_ascii_lowercase()) {
        let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                       alphabetic character, and end with an alphanumeric character";
        reasons.push(pattern(message, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    reasons
}

/// A name (or the beginning of one) that can be one segment of a URL path.
pub fn path_segment(value: &str, prefix: bool) -> Reasons {
    if !prefix && (value == "." || value == "..") {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"].iter().filter(|part| value.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// A label key: a name with an optional DNS subdomain and `/` before it.
pub fn qualified_name(value: &str) -> Reasons {
    let mut reasons = Reasons::new();
    let examples = &["MyName", "my.name", "123-abc"];
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                reasons.push("prefix part must be non-empty".to_owned());
            } else {
                reasons.extend(subdomain_with_unit(prefix, "bytes").iter().map(|r| format!("prefix part {r}")));
            }
            *name
        }
        _ => {
            let rule = pattern(QUALIFIED_MESSAGE, QUALIFIED_FORMAT, examples);
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        reasons.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        reasons.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_qualified_part(name) {
        reasons.push(format!("name part {}", pattern(QUALIFIED_MESSAGE, QUALIFIED_FORMAT, examples)));
    }
    reasons
}

/// A label value.
pub fn label_value(value: &str) -> Reasons {
    let mut reasons = too_long(value, LABEL_MAX, "bytes");
    if !value.is_empty() && !is_qualified_part(value) {
        let message = format!("a valid label must be an empty string or {}", &QUALIFIED_MESSAGE["must ".len()..]);
        reasons.push(pattern(&message, &format!("({QUALIFIED_FORMAT})?"), &["MyValue", "my_value", "12345"]));
    }
    reasons
}

/// A fully qualified name: at least three (or, for domains, two) DNS labels with dots between.
pub fn has_dots(value: &str, least: usize) -> bool {
    value.split('.').count() >= least
}

/// A C identifier.
pub fn c_identifier(value: &str) -> Reasons {
    let bytes = value.as_bytes();
    let fits = bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if fits {
        return Reasons::new();
    }
    let message = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                   alphanumeric characters or '_'";
    vec![pattern(message, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// An environment variable's name: any printable ASCII but `=`.
pub fn env_var(value: &str) -> Reasons {
    let mut reasons = Reasons::new();
    if value.is_empty() {
        reasons.push("environment variable name must be non-empty".to_owned());
    }
    if !value.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        let message =
            "a valid environment variable name must consist only of printable ASCII characters other than '='";
        reasons.push(message.to_owned());
    }
    reasons
}

/// A key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Reasons {
    let mut reasons = too_long(value, SUBDOMAIN_MAX, "characters");
    let fits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    if !fits {
        let message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        reasons.push(pattern(message, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match value {
        "." => reasons.push("must not be '.'".to_owned()),
        ".." => reasons.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => reasons.push("must not start with '..'".to_owned()),
        _ => {}
    }
    reasons
}

/// An HTTP header's name.
pub fn http_header(value: &str) -> Reasons {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Reasons::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![pattern(message, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A percentage such as `25%`.
pub fn percent(value: &str) -> Reasons {
    let digits = value.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Reasons::new();
    }
    let message = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![pattern(message, "[0-9]+%", &["1%", "93%"])]
}

/// The name of a port.
pub fn port_name(value: &str) -> Reasons {
    let mut reasons = too_long(value, 15, "characters");
    if value.is_empty() || !value.bytes().all(|b| is_lower_alphanumeric(b) || b == b'-') {
        reasons.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        reasons.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        reasons.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        reasons.push("must not begin or end with a hyphen".to_owned());
    }
    reasons
}

/// A port's number.
pub fn port_number(port: i64) -> Reasons {
    in_range(port, 1, 65535)
}

/// A number between two others.
pub fn in_range(value: i64, least: i64, most: i64) -> Reasons {
    if (least..=most).contains(&value) {
        Reasons::new()
    } else {
        vec![format!("must be between {least} and {most}, inclusive")]
    }
}

/// The reason of a condition. How long it is is checked elsewhere.
pub fn condition_reason(value: &str) -> Reasons {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let (first, last) = (value.bytes().next(), value.bytes().next_back());
    let ends = first.is_some_and(|b| b.is_ascii_alphabetic()) && last.is_some_and(is_word);
    if ends && value.bytes().all(|b| is_word(b) || b == b',' || b == b':') {
        return Reasons::new();
    }
    vec![pattern(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
         characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// A user or group id.
pub fn unix_id(value: i64) -> Reasons {
    in_range(value, 0, i64::from(i32::MAX))
}

/// The reason of a string that does not match a pattern, with examples of strings that do.
pub fn pattern(message: &str, format: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{format}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{format}')", examples.join(" or "))
}

fn too_long(value: &str, max: usize, unit: &str) -> Reasons {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Reasons::new() }
}

/// Whether `value` is a DNS-1123 label, length aside.
pub fn is_label(value: &str) -> bool {
    framed(value, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-')
}

/// Whether `value` is a DNS-1123 subdomain, length aside.
pub fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified_part(value: &str) -> bool {
    framed(value, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the first and last byte pass `edge` and all pass `inner`.
fn framed(value: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && bytes.iter().all(|b| inner(*b)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_or_refused_with_upstreams_words() {
        assert!(subdomain("a.b-c.d").is_empty());
        assert_eq!(
            subdomain("a..b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
              start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label(&"n".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&"n".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(qualified_name("/x"), ["prefix part must be non-empty"]);
        assert!(qualified_name("a.b/C_d").is_empty());
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert_eq!(path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert!(path_segment("..", true).is_empty());
        assert_eq!(port_name("toolongportnamehere"), ["must be no more than 15 characters"]);
        assert!(!dns1035_label("1a").is_empty());
        assert_eq!(config_key("..x"), ["must not start with '..'"]);
    }

    #[test]
    fn a_generated_names_prefix_may_end_in_a_dash() {
        assert!(object_name(NameRule::Subdomain, "web-", true).is_empty());
        assert!(!object_name(NameRule::Subdomain, "web-", false).is_empty());
        assert!(!object_name(NameRule::Subdomain, "Web-", true).is_empty());
    }

    #[test]
    fn label_patterns_match_the_transcripts() {
        assert_eq!(
            label_value("bad value!"),
            ["a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
              start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
              for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"]
        );
        assert_eq!(
            config_key("a b"),
            ["a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
              'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"]
        );
    }
}
