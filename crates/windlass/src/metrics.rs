//! Metrics in Prometheus' text format, under controller-runtime's names, so that existing
//! dashboards and alerts work.
//!
//! A [`Registry`] belongs to a manager, not to the process. Numbers that are cheap to keep are
//! kept ([`Counter`], [`Gauge`], [`Histogram`]); those that are cheap to look up when somebody
//! asks are looked up ([`Registry::collect`]). A manager's registry also shows the process, as
//! `process_cpu_seconds_total` and the like, on Linux.

pub(crate) mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

/// A number that only grows.
///
/// ```
/// use windlass::metrics::Registry;
///
/// let registry = Registry::default();
/// let fed = registry.counter("petstore_fed_total", "Pets fed", &[("kind", "dog")]);
/// fed.inc();
/// fed.add(2);
/// assert!(registry.encode().contains("petstore_fed_total{kind=\"dog\"} 3"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
///
/// ```
/// use windlass::metrics::Registry;
///
/// let registry = Registry::default();
/// let hungry = registry.gauge("petstore_hungry", "Pets that wait", &[]);
/// hungry.set(5);
/// hungry.add(-1);
/// assert_eq!(hungry.get(), 4);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds, or with a negative number subtracts.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often durations fell into which bucket.
///
/// ```
/// use std::time::Duration;
/// use windlass::metrics::Registry;
///
/// let registry = Registry::default();
/// let feeding = registry.histogram("petstore_feeding_seconds", "How long it takes", &[], &[0.1, 1.0]);
/// feeding.observe(Duration::from_millis(300));
/// assert!(registry.encode().contains("petstore_feeding_seconds_bucket{le=\"1\"} 1"));
/// ```
#[derive(Debug, Clone)]
pub struct Histogram(Arc<HistogramInner>);

#[derive(Debug)]
struct HistogramInner {
    bounds: &'static [f64],
    /// One more than `bounds`: the last is for everything above.
    counts: Box<[AtomicU64]>,
    sum_nanos: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self(Arc::new(HistogramInner {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
        }))
    }

    /// Counts a duration.
    pub fn observe(&self, duration: Duration) {
        let inner = &*self.0;
        let seconds = duration.as_secs_f64();
        let bucket = inner.bounds.partition_point(|bound| *bound < seconds);
        inner.counts[bucket].fetch_add(1, Ordering::Relaxed);
        inner.sum_nanos.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    series: BTreeMap<String, Series>,
}

type Collector = Box<dyn Fn(&mut Scrape) + Send + Sync>;

#[derive(Default)]
struct Inner {
    families: Mutex<BTreeMap<&'static str, Family>>,
    /// By a name of their own, so that what starts again replaces what it left behind.
    collectors: Mutex<BTreeMap<String, Collector>>,
}

/// The metrics of a manager; clones share them.
///
/// ```
/// use windlass::metrics::Registry;
///
/// let registry = Registry::default();
/// let fed = registry.counter("petstore_fed_total", "Pets fed.", &[("species", "dog")]);
/// fed.inc();
/// assert!(registry.encode().contains("petstore_fed_total{species=\"dog\"} 1"));
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A registry that is not kept alive. What collects may hold clients: a client that held the registry would hold
/// itself.
#[derive(Clone)]
pub(crate) struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    /// The registry, while there is somebody else to read it.
    pub(crate) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner })
    }
}

impl Registry {
    /// This registry, not kept alive.
    pub(crate) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner))
    }

    /// A counter; the same name and labels give the same counter.
    pub fn counter(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Counter {
        match self.series(name, help, "counter", labels, || Series::Counter(Counter::default())) {
            Series::Counter(counter) => counter,
            _ => Counter::default(),
        }
    }

    /// A gauge; the same name and labels give the same gauge.
    pub fn gauge(&self, name: &'static str, help: &'static str, labels: &[(&str, &str)]) -> Gauge {
        match self.series(name, help, "gauge", labels, || Series::Gauge(Gauge::default())) {
            Series::Gauge(gauge) => gauge,
            _ => Gauge::default(),
        }
    }

    /// A histogram of seconds with these upper bounds, ascending.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        bounds: &'static [f64],
    ) -> Histogram {
        match self.series(name, help, "histogram", labels, || Series::Histogram(Histogram::new(bounds))) {
            Series::Histogram(histogram) => histogram,
            _ => Histogram::new(bounds),
        }
    }

    /// Asks a function for its numbers at every scrape.
    pub fn collect(&self, collector: impl Fn(&mut Scrape) + Send + Sync + 'static) {
        let mut collectors = self.inner.collectors.lock();
        let name = format!("user/{}", collectors.len());
        collectors.insert(name, Box::new(collector));
    }

    /// Like [`collect`](Self::collect), in place of what was registered under the name.
    pub(crate) fn replace_collector(&self, name: &str, collector: impl Fn(&mut Scrape) + Send + Sync + 'static) {
        let mut collectors = self.inner.collectors.lock();
        collectors.insert(name.to_owned(), Box::new(collector));
    }

    /// Everything, in Prometheus' text format.
    pub fn encode(&self) -> String {
        let mut scrape = Scrape::default();
        for collector in self.inner.collectors.lock().values() {
            collector(&mut scrape);
        }
        for (name, family) in self.inner.families.lock().iter() {
            for (labels, series) in &family.series {
                let lines = scrape.family(name, family.help, family.kind);
                match series {
                    Series::Counter(counter) => line(lines, name, "", labels, counter.get() as f64),
                    Series::Gauge(gauge) => line(lines, name, "", labels, gauge.get() as f64),
                    Series::Histogram(histogram) => {
                        encode_histogram(lines, name, labels, histogram);
                    }
                }
            }
        }
        scrape.finish()
    }

    /// A name used before with another type is a mistake; the new series is then not exported.
    fn series(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        new: impl FnOnce() -> Series,
    ) -> Series {
        let mut families = self.inner.families.lock();
        let family = families.entry(name).or_insert_with(|| Family { help, kind, series: BTreeMap::new() });
        if family.kind != kind {
            tracing::error!(name, "metric registered twice with different types");
            return new();
        }
        family.series.entry(encode_labels(labels)).or_insert_with(new).clone()
    }
}

/// Numbers looked up for one scrape.
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
    families: BTreeMap<String, (String, String)>,
}

impl Scrape {
    /// A gauge.
    pub fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels = encode_labels(labels);
        line(self.family(name, help, "gauge"), name, "", &labels, value);
    }

    /// A counter.
    pub fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels = encode_labels(labels);
        line(self.family(name, help, "counter"), name, "", &labels, value);
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) -> &mut String {
        let header = || format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        let family = self.families.entry(name.to_owned());
        &mut family.or_insert_with(|| (header(), String::new())).1
    }

    fn finish(self) -> String {
        let mut text = String::new();
        for (header, lines) in self.families.into_values() {
            text.push_str(&header);
            text.push_str(&lines);
        }
        text
    }
}

fn encode_labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let separator = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{separator}{name}=\"{value}\"");
    }
    text
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &str, value: f64) {
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
fn number(value: f64) -> String {
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

fn encode_histogram(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    let inner = &*histogram.0;
    let separator = if labels.is_empty() { "" } else { "," };
    let mut total = 0;
    for (index, count) in inner.counts.iter().enumerate() {
        total += count.load(Ordering::Relaxed);
        let bound = number(inner.bounds.get(index).copied().unwrap_or(f64::INFINITY));
        let labels = format!("{labels}{separator}le=\"{bound}\"");
        line(text, name, "_bucket", &labels, total as f64);
    }
    let sum = Duration::from_nanos(inner.sum_nanos.load(Ordering::Relaxed)).as_secs_f64();
    line(text, name, "_sum", labels, sum);
    line(text, name, "_count", labels, total as f64);
}

/// Bounds of `controller_runtime_reconcile_time_seconds`.
pub(crate) const RECONCILE_BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Bounds of the work queue's histograms: ten nanoseconds times powers of ten, multiplied one after the other
/// as Prometheus' `ExponentialBuckets` does: some are a little off, and are known by that.
pub(crate) const QUEUE_BOUNDS: &[f64] = &{
    let mut bounds = [1e-8; 12];
    let mut index = 1;
    while index < bounds.len() {
        bounds[index] = bounds[index - 1] * 10.0;
        index += 1;
    }
    bounds
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_counters_gauges_and_histograms() {
        let registry = Registry::default();
        registry.counter("b_total", "B.", &[("x", "1\"\n")]).add(3);
        registry.counter("b_total", "B.", &[("x", "1\"\n")]).inc();
        registry.gauge("a", "A.", &[]).set(-2);
        let histogram = registry.histogram("h", "H.", &[("c", "d")], &[0.1, 1.0]);
        histogram.observe(Duration::from_millis(100));
        histogram.observe(Duration::from_millis(500));
        histogram.observe(Duration::from_secs(2));
        registry.collect(|scrape| scrape.gauge("depth", "D.", &[("name", "q")], 1.5));
        let expected = "\
# HELP a A.
# TYPE a gauge
a -2
# HELP b_total B.
# TYPE b_total counter
b_total{x=\"1\\\"\\n\"} 4
# HELP depth D.
# TYPE depth gauge
depth{name=\"q\"} 1.5
# HELP h H.
# TYPE h histogram
h_bucket{c=\"d\",le=\"0.1\"} 1
h_bucket{c=\"d\",le=\"1\"} 2
h_bucket{c=\"d\",le=\"+Inf\"} 3
h_sum{c=\"d\"} 2.6
h_count{c=\"d\"} 3
";
        assert_eq!(registry.encode(), expected);
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

    /// As they are shown by every controller in Go.
    #[test]
    fn bounds_of_queues_are_those_of_prometheus() {
        let bounds: Vec<String> = QUEUE_BOUNDS.iter().map(|bound| number(*bound)).collect();
        let expected = [
            "1e-08",
            "1e-07",
            "1e-06",
            "9.999999999999999e-06",
            "9.999999999999999e-05",
            "0.001",
            "0.01",
            "0.1",
            "1",
            "10",
            "100",
            "1000",
        ];
        assert_eq!(bounds, expected);
    }

    #[test]
    fn a_name_keeps_its_type() {
        let registry = Registry::default();
        registry.counter("a", "A.", &[]).inc();
        registry.gauge("a", "A.", &[]).set(7);
        assert!(registry.encode().contains("a 1\n"));
    }
}
