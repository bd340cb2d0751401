//! Prometheus' text format: what is written, and what cannot be.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Histogram;

/// Numbers looked up for one scrape, and the only writer of the text format in the operator half: what has a page of its
/// own makes one and [encodes](Self::encode) it.
///
/// ```
/// use windlass::metrics::{Registry, Scrape};
///
/// let registry = Registry::default();
/// registry.collect(|scrape: &mut Scrape| scrape.gauge("petstore_cages", "Cages there are", &[], 12.0));
/// assert!(registry.encode().contains("petstore_cages 12"));
/// ```
#[derive(Debug, Default)]
pub struct Scrape {
    families: BTreeMap<String, Family>,
    /// What is left out, and why.
    pub(super) refused: BTreeMap<String, &'static str>,
}

/// All of a name.
#[derive(Debug)]
struct Family {
    kind: &'static str,
    header: String,
    lines: String,
}

impl Scrape {
    /// A gauge.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.single(name, help, "gauge", labels, value);
    }

    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.single(name, help, "counter", labels, value);
    }

    /// A histogram that was counted elsewhere: the upper bounds of its buckets in ascending order, each with how many values
    /// are not above it, then how many values there are, and their sum.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        buckets: &[(f64, u64)],
        (count, sum): (u64, f64),
    ) {
        if let Some(problem) = problem(name, "histogram", labels) {
            self.refused.insert(name.to_owned(), problem);
        } else if let Some(lines) = self.family(name, help, "histogram") {
            histogram(lines, name, &encode_labels(labels), buckets.iter().copied(), (count, sum));
        }
    }

    /// All of it in Prometheus' text format, sorted by name. What Prometheus could not read is left out.
    ///
    /// ```
    /// use windlass::metrics::Scrape;
    ///
    /// let mut scrape = Scrape::default();
    /// scrape.histogram("petstore_meals", "Meals of a pet", &[], &[(1.0, 2), (3.0, 5)], (6, 14.0));
    /// assert!(scrape.encode().ends_with("petstore_meals_bucket{le=\"+Inf\"} 6\npetstore_meals_sum 14\npetstore_meals_count 6\n"));
    /// ```
    pub fn encode(self) -> String {
        let mut text = String::new();
        for Family { header, lines, .. } in self.families.into_values() {
            text.push_str(&header);
            text.push_str(&lines);
        }
        text
    }

    fn single(&mut self, name: &str, help: &str, kind: &'static str, labels: &[(&str, &str)], value: f64) {
        if let Some(problem) = problem(name, kind, labels) {
            self.refused.insert(name.to_owned(), problem);
        } else if let Some(lines) = self.family(name, help, kind) {
            line(lines, name, "", &encode_labels(labels), value);
        }
    }

    /// The lines of a name, unless they are of another type.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &'static str) -> Option<&mut String> {
        let header = || {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let help = if help.is_empty() { help } else { format!("# HELP {name} {help}\n") };
            format!("{help}# TYPE {name} {kind}\n")
        };
        let family = self.families.entry(name.to_owned());
        let family = family.or_insert_with(|| Family { kind, header: header(), lines: String::new() });
        if family.kind == kind {
            return Some(&mut family.lines);
        }
        self.refused.insert(name.to_owned(), DIFFERENT_TYPES);
        None
    }

    /// Adds what another has, as far as its types are the same.
    pub(super) fn add(&mut self, other: Self) {
        self.refused.extend(other.refused);
        for (name, family) in other.families {
            match self.families.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(family);
                }
                Entry::Occupied(mut entry) if entry.get().kind == family.kind => {
                    entry.get_mut().lines.push_str(&family.lines);
                }
                Entry::Occupied(entry) => {
                    self.refused.insert(entry.key().clone(), DIFFERENT_TYPES);
                }
            }
        }
    }
}

/// Why a metric is not shown whose name stands for something else.
pub(super) const DIFFERENT_TYPES: &str = "there are two of different types";

/// Why Prometheus cannot read a metric, if it cannot.
pub(super) fn problem(name: &str, kind: &str, labels: &[(&str, &str)]) -> Option<&'static str> {
    let plain = |text: &str, more: &[u8]| {
        let fits = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_' || more.contains(&letter);
        text.bytes().all(fits) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    if !plain(name, b":") {
        return Some("its name is not of letters, digits, '_' and ':', or begins with a digit");
    }
    let reserved = |label: &str| label.starts_with("__") || (kind == "histogram" && label == "le");
    for (index, (label, _)) in labels.iter().enumerate() {
        if !plain(label, b"") {
            return Some("the name of a label is not of letters, digits and '_', or begins with a digit");
        }
        if reserved(label) {
            return Some("a label has a name that is reserved");
        }
        if labels[..index].iter().any(|(other, _)| other == label) {
            return Some("two labels have the same name");
        }
    }
    None
}

pub(super) fn encode_labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let separator = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{separator}{name}=\"{value}\"");
    }
    text
}

pub(super) fn line(text: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
    let value = number(value);
    let _ = if labels.is_empty() {
        writeln!(text, "{name}{suffix} {value}")
    } else {
        writeln!(text, "{name}{suffix}{{{labels}}} {value}")
    };
}

/// A number as Go's client writes it: the bounds of histograms are matched as text. That is the shortest that
/// reads as the same number, with an exponent of two digits at least where it is below -4 or above 5
/// (`strconv.FormatFloat` with 'g' and -1).
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        // Without a sign.
        return "0".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let shortest = format!("{value:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else { return shortest };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => format!("{digits}e{exponent:+03}"),
        _ => value.to_string(),
    }
}

pub(super) fn encode_histogram(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    let inner = &*histogram.0;
    let mut total = 0;
    let mut below = Vec::with_capacity(inner.counts.len());
    for (index, count) in inner.counts.iter().enumerate() {
        total += count.load(Ordering::Relaxed);
        below.extend(inner.bounds.get(index).map(|bound| (*bound, total)));
    }
    let sum = Duration::from_nanos(inner.sum_nanos.load(Ordering::Relaxed)).as_secs_f64();
    self::histogram(text, name, labels, below.into_iter(), (total, sum));
}

fn histogram(
    text: &mut String,
    name: &str,
    labels: &str,
    buckets: impl Iterator<Item = (f64, u64)>,
    (count, sum): (u64, f64),
) {
    let separator = if labels.is_empty() { "" } else { "," };
    for (bound, below) in buckets.chain([(f64::INFINITY, count)]) {
        let labels = format!("{labels}{separator}le=\"{}\"", number(bound));
        line(text, name, "_bucket", &labels, below as f64);
    }
    line(text, name, "_sum", labels, sum);
    line(text, name, "_count", labels, count as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_their_own_have_histograms_without_help() {
        let mut scrape = Scrape::default();
        scrape.histogram("h", "", &[("a", "b")], &[(0.5, 2), (1e6, 3)], (4, 2.5));
        scrape.histogram("refused", "", &[("le", "b")], &[], (0, 0.0));
        scrape.gauge("h", "of another type", &[], 1.0);
        let expected = "# TYPE h histogram\nh_bucket{a=\"b\",le=\"0.5\"} 2\nh_bucket{a=\"b\",le=\"1e+06\"} 3\n\
                        h_bucket{a=\"b\",le=\"+Inf\"} 4\nh_sum{a=\"b\"} 2.5\nh_count{a=\"b\"} 4\n";
        assert_eq!(scrape.encode(), expected);
    }

    #[test]
    fn numbers_are_written_as_by_go() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5e-8, "1.5e-08"),
            (123_456.0, "123456"),
            (1_000_000.0, "1e+06"),
            (-1_234_567.0, "-1.234567e+06"),
            (1_763_299_215.12, "1.76329921512e+09"),
            (2.5e100, "2.5e+100"),
            (1e-300, "1e-300"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
