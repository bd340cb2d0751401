//! The samples of a page of metrics: of those with the same labels the last one counts. The text is the library's
//! ([`Scrape`]), which writes numbers as Go does.

use std::collections::BTreeMap;

use windlass::metrics::Scrape;

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
        if samples.is_empty() {
            return;
        }
        let new = || Family { help: help.to_owned(), kind, samples: BTreeMap::new() };
        let family = self.families.entry(name.to_owned()).or_insert_with(new);
        if family.kind != kind {
            return;
        }
        for sample in samples {
            let labels = sample.labels.iter().filter(|(label, _)| is_label(label));
            let labels = labels.map(|(label, value)| (label.clone(), value.clone())).collect();
            family.samples.insert(labels, sample);
        }
    }
}

impl Page {
    /// The page, sorted.
    pub(super) fn encode(&self) -> String {
        let mut scrape = Scrape::default();
        for (name, Family { help, kind, samples }) in &self.families {
            for (labels, sample) in samples {
                let labels: Vec<_> = labels.iter().map(|(label, value)| (&**label, &**value)).collect();
                match kind {
                    Kind::Counter => scrape.counter(name, help, &labels, sample.value),
                    Kind::Gauge => scrape.gauge(name, help, &labels, sample.value),
                    Kind::Histogram => {
                        let (shown, total) = cumulated(&sample.buckets);
                        scrape.histogram(name, help, &labels, &shown, total);
                    }
                }
            }
        }
        scrape.encode()
    }
}

/// The buckets that are shown, with what is in them and below; how many values there are, and their sum. Buckets that are
/// not shown count in those above them, as in kwok's `histogram.go`.
fn cumulated(buckets: &[(f64, u64, bool)]) -> (Vec<(f64, u64)>, (u64, f64)) {
    let mut sorted = buckets.to_vec();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (mut shown, mut count, mut sum) = (Vec::new(), 0_u64, 0.0);
    for (bound, own, hidden) in sorted {
        count = count.saturating_add(own);
        sum += bound * own as f64;
        if !hidden {
            shown.push((bound, count));
        }
    }
    (shown, (count, sum))
}

/// What Prometheus takes for the name of a label.
fn is_label(text: &str) -> bool {
    let mut bytes = text.bytes();
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
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
        assert_eq!(page.encode(), expected);
    }

    #[test]
    fn hidden_buckets_count_in_those_above() {
        let mut page = Page::default();
        let buckets = vec![(0.5, 2, true), (0.1, 1, false), (1.0, 3, false), (5.0, 4, true)];
        page.add("h", "", Kind::Histogram, vec![Sample { labels: BTreeMap::new(), value: 0.0, buckets }]);
        let expected = "# TYPE h histogram\nh_bucket{le=\"0.1\"} 1\nh_bucket{le=\"1\"} 6\nh_bucket{le=\"+Inf\"} 10\n\
                        h_sum 24.1\nh_count 10\n";
        assert_eq!(page.encode(), expected);
    }
}
