//! Metrics in Prometheus' text format, under controller-runtime's names, so that existing
//! dashboards and alerts work.
//!
//! A [`Registry`] belongs to a manager, not to the process. A [`Counter`], [`Gauge`] or [`Histogram`] keeps its value;
//! a function given to [`Registry::collect`] computes values when the metrics are scraped. On Linux, a manager's
//! registry also has the metrics of the process, such as `process_cpu_seconds_total`.
//!
//! Prometheus rejects a whole scrape if one line is invalid. A metric whose name or labels are invalid, or whose name
//! belongs to a metric of another type, is therefore left out and logged once. The library's own metrics always appear.

pub(crate) mod process;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::object::panic_message;
pub use text::Scrape;
use text::{DIFFERENT_TYPES, encode_histogram, encode_labels, line, problem};

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
    /// Whether it is the library's.
    own: bool,
    series: BTreeMap<String, Series>,
}

#[derive(Clone)]
struct Collector {
    /// Whether it is the library's.
    own: bool,
    collect: Arc<dyn Fn(&mut Scrape) + Send + Sync>,
}

/// How many metrics that are not shown the log names.
const MOST_COMPLAINTS: usize = 100;

#[derive(Default)]
struct Inner {
    families: Mutex<BTreeMap<&'static str, Family>>,
    /// By a name of their own, so that what starts again replaces what it left behind.
    collectors: Mutex<BTreeMap<String, Collector>>,
    /// How often those panicked.
    panics: Counter,
    /// Of which metrics it was said that they are not shown.
    complaints: Mutex<BTreeSet<String>>,
}

impl Inner {
    /// Says once that a metric is not shown.
    fn complain(&self, name: &str, problem: &str) {
        let mut complaints = self.complaints.lock();
        if complaints.len() < MOST_COMPLAINTS && complaints.insert(name.to_owned()) {
            tracing::error!(name, problem, "metric not shown");
        }
    }
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
    /// Whether what is registered with this handle is the library's.
    own: bool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A registry that is not kept alive. What collects may hold clients: a client that held the registry would hold
/// itself.
#[derive(Clone)]
pub(crate) struct WeakRegistry(Weak<Inner>, bool);

impl WeakRegistry {
    /// The registry, while there is another owner to read it.
    pub(crate) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner, own: self.1 })
    }
}

impl Registry {
    /// This registry, not kept alive.
    pub(crate) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner), self.own)
    }

    /// This registry, for metrics of the library: they are shown whatever a user has registered.
    pub(crate) fn for_library(&self) -> Self {
        Self { own: true, ..self.clone() }
    }

    /// A counter; the same name and labels give the same counter. One that cannot be shown counts all
    /// the same: see the [module documentation](self).
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

    /// Asks a function for its numbers at every scrape. One that panics has none, which is logged and
    /// counted by `windlass_metrics_collector_panics_total`.
    pub fn collect(&self, collector: impl Fn(&mut Scrape) + Send + Sync + 'static) {
        let mut collectors = self.inner.collectors.lock();
        let name = format!("user/{}", collectors.len());
        collectors.insert(name, Collector { own: self.own, collect: Arc::new(collector) });
    }

    /// Like [`collect`](Self::collect), in place of what was registered under the name.
    pub(crate) fn replace_collector(&self, name: &str, collector: impl Fn(&mut Scrape) + Send + Sync + 'static) {
        let mut collectors = self.inner.collectors.lock();
        collectors.insert(name.to_owned(), Collector { own: true, collect: Arc::new(collector) });
    }

    /// Everything, in Prometheus' text format.
    pub fn encode(&self) -> String {
        let mut all = Scrape::default();
        // The first registration decides what type a name is of.
        for own in [true, false] {
            // Before what is registered is read: a collector may bring a counter up to date. Not while the collectors are
            // locked: one may register another.
            let collectors: Vec<_> = self.inner.collectors.lock().values().cloned().collect();
            let mut collected = Vec::new();
            for collector in collectors.iter().filter(|collector| collector.own == own) {
                let mut some = Scrape::default();
                match catch_unwind(AssertUnwindSafe(|| (collector.collect)(&mut some))) {
                    Ok(()) => collected.push(some),
                    Err(panic) => {
                        self.inner.panics.inc();
                        tracing::error!(message = panic_message(&*panic), "metrics collector panicked");
                    }
                }
            }
            self.encode_registered(&mut all, own);
            for some in collected {
                all.add(some);
            }
        }
        if self.inner.panics.get() > 0 {
            let help = "Panics of functions that collect metrics, survived";
            all.counter("windlass_metrics_collector_panics_total", help, &[], self.inner.panics.get() as f64);
        }
        for (name, problem) in &all.refused {
            self.inner.complain(name, problem);
        }
        all.encode()
    }

    /// What was registered, by the library or by others.
    fn encode_registered(&self, all: &mut Scrape, own: bool) {
        for (name, family) in self.inner.families.lock().iter().filter(|(_, family)| family.own == own) {
            let Some(lines) = all.family(name, family.help, family.kind) else { continue };
            for (labels, series) in &family.series {
                match series {
                    Series::Counter(counter) => line(lines, name, "", labels, counter.get() as f64),
                    Series::Gauge(gauge) => line(lines, name, "", labels, gauge.get() as f64),
                    Series::Histogram(histogram) => {
                        encode_histogram(lines, name, labels, histogram);
                    }
                }
            }
        }
    }

    /// A name used before with another type is a mistake; the new series is then not exported, or the
    /// old ones, if the new is the library's.
    fn series(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: &[(&str, &str)],
        new: impl FnOnce() -> Series,
    ) -> Series {
        if let Some(problem) = problem(name, kind, labels) {
            self.inner.complain(name, problem);
            return new();
        }
        let mut families = self.inner.families.lock();
        let fresh = || Family { help, kind, own: self.own, series: BTreeMap::new() };
        let family = families.entry(name).or_insert_with(fresh);
        if family.kind != kind {
            self.inner.complain(name, DIFFERENT_TYPES);
            if family.own || !self.own {
                return new();
            }
            *family = fresh();
        }
        family.own |= self.own;
        family.series.entry(encode_labels(labels)).or_insert_with(new).clone()
    }
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
    use super::text::number;
    use super::*;

    #[test]
    fn counters_that_a_collector_adds_to_are_up_to_date() {
        let registry = Registry::default();
        let counter = registry.counter("seen_total", "S.", &[]);
        registry.collect(move |_| counter.inc());
        assert!(registry.encode().contains("seen_total 1"));
        assert!(registry.encode().contains("seen_total 2"));
    }

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
    fn invalid_names_and_labels_are_not_shown() {
        let registry = Registry::default();
        let counter = registry.counter("bad name!", "B.", &[("la bel", "v")]);
        counter.inc();
        assert_eq!(counter.get(), 1, "counts, though it is not exported");
        registry.counter("twice", "T.", &[("a", "1"), ("a", "2")]).inc();
        registry.counter("label", "L.", &[("a-b", "1")]).inc();
        registry.counter("reserved", "R.", &[("__name__", "1")]).inc();
        registry.gauge("0digit", "D.", &[]).set(1);
        registry.gauge("", "E.", &[]).set(1);
        registry.histogram("h", "H.", &[("le", "1")], &[1.0]).observe(Duration::ZERO);
        registry.collect(|scrape| {
            scrape.gauge("bad name!", "B.", &[], 1.0);
            scrape.counter("label", "L.", &[("", "1")], 1.0);
            scrape.gauge("a:good_1", "two\nlines and a \\", &[("_a1", "\n")], 1.0);
            scrape.counter("a:good_1", "of another type", &[], 1.0);
        });
        let expected = "\
# HELP a:good_1 two\\nlines and a \\\\
# TYPE a:good_1 gauge
a:good_1{_a1=\"\\n\"} 1
";
        assert_eq!(registry.encode(), expected);
    }

    #[test]
    fn the_librarys_own_metrics_are_shown_whatever_others_register() {
        let registry = Registry::default();
        let own = registry.for_library();
        registry.gauge("before", "B.", &[]).set(7);
        let before = own.counter("before", "B.", &[("x", "1")]);
        let after = own.counter("after", "A.", &[]);
        registry.gauge("after", "A.", &[]).set(7);
        registry.collect(|scrape| scrape.gauge("after", "A.", &[], 7.0));
        registry.gauge("looked_up", "L.", &[]).set(7);
        own.replace_collector("z", |scrape| scrape.counter("looked_up", "L.", &[], 3.0));
        before.inc();
        after.add(2);
        let expected = "\
# HELP after A.
# TYPE after counter
after 2
# HELP before B.
# TYPE before counter
before{x=\"1\"} 1
# HELP looked_up L.
# TYPE looked_up counter
looked_up 3
";
        assert_eq!(registry.encode(), expected);
    }

    #[test]
    fn a_collector_that_panics_costs_its_own_series_only() {
        let registry = Registry::default();
        registry.collect(|scrape| {
            scrape.gauge("half", "H.", &[], 1.0);
            panic!("a bug of the user's")
        });
        registry.collect(|scrape| scrape.gauge("whole", "W.", &[], 1.0));
        registry.encode();
        let text = registry.encode();
        assert!(text.contains("whole 1\n") && !text.contains("half"), "{text}");
        assert!(text.contains("windlass_metrics_collector_panics_total 2\n"), "{text}");
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
