//! Metrics in Prometheus' text format, as its Go library writes them: sorted, escaped, and with Go's numbers.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn of(text: &str) -> Option<Self> {
        match text {
            "counter" => Some(Self::Counter),
            "gauge" => Some(Self::Gauge),
            "histogram" => Some(Self::Histogram),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What was measured of one object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: BTreeMap<String, String>,
    /// Of a counter or a gauge.
    pub(super) value: f64,
    /// Of a histogram: upper bound, how many are in this bucket alone, and whether it is not shown.
    pub(super) buckets: Vec<(f64, u64, bool)>,
}

#[derive(Debug)]
struct Family {
    help: String,
    kind: Kind,
    /// By labels: the last sample with the same ones counts.
    samples: BTreeMap<Vec<(String, String)>, Sample>,
}

/// All metrics of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    families: BTreeMap<String, Family>,
}

impl Page {
    /// Adds the samples of a metric. What has the name of a metric of another kind is left out.
    pub(super) fn add(&mut self, name: &str, help: &str, kind: Kind, samples: Vec<Sample>) {
        if samples.is_empty() || !is_name(name) {
            return;
        }
        let new = || Family { help: help.to_owned(), kind, samples: BTreeMap::new() };
        let family = self.families.entry(name.to_owned()).or_insert_with(new);
        if family.kind != kind {
            return;
        }
        for sample in samples {
            let labels = sample.labels.iter().filter(|(label, _)| is_name(label));
            let labels = labels.map(|(label, value)| (label.clone(), value.clone())).collect();
            family.samples.insert(labels, sample);
        }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in &self.families {
            if !family.help.is_empty() {
                writeln!(f, "# HELP {name} {}", escaped(&family.help, false))?;
            }
            writeln!(f, "# TYPE {name} {}", family.kind.as_str())?;
            for (labels, sample) in &family.samples {
                match family.kind {
                    Kind::Counter | Kind::Gauge => {
                        writeln!(f, "{name}{} {}", braces(labels, None), number(sample.value))?;
                    }
                    Kind::Histogram => histogram(f, name, labels, &sample.buckets)?,
                }
            }
        }
        Ok(())
    }
}

/// Buckets that are not shown count in those above them, as in kwok's `histogram.go`.
fn histogram(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    labels: &[(String, String)],
    buckets: &[(f64, u64, bool)],
) -> fmt::Result {
    let mut sorted = buckets.to_vec();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (mut count, mut sum) = (0_u64, 0.0);
    for (bound, own, hidden) in sorted {
        count = count.saturating_add(own);
        sum += bound * own as f64;
        if !hidden {
            writeln!(f, "{name}_bucket{} {count}", braces(labels, Some(&number(bound))))?;
        }
    }
    writeln!(f, "{name}_bucket{} {count}", braces(labels, Some("+Inf")))?;
    writeln!(f, "{name}_sum{} {}", braces(labels, None), number(sum))?;
    writeln!(f, "{name}_count{} {count}", braces(labels, None))
}

fn braces(labels: &[(String, String)], bound: Option<&str>) -> String {
    let labels = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value, true)));
    let all: Vec<String> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A name of a metric or a label.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// A number as Go prints it with `%g` and as many digits as needed.
fn number(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go takes the precision to be 6 when it prints as many digits as needed.
    if number == 0.0 || (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let mut text = digits.to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(text, "e{sign}{:02}", exponent.abs());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(labels: &[(&str, &str)], value: f64) -> Sample {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        Sample { labels, value, buckets: Vec::new() }
    }

    #[test]
    fn pages_are_sorted_and_escaped() {
        let mut page = Page::default();
        let samples =
            vec![sample(&[("pod", "b\"\\")], 2.5), sample(&[("pod", "a")], 1.0), sample(&[("pod", "a")], 3.0)];
        page.add("z_total", "what\nit is", Kind::Counter, samples);
        page.add("a", "", Kind::Gauge, vec![sample(&[], 1_048_576.0)]);
        page.add("a", "", Kind::Counter, vec![sample(&[], 1.0)]);
        page.add("not a name", "", Kind::Gauge, vec![sample(&[], 1.0)]);
        let expected = "# TYPE a gauge\na 1.048576e+06\n\
                        # HELP z_total what\\nit is\n# TYPE z_total counter\n\
                        z_total{pod=\"a\"} 3\nz_total{pod=\"b\\\"\\\\\"} 2.5\n";
        assert_eq!(page.to_string(), expected);
    }

    #[test]
    fn hidden_buckets_count_in_those_above() {
        let mut page = Page::default();
        let buckets = vec![(0.5, 2, true), (0.1, 1, false), (1.0, 3, false), (5.0, 4, true)];
        page.add("h", "", Kind::Histogram, vec![Sample { labels: BTreeMap::new(), value: 0.0, buckets }]);
        let expected = "# TYPE h histogram\nh_bucket{le=\"0.1\"} 1\nh_bucket{le=\"1\"} 6\nh_bucket{le=\"+Inf\"} 10\n\
                        h_sum 24.1\nh_count 10\n";
        assert_eq!(page.to_string(), expected);
    }

    #[test]
    fn numbers_are_those_of_go() {
        for (value, expected) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (123_456.0, "123456"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
