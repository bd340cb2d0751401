//! Semantic versions, as `blang/semver` parses them.

use std::cmp::Ordering;

use crate::go::quote;

/// A version. Build metadata does not count.
#[derive(Debug)]
pub struct Semver {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    before: Vec<Label>,
}

/// A part of what comes before a release.
#[derive(Debug)]
enum Label {
    Number(u64),
    Text(Box<str>),
}

impl Semver {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        let version = Self {
            major: number(major, "Major", "major")?,
            minor: number(minor, "Minor", "minor")?,
            patch: number(patch, "Patch", "patch")?,
            before: match before {
                Some(before) => before.split('.').map(label).collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
            }
        }
        Ok(version)
    }

    /// Parses leniently: a leading `v`, missing parts and leading zeros are fine.
    pub(crate) fn parse_lenient(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let trimmed = part.trim_start_matches('0');
                let zero = !trimmed.starts_with(|c: char| c.is_ascii_digit());
                *part = if zero { format!("0{trimmed}") } else { trimmed.to_owned() };
            }
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let release = |version: &Self| (version.major, version.minor, version.patch);
        release(self).cmp(&release(other)).then_with(|| match (self.before.is_empty(), other.before.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let differing = self.before.iter().zip(&other.before).map(|(a, b)| a.compare(b));
                let first = differing.into_iter().find(|ordering| ordering.is_ne());
                first.unwrap_or_else(|| self.before.len().cmp(&other.before.len()))
            }
        })
    }
}

impl Label {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
        }
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn number(text: &str, title: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{title} number must not contain leading zeroes {}", quote(text)));
    }
    text.parse().map_err(|_| {
        let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {why}", quote(text))
    })
}

fn label(text: &str) -> Result<Label, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            let quoted = quote(text);
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {quoted}"));
        }
        return text
            .parse()
            .map(Label::Number)
            .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quote(text)));
    }
    if is_word(text) {
        Ok(Label::Text(text.into()))
    } else {
        Err(format!("Invalid character(s) found in prerelease {}", quote(text)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version() -> impl Strategy<Value = Semver> {
        let text = proptest::string::string_regex("[01]\\.[01]\\.[01](-(0|1|10|a|a1|-)(\\.(0|b)){0,2})?(\\+x)?");
        text.expect("a pattern").prop_map(|text| Semver::parse(&text).expect("a version"))
    }

    proptest! {
        #[test]
        fn versions_are_in_a_total_order(a in version(), b in version(), c in version()) {
            prop_assert_eq!(a.compare(&b), b.compare(&a).reverse());
            if a.compare(&b).is_le() && b.compare(&c).is_le() {
                prop_assert!(a.compare(&c).is_le());
                prop_assert_eq!(a.compare(&c).is_eq(), a.compare(&b).is_eq() && b.compare(&c).is_eq());
            }
        }
    }

    /// The example of the specification, semver.org, section 11.
    #[test]
    fn versions_before_a_release_are_in_order() {
        let order = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
        ];
        let parse = |text: &str| Semver::parse(text).expect("a version");
        for pair in order.windows(2) {
            assert_eq!(parse(pair[0]).compare(&parse(pair[1])), Ordering::Less, "{pair:?}");
        }
    }
}
