//! `/metrics`: what the server did, in Prometheus' text format under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;

/// Upper bounds of the latency histogram, in seconds: upstream's.
const BUCKETS: [f64; 21] =
    [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0];

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

#[derive(Debug, Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
    in_flight: i64,
}

/// The server's counters.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<RequestLabels, Series>>,
}

impl Metrics {
    /// Counts an answered request. Watches count when they end.
    pub fn answered(&self, labels: &RequestLabels, code: u16, took: Duration) {
        let mut requests = self.requests.lock();
        let series = match requests.get_mut(labels) {
            Some(series) => series,
            None => requests.entry(labels.clone()).or_default(),
        };
        *series.codes.entry(code).or_default() += 1;
        let seconds = took.as_secs_f64();
        series.count += 1;
        series.seconds += seconds;
        for (bucket, bound) in series.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
    }

    /// Counts a watch that began (`1`) or ended (`-1`).
    pub fn watching(&self, labels: &RequestLabels, change: i64) {
        self.requests.lock().entry(labels.clone()).or_default().in_flight += change;
    }

    /// Everything, in Prometheus' text format.
    pub fn render(&self, revision: u64) -> String {
        let requests = self.requests.lock();
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = out.write_fmt(text);
            out.push('\n');
        };
        line(format_args!("# HELP apiserver_request_total Requests by verb, resource and HTTP code."));
        line(format_args!("# TYPE apiserver_request_total counter"));
        for (labels, series) in requests.iter() {
            for (code, count) in &series.codes {
                line(format_args!("apiserver_request_total{{code=\"{code}\",{labels}}} {count}"));
            }
        }
        line(format_args!("# HELP apiserver_request_duration_seconds How long requests took."));
        line(format_args!("# TYPE apiserver_request_duration_seconds histogram"));
        let name = "apiserver_request_duration_seconds";
        for (labels, series) in requests.iter().filter(|(_, series)| series.count > 0) {
            for (count, bound) in series.buckets.iter().zip(BUCKETS) {
                line(format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {count}"));
            }
            line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", series.count));
            line(format_args!("{name}_sum{{{labels}}} {}", series.seconds));
            line(format_args!("{name}_count{{{labels}}} {}", series.count));
        }
        line(format_args!("# HELP apiserver_longrunning_requests Watches that are open."));
        line(format_args!("# TYPE apiserver_longrunning_requests gauge"));
        for (labels, series) in requests.iter().filter(|(labels, _)| labels.verb == "WATCH") {
            line(format_args!("apiserver_longrunning_requests{{{labels}}} {}", series.in_flight));
        }
        line(format_args!("# HELP windlass_store_revision The newest revision of the store."));
        line(format_args!("# TYPE windlass_store_revision gauge"));
        line(format_args!("windlass_store_revision {revision}"));
        out
    }
}

impl std::fmt::Display for RequestLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "component=\"apiserver\",dry_run=\"{}\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
            self.dry_run, self.group, self.resource, self.scope, self.subresource, self.verb, self.version
        )
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
        metrics.answered(&labels, 200, Duration::from_millis(30));
        let text = metrics.render(7);
        assert!(text.contains(
            "apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"pods\""
        ));
        assert!(text.contains("le=\"0.025\"} 0") && text.contains("le=\"0.05\"} 1"));
    }
}
