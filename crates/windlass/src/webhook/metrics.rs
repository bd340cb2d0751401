//! The numbers of the webhooks, under controller-runtime's names.

use std::collections::HashMap;
use std::time::Duration;

use http::StatusCode;

use crate::metrics::{Counter, Gauge, Histogram, RECONCILE_BOUNDS, Registry};

#[derive(Clone)]
pub(super) struct Metrics {
    registry: Registry,
    panics: Counter,
    conversion_panics: Counter,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let panics = registry.counter("controller_runtime_webhook_panics_total", "Webhooks that panicked", &[]);
        let conversion_panics =
            registry.counter("controller_runtime_conversion_webhook_panics_total", "Conversions that panicked", &[]);
        Self { registry: registry.clone(), panics, conversion_panics }
    }

    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    pub(super) fn conversion_panicked(&self) {
        self.conversion_panics.inc();
    }

    /// The numbers of one path.
    pub(super) fn path(&self, path: &str) -> PathMetrics {
        let labels = &[("webhook", path)];
        let total = |code: StatusCode| {
            self.registry.counter(
                "controller_runtime_webhook_requests_total",
                "Admission requests, by the code of the answer",
                &[("webhook", path), ("code", code.as_str())],
            )
        };
        // Every status that is ever answered, so that counting needs no lock.
        let codes = [400, 408, 413, 415, 504].into_iter().filter_map(|code| StatusCode::from_u16(code).ok());
        let codes = codes.chain([StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR]);
        PathMetrics {
            totals: codes.map(|code| (code, total(code))).collect(),
            latency: self.registry.histogram(
                "controller_runtime_webhook_latency_seconds",
                "How long admission requests took, in seconds",
                labels,
                RECONCILE_BOUNDS,
            ),
            in_flight: self.registry.gauge(
                "controller_runtime_webhook_requests_in_flight",
                "Admission requests being answered now",
                labels,
            ),
        }
    }
}

pub(super) struct PathMetrics {
    totals: HashMap<StatusCode, Counter>,
    latency: Histogram,
    in_flight: Gauge,
}

impl PathMetrics {
    /// Counts a request as being served until the value is dropped, which it also is when the
    /// client goes away.
    pub(super) fn enter(&self) -> InFlight<'_> {
        self.in_flight.add(1);
        InFlight(&self.in_flight)
    }

    pub(super) fn observe(&self, code: StatusCode, duration: Duration) {
        if let Some(total) = self.totals.get(&code) {
            total.inc();
        }
        self.latency.observe(duration);
    }
}

pub(super) struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
