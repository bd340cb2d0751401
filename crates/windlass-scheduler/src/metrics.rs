//! What the scheduler counts, under kube-scheduler's names (`pkg/scheduler/metrics/metrics.go`), so that dashboards work.

use std::time::Duration;

use windlass::metrics::{Counter, Histogram, Registry};

use crate::schedule::{Decision, Nomination};

/// Upper bounds of how long an attempt takes, in seconds: upstream's.
const SECONDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// The attempts to find nodes for the pods of one profile.
#[derive(Debug)]
pub(crate) struct Attempts {
    scheduled: (Counter, Histogram),
    unschedulable: (Counter, Histogram),
    preemptions: Counter,
}

impl Attempts {
    pub(crate) fn new(registry: &Registry, profile: &str) -> Self {
        let attempts = |result: &str| {
            let labels = [("profile", profile), ("result", result)];
            let count = "Attempts to schedule pods, by whether a node was found";
            let time = "How long attempts to schedule pods took, without their binding";
            (
                registry.counter("scheduler_schedule_attempts_total", count, &labels),
                registry.histogram("scheduler_scheduling_attempt_duration_seconds", time, &labels, &SECONDS),
            )
        };
        let preemptions = "Attempts that chose pods to be deleted for another one";
        Self {
            scheduled: attempts("scheduled"),
            unschedulable: attempts("unschedulable"),
            preemptions: registry.counter("scheduler_preemption_attempts_total", preemptions, &[]),
        }
    }

    pub(crate) fn count(&self, decision: &Decision, took: Duration) {
        let (attempts, seconds) = match decision {
            Decision::Bind { .. } => &self.scheduled,
            Decision::Wait(failure) => {
                if matches!(failure.nomination, Nomination::Preempt { .. }) {
                    self.preemptions.inc();
                }
                &self.unschedulable
            }
        };
        attempts.inc();
        seconds.observe(took);
    }
}

/// Shows how many pods wait for a node, and for what: `sizes` gives the queues with their lengths, or nothing once the
/// scheduler is gone.
pub(crate) fn show_pending(
    registry: &Registry,
    sizes: impl Fn() -> Option<[(&'static str, usize); 4]> + Send + Sync + 'static,
) {
    registry.collect(move |scrape| {
        for (queue, pods) in sizes().into_iter().flatten() {
            let help = "Pods without a node, by the queue they are in";
            scrape.gauge("scheduler_pending_pods", help, &[("queue", queue)], pods as f64);
        }
    });
}
