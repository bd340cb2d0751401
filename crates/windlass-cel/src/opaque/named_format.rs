//! Named formats: what values of `format.dns1123Label()` and the like accept.

use crate::format::{Format, supported};
use crate::names::{self, NameRule};
use crate::shape::JsonType;

/// A format.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    /// How long the pattern is that its cost is counted by.
    pub(crate) regex_size: u64,
    pub(crate) check: fn(&str) -> Vec<String>,
}

const fn format(name: &'static str, regex_size: u64, check: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat { name, regex_size, check }
}

fn accepts(format: &str, text: &str) -> bool {
    matches!(supported(JsonType::String, format), Some(Format::Text(accepts)) if accepts(text))
}

fn unless(fine: bool, problem: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![problem.to_owned()] }
}

static FORMATS: [NamedFormat; 13] = [
    format("dns1123Label", 30, |text| names::object_name(NameRule::Label, text, false)),
    format("dns1123Subdomain", 60, |text| names::object_name(NameRule::Subdomain, text, false)),
    format("dns1035Label", 30, |text| names::object_name(NameRule::Dns1035Label, text, false)),
    format("qualifiedName", 60, names::qualified_name),
    format("dns1123LabelPrefix", 30, |text| names::object_name(NameRule::Label, text, true)),
    format("dns1123SubdomainPrefix", 60, |text| names::object_name(NameRule::Subdomain, text, true)),
    format("dns1035LabelPrefix", 30, |text| names::object_name(NameRule::Dns1035Label, text, true)),
    format("labelValue", 40, names::label_value),
    format("uri", 1103, |text| match super::url::check(text) {
        Ok(()) => Vec::new(),
        Err(problem) => vec![problem],
    }),
    format("uuid", 70, |text| unless(accepts("uuid", text), "does not match the UUID format")),
    format("byte", 84, |text| unless(accepts("byte", text), "invalid base64")),
    format("date", 71, |text| unless(accepts("date", text), "invalid date")),
    format("datetime", 71, |text| unless(accepts("datetime", text), "invalid datetime")),
];

/// The format called `name`.
pub(crate) fn named(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}
