//! `/metrics`: what the server did, in Prometheus' text format under upstream's names.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of how long requests take, in seconds: upstream's.
const SECONDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// The same for requests without their webhooks.
const SLI_SECONDS: [f64; 21] =
    [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
/// Upper bounds of how large answers are, in bytes, and how Go prints them.
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
const SIZE_NAMES: [&str; 7] = ["1000", "10000", "100000", "1e+06", "1e+07", "1e+08", "1e+09"];

/// How long one request has waited for admission webhooks. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<AtomicU64>);

impl Waits {
    /// It waited this long.
    pub fn add(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// How long it has waited altogether.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What a request was for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLabels {
    /// The verb, upper case as upstream has it: `GET`, `LIST`, `WATCH`, `POST`, …
    pub verb: &'static str,
    /// `All`, or nothing.
    pub dry_run: &'static str,
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// `resource`, `namespace` or `cluster`.
    pub scope: &'static str,
}

impl RequestLabels {
    /// The same, as if for real: not everything that is counted tells dry runs apart.
    fn without_dry_run(&self) -> Self {
        Self { dry_run: "", ..self.clone() }
    }

    fn write_rest(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, version, resource, subresource, scope, .. } = self;
        write!(
            f,
            "group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",\
             verb=\"{verb}\",version=\"{version}\""
        )
    }
}

/// How many values are up to each bound, and above the one before.
#[derive(Debug)]
pub(crate) struct Histogram<const N: usize> {
    buckets: [u64; N],
    count: u64,
    sum: f64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { buckets: [0; N], count: 0, sum: 0.0 }
    }
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn observe(&mut self, value: f64, bounds: &[f64; N]) {
        if let Some(bucket) = self.buckets.get_mut(bounds.partition_point(|bound| *bound < value)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += value;
    }

    pub(crate) fn render(&self, out: &mut String, name: &str, labels: &dyn Display, bounds: &[impl Display; N]) {
        if self.count == 0 {
            return;
        }
        let mut below = 0;
        for (count, bound) in self.buckets.iter().zip(bounds) {
            below += count;
            line(out, format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {below}"));
        }
        line(out, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count));
        line(out, format_args!("{name}_sum{{{labels}}} {}", self.sum));
        line(out, format_args!("{name}_count{{{labels}}} {}", self.count));
    }
}

#[derive(Debug, Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    seconds: Histogram<{ SECONDS.len() }>,
    /// Without webhooks and dry runs.
    sli_seconds: Histogram<{ SLI_SECONDS.len() }>,
    sizes: Histogram<{ SIZES.len() }>,
    in_flight: i64,
}

/// Writes metrics in Prometheus' text format.
type Source = Arc<dyn Fn() -> String + Send + Sync>;

/// The server's counters.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<RequestLabels, Series>>,
    /// The metrics of other parts of the process.
    sources: Mutex<Vec<Source>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Counts a request that was answered after `took`, of which webhooks had `waited`. Watches count when they begin.
    pub fn answered(&self, labels: &RequestLabels, code: u16, took: Duration, waited: Duration) {
        self.count(labels, |series| {
            *series.codes.entry(code).or_default() += 1;
            series.seconds.observe(took.as_secs_f64(), &SECONDS);
            if labels.dry_run.is_empty() {
                series.sli_seconds.observe(took.saturating_sub(waited).as_secs_f64(), &SLI_SECONDS);
            }
        });
    }

    /// Counts what a read was answered with.
    #[allow(clippy::cast_precision_loss, reason = "answers are smaller than 2^52 bytes")]
    pub fn sent(&self, labels: &RequestLabels, bytes: u64) {
        let observe = |series: &mut Series| series.sizes.observe(bytes as f64, &SIZES);
        if labels.dry_run.is_empty() {
            self.count(labels, observe);
        } else {
            self.count(&labels.without_dry_run(), observe);
        }
    }

    /// Counts a watch that began (`1`) or ended (`-1`).
    pub fn watching(&self, labels: &RequestLabels, change: i64) {
        self.count(&labels.without_dry_run(), |series| series.in_flight += change);
    }

    /// Shows the metrics of another part of the process as well.
    pub(crate) fn add_source(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.sources.lock().push(Arc::new(source));
    }

    fn count(&self, labels: &RequestLabels, change: impl FnOnce(&mut Series)) {
        let mut requests = self.requests.lock();
        change(match requests.get_mut(labels) {
            Some(series) => series,
            None => requests.entry(labels.clone()).or_default(),
        });
    }

    /// Everything, in Prometheus' text format.
    pub fn render(&self, revision: u64) -> String {
        let requests = self.requests.lock();
        let mut out = String::new();
        let out = &mut out;
        heading(out, "apiserver_request_total", "counter", "Requests by verb, resource and HTTP code.");
        for (labels, series) in requests.iter() {
            for (code, count) in &series.codes {
                line(out, format_args!("apiserver_request_total{{code=\"{code}\",{labels}}} {count}"));
            }
        }
        let name = "apiserver_request_duration_seconds";
        heading(out, name, "histogram", "How long requests took.");
        for (labels, series) in requests.iter() {
            series.seconds.render(out, name, labels, &SECONDS);
        }
        let name = "apiserver_request_sli_duration_seconds";
        heading(out, name, "histogram", "How long requests took, without their admission webhooks.");
        for (labels, series) in requests.iter() {
            series.sli_seconds.render(out, name, &ForReal(labels), &SLI_SECONDS);
        }
        let name = "apiserver_response_sizes";
        heading(out, name, "histogram", "How many bytes reads were answered with.");
        for (labels, series) in requests.iter() {
            series.sizes.render(out, name, &ForReal(labels), &SIZE_NAMES);
        }
        let name = "apiserver_longrunning_requests";
        heading(out, name, "gauge", "Watches that are open.");
        for (labels, series) in requests.iter() {
            if (labels.verb, labels.dry_run) == ("WATCH", "") {
                line(out, format_args!("{name}{{{}}} {}", ForReal(labels), series.in_flight));
            }
        }
        let name = "windlass_store_revision";
        heading(out, name, "gauge", "The newest revision of the store.");
        line(out, format_args!("{name} {revision}"));
        drop(requests);
        // Sources may make requests of their own, so nothing is locked while they write.
        let sources = self.sources.lock().clone();
        for source in sources {
            out.push_str(&source());
        }
        std::mem::take(out)
    }
}

pub(crate) fn heading(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {kind}"));
}

pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.push('\n');
}

impl Display for RequestLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "component=\"apiserver\",dry_run=\"{}\",", self.dry_run)?;
        self.write_rest(f)
    }
}

/// Labels of what does not tell dry runs apart.
struct ForReal<'a>(&'a RequestLabels);

impl Display for ForReal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("component=\"apiserver\",")?;
        self.0.write_rest(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted() {
        let metrics = Metrics::default();
        let labels = RequestLabels {
            verb: "GET",
            dry_run: "",
            group: String::new(),
            version: "v1".into(),
            resource: "pods".into(),
            subresource: String::new(),
            scope: "resource",
        };
        metrics.answered(&labels, 200, Duration::from_millis(30), Duration::ZERO);
        let text = metrics.render(7);
        assert!(text.contains(
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\""
        ));
        assert!(text.contains("le=\"0.025\"} 0") && text.contains("le=\"0.05\"} 1"));
    }

    #[test]
    fn webhooks_and_dry_runs_are_no_matter_of_the_server() {
        let metrics = Metrics::default();
        let labels = RequestLabels {
            verb: "POST",
            dry_run: "All",
            group: String::new(),
            version: "v1".into(),
            resource: "pods".into(),
            subresource: String::new(),
            scope: "resource",
        };
        metrics.answered(&labels, 201, Duration::from_millis(30), Duration::ZERO);
        assert!(!metrics.render(7).contains("sli_duration_seconds_count"));
        let waits = Waits::default();
        waits.clone().add(Duration::from_secs(2));
        metrics.answered(&labels.without_dry_run(), 201, Duration::from_millis(2100), waits.total());
        let text = metrics.render(7);
        let name = "apiserver_request_sli_duration_seconds";
        let labels = ForReal(&labels).to_string();
        assert!(text.contains(&format!("{name}_bucket{{{labels},le=\"0.05\"}} 0\n")), "{text}");
        assert!(text.contains(&format!("{name}_bucket{{{labels},le=\"0.1\"}} 1\n")), "{text}");
        assert!(text.contains(&format!("{name}_bucket{{{labels},le=\"60\"}} 1\n")), "{text}");
    }
}
