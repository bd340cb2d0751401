//! Field errors: what is wrong with which field of an object, in Kubernetes' words.
//!
//! Validation of built-in kinds and of custom resources both collect [`FieldError`]s; the registry
//! turns the collection into one 422 answer that names every violation.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;
pub use windlass_cel::go::quote;

/// Where a value sits in an object, as Kubernetes prints it: `spec.containers[0].env[KEY]`.
///
/// A path borrows its parent, so walking down an object allocates nothing until an error is made.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself. Prints as the empty string.
    pub const fn root() -> Path<'static> {
        Path { parent: None, step: Step::Root }
    }

    /// The field `name` of the root.
    pub const fn new(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Field(name) }
    }

    /// Whether this is the object itself.
    pub(crate) const fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// The field `name` below this path.
    #[must_use]
    pub const fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// The list item at `index`.
    #[must_use]
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// The map entry at `key`.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) => {
                if self.parent.is_some_and(|p| !matches!(p.step, Step::Root)) {
                    f.write_str(".")?;
                }
                f.write_str(name)
            }
            Step::Index(i) => write!(f, "[{i}]"),
            Step::Key(k) => write!(f, "[{k}]"),
        }
    }
}

/// What kind of violation a [`FieldError`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value that was looked up does not exist.
    NotFound,
    /// A required value is missing.
    Required,
    /// A value that must be unique is there twice.
    Duplicate,
    /// A malformed value.
    Invalid,
    /// A value outside an enumeration.
    NotSupported,
    /// A well-formed value that is not allowed here.
    Forbidden,
    /// A string or document that is too long.
    TooLong,
    /// A string that is too short.
    TooShort,
    /// A list with too many items.
    TooMany,
    /// A list with too few items.
    TooFew,
    /// Not the user's fault.
    Internal,
    /// A value of the wrong type.
    TypeInvalid,
}

impl ErrorKind {
    /// The machine-readable `reason` of a Status cause.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// The value an error complains about, already in the form it is printed in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    Text(String),
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where, as Kubernetes prints paths.
    pub field: String,
    value: Shown,
    detail: String,
}

impl FieldError {
    /// An error at `path` that shows `value`.
    pub fn new(kind: ErrorKind, path: &Path<'_>, value: &Value, detail: impl Into<String>) -> Self {
        Self::shown(kind, path, show(value), detail)
    }

    /// An error whose value is printed exactly as `value`: for values whose Go form is not their JSON.
    pub fn shown(kind: ErrorKind, path: &Path<'_>, value: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, field: path_text(path), value: Shown::Text(value.into()), detail: detail.into() }
    }

    /// An error that shows no value.
    pub fn without_value(kind: ErrorKind, path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self { kind, field: path_text(path), value: Shown::Nothing, detail: detail.into() }
    }

    /// `Invalid value: <value>: <detail>`.
    pub fn invalid(path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, path, &value.into(), detail)
    }

    /// `Required value: <detail>`.
    pub fn required(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(ErrorKind::Required, path, detail)
    }

    /// `Forbidden: <detail>`.
    pub fn forbidden(path: &Path<'_>, detail: impl Into<String>) -> Self {
        Self::without_value(ErrorKind::Forbidden, path, detail)
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::Duplicate, path, &value.into(), "")
    }

    /// `Not found: <value>`.
    pub fn not_found(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::new(ErrorKind::NotFound, path, &value.into(), "")
    }

    /// `Unsupported value: <value>: supported values: "a", "b"`. The caller gives the values in the
    /// order upstream prints them (usually sorted).
    pub fn not_supported(path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(ErrorKind::NotSupported, path, &value.into(), detail)
    }

    /// `Too long: may not be more than <max> bytes`.
    pub fn too_long(path: &Path<'_>, max: usize) -> Self {
        let detail = format!("may not be more than {max} bytes");
        Self::without_value(ErrorKind::TooLong, path, detail)
    }

    /// `Too many: <actual>: must have at most <max> items`.
    pub fn too_many(path: &Path<'_>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::shown(ErrorKind::TooMany, path, actual.to_string(), format!("must have at most {max} {unit}"))
    }

    /// The message without the field's name: a Status cause's `message`.
    pub(crate) fn body(&self) -> String {
        let mut text = String::from(self.kind.title());
        if let (true, Shown::Text(value)) = (self.kind.shows_value(), &self.value) {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Every violation found in one object, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

/// So many violations of one object are told. Upstream tells them all, were there as many as a body has values.
const MOST: usize = 10_000;

impl FieldErrors {
    /// Adds one violation.
    pub fn push(&mut self, error: FieldError) {
        match self.0.len() {
            ..MOST => self.0.push(error),
            MOST => self.0.push(FieldError::shown(
                ErrorKind::TooMany,
                &Path::root(),
                MOST.to_string(),
                "there are more violations than are listed here",
            )),
            _ => {}
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldErrors {
    /// One error prints bare, several as `[a, b]`; identical texts print once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("[]");
        }
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&aggregate(&texts))
    }
}

/// Several errors as Go's aggregates print them: each once, in brackets if there is more than one. There may be
/// as many as a body has values.
pub fn aggregate(texts: &[String]) -> String {
    let mut seen = HashSet::with_capacity(texts.len());
    let distinct: Vec<&str> = texts.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    match distinct.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// A path as text: like upstream, an empty path prints as `<nil>`.
fn path_text(path: &Path<'_>) -> String {
    let text = path.to_string();
    if text.is_empty() { "<nil>".to_owned() } else { text }
}

fn show(value: &Value) -> String {
    match value {
        Value::String(s) => quote(s),
        Value::Array(_) | Value::Object(_) => go_json(value),
        other => other.to_string(),
    }
}

/// JSON as Go's encoder writes it: safe to put into HTML.
pub fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    // Outside strings JSON has none of these.
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_upstream_does() {
        let spec = Path::new("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let env = first.child("env");
        assert_eq!(env.key("KEY").to_string(), "spec.containers[0].env[KEY]");
        assert_eq!(Path::root().child("spec").to_string(), "spec");
    }

    #[test]
    fn several_errors_print_in_brackets_once_each() {
        let path = Path::new("metadata").child("name").to_string();
        assert_eq!(path, "metadata.name");
        let error = FieldError::required(&Path::new("a"), "x");
        let errors = FieldErrors(vec![error.clone(), FieldError::invalid(&Path::new("b"), "v", "d"), error]);
        assert_eq!(errors.to_string(), r#"[a: Required value: x, b: Invalid value: "v": d]"#);
    }

    /// A body of the allowed size can be wrong this often.
    #[test]
    fn very_many_errors_are_told_once_each() {
        let texts: Vec<String> = (0..600_000).map(|n| (n / 2).to_string()).collect();
        assert_eq!(aggregate(&texts).split(", ").count(), 300_000);
    }

    #[test]
    fn not_all_of_very_many_violations_are_told() {
        let mut errors = FieldErrors::default();
        for n in 0..200_000 {
            errors.push(FieldError::invalid(&Path::new("a"), n, "d"));
        }
        assert_eq!(errors.0.len(), MOST + 1);
        let last = "<nil>: Too many: 10000: there are more violations than are listed here";
        assert!(errors.to_string().ends_with(&format!("{last}]")));
    }
}
