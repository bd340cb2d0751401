//! Checks of single values: numbers, enumerations, strings that follow a rule, fields that stay.

use serde_json::Value;

use super::access::{Access, semantically_equal};
use super::names::{self, Reasons, Rule};
use crate::field::{FieldError, FieldErrors, Path};

/// What upstream says about a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";
/// How many errors may quote the same list or the same text whole. Where upstream has one for each bad part, their
/// number times their size would be the square of what a client sent.
pub const MOST_QUOTED: usize = 16;
const NEGATIVE: &str = "must be greater than or equal to 0";

/// One `Invalid value` for each reason.
pub fn invalid_for_each(path: &Path<'_>, value: &str, reasons: Reasons, errors: &mut FieldErrors) {
    for reason in reasons {
        errors.push(FieldError::invalid(path, value, reason));
    }
}

/// A number that may not be negative.
pub fn not_negative(value: i64, path: &Path<'_>, errors: &mut FieldErrors) {
    if value < 0 {
        errors.push(FieldError::invalid(path, value, NEGATIVE));
    }
}

/// An optional number of `owner` that may not be negative.
pub fn not_negative_field(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    not_negative(owner.int(field), &path.child(field), errors);
}

/// A number that must be above 0.
pub fn positive(value: i64, path: &Path<'_>, errors: &mut FieldErrors) {
    if value <= 0 {
        errors.push(FieldError::invalid(path, value, "must be greater than 0"));
    }
}

/// A string of `owner` that must be there and follow `rule`.
pub fn required_text(owner: &Value, field: &str, rule: Rule, path: &Path<'_>, errors: &mut FieldErrors) {
    let text = owner.text(field);
    if text.is_empty() {
        errors.push(FieldError::required(&path.child(field), ""));
    } else {
        invalid_for_each(&path.child(field), text, rule(text), errors);
    }
}

/// A string of `owner` that must follow `rule` if it is there.
pub fn optional_text(owner: &Value, field: &str, rule: Rule, path: &Path<'_>, errors: &mut FieldErrors) {
    let text = owner.text(field);
    if !text.is_empty() {
        invalid_for_each(&path.child(field), text, rule(text), errors);
    }
}

/// A string of `owner` that must be there.
pub fn required(owner: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) -> bool {
    let missing = owner.text(field).is_empty();
    if missing {
        errors.push(FieldError::required(&path.child(field), ""));
    }
    !missing
}

/// A string of `owner` that must be one of `supported`; absent is an unsupported empty string.
pub fn one_of(owner: &Value, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    let text = owner.text(field);
    if !supported.contains(&text) {
        errors.push(FieldError::not_supported(&path.child(field), text, supported));
    }
}

/// A string of `owner` that must be there and be one of `supported`.
pub fn required_one_of(owner: &Value, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    if required(owner, field, path, errors) {
        one_of(owner, field, supported, path, errors);
    }
}

/// A string of `owner` that must be one of `supported` if it is there.
pub fn optional_one_of(owner: &Value, field: &str, supported: &[&str], path: &Path<'_>, errors: &mut FieldErrors) {
    if !owner.text(field).is_empty() {
        one_of(owner, field, supported, path, errors);
    }
}

/// Checks a path with a domain before it, e.g. `acme.io/foo`.
pub fn domain_prefixed_path(text: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    match text.split_once('/') {
        _ if text.is_empty() => errors.push(FieldError::required(path, "")),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            invalid_for_each(path, domain, names::subdomain(domain), errors);
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !rest.bytes().all(allowed) {
                let detail = names::pattern("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
                errors.push(FieldError::invalid(path, rest, detail));
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, text, detail));
        }
    }
}

/// A field that must stay as it is.
pub fn immutable(new: &Value, old: &Value, field: &str, path: &Path<'_>, errors: &mut FieldErrors) {
    if !semantically_equal(new.at(field), old.at(field)) {
        errors.push(FieldError::invalid(&path.child(field), new.at(field).clone(), IMMUTABLE));
    }
}

/// A port number or the name of a port.
pub fn port_or_name(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        Value::String(name) => invalid_for_each(path, name, names::port_name(name), errors),
        other => port(other.as_i64().unwrap_or_default(), path, errors),
    }
}

/// A port number.
pub fn port(value: i64, path: &Path<'_>, errors: &mut FieldErrors) {
    for reason in names::port_number(value) {
        errors.push(FieldError::invalid(path, value, reason));
    }
}

/// A number that may not be negative, or a percentage.
pub fn positive_int_or_percent(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        Value::String(text) => invalid_for_each(path, text, names::percent(text), errors),
        other => not_negative(other.as_i64().unwrap_or_default(), path, errors),
    }
}

/// A percentage of at most 100.
pub fn not_more_than_100_percent(value: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if let Some(text) = value.as_str()
        && percent_value(text).is_some_and(|percent| percent > 100)
    {
        errors.push(FieldError::invalid(path, text, "must not be greater than 100%"));
    }
}

/// The number before `%`.
pub(crate) fn percent_value(text: &str) -> Option<i64> {
    if !names::percent(text).is_empty() {
        return None;
    }
    text.trim_end_matches('%').parse().ok()
}

/// What an int-or-percent amounts to where only "is it 0" matters: the number or the percentage.
pub fn int_or_percent(value: &Value) -> i64 {
    match value {
        Value::String(text) => percent_value(text).unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}
