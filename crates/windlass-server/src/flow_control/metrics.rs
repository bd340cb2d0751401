//! `apiserver_flowcontrol_*`: what `/metrics` says about priority and fairness, under upstream's names.

use std::fmt::Display;
use std::time::Duration;

use super::FlowControl;
use super::level::Reason;
use crate::metrics::{Histogram, heading, line};

/// Upper bounds, as upstream has them.
const SECONDS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const SEATS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const WATCHERS: [f64; 6] = [0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];

const REASONS: [&str; 3] = ["concurrency-limit", "queue-full", "time-out"];

/// What the requests of one FlowSchema have done at its level.
#[derive(Debug, Default)]
pub(super) struct SchemaCounts {
    pub(super) name: String,
    executing: u32,
    executing_seats: u32,
    waiting: u32,
    waiting_seats: u32,
    dispatched: u64,
    rejected: [u64; REASONS.len()],
    /// Of those who were rejected then, and of those who were executed.
    waits: [Histogram<{ SECONDS.len() }>; 2],
    /// Of requests and of the beginnings of watches.
    executions: [Histogram<{ SECONDS.len() }>; 2],
    queue_lengths: Histogram<{ LENGTHS.len() }>,
    estimates: Histogram<{ SEATS.len() }>,
    watchers: Histogram<{ WATCHERS.len() }>,
}

impl SchemaCounts {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    #[inline]
    pub(super) fn estimated(&mut self, seats: u32, watchers: Option<u32>) {
        self.estimates.observe(f64::from(seats), &SEATS);
        if let Some(watchers) = watchers {
            self.watchers.observe(f64::from(watchers), &WATCHERS);
        }
    }

    pub(super) fn queued(&mut self, seats: u32, length: usize) {
        self.waiting += 1;
        self.waiting_seats += seats;
        self.queue_lengths.observe(length as f64, &LENGTHS);
    }

    pub(super) fn left_queue(&mut self, seats: u32) {
        self.waiting = self.waiting.saturating_sub(1);
        self.waiting_seats = self.waiting_seats.saturating_sub(seats);
    }

    pub(super) fn waited(&mut self, time: Duration, executed: bool) {
        self.waits[usize::from(executed)].observe(time.as_secs_f64(), &SECONDS);
    }

    #[inline]
    pub(super) fn dispatched(&mut self, seats: u32) {
        self.dispatched += 1;
        self.executing += 1;
        self.executing_seats += seats;
    }

    /// A dispatched request has ended; `took` says how long it took and whether it was a watch, if it was executed.
    #[inline]
    pub(super) fn finished(&mut self, seats: u32, took: Option<(Duration, bool)>) {
        self.executing = self.executing.saturating_sub(1);
        self.executing_seats = self.executing_seats.saturating_sub(seats);
        if let Some((time, is_watch)) = took {
            self.executions[usize::from(is_watch)].observe(time.as_secs_f64(), &SECONDS);
        }
    }

    pub(super) fn rejected(&mut self, reason: Reason) {
        self.rejected[reason as usize] += 1;
    }
}

impl FlowControl {
    /// Everything, in Prometheus' text format.
    pub(crate) fn render_metrics(&self) -> String {
        let mut out = String::new();
        self.render_levels(&mut out);
        self.render_schemas(&mut out);
        out
    }

    fn render_levels(&self, out: &mut String) {
        let levels = self.levels.lock();
        let mut gauge = |name: &str, help: &str, value: &dyn Fn(&mut super::level::State) -> f64| {
            let name = format!("apiserver_flowcontrol_{name}");
            heading(out, &name, "gauge", help);
            for level in levels.by_name.values() {
                let value = value(&mut level.state.lock());
                line(out, format_args!("{name}{{priority_level=\"{}\"}} {value}", level.name));
            }
        };
        gauge("nominal_limit_seats", "Seats that each priority level has by its share.", &|state| {
            f64::from(state.bounds.nominal)
        });
        gauge("lower_limit_seats", "Seats that each priority level keeps at least.", &|state| {
            f64::from(state.bounds.min)
        });
        gauge("upper_limit_seats", "Seats that each priority level has at most.", &|state| f64::from(state.bounds.max));
        gauge("current_limit_seats", "Seats that each priority level has now.", &|state| f64::from(state.set.limit()));
        gauge(
            "demand_seats_high_watermark",
            "The most seats that could have been used in the last period.",
            &|state| f64::from(state.demand.high_watermark),
        );
        gauge("demand_seats_average", "Seats that could have been used in the last period, on average.", &|state| {
            state.demand.average
        });
        gauge("demand_seats_stdev", "The standard deviation of the same.", &|state| state.demand.deviation);
        gauge("demand_seats_smoothed", "The seats that borrowing expects to be used.", &|state| state.demand.smoothed);
        gauge("target_seats", "Seats that each priority level would have if there were enough.", &|state| state.target);
        gauge("current_r", "The progress of the fair queues, in seat-seconds.", &|state| state.set.current_r());
        let name = "apiserver_flowcontrol_seat_fair_frac";
        heading(out, name, "gauge", "The part of its target that a priority level gets.");
        line(out, format_args!("{name} {}", levels.fair_fraction));
    }

    fn render_schemas(&self, out: &mut String) {
        let levels = self.levels.lock();
        let mut each =
            |name: &str, kind: &str, help: &str, write: &dyn Fn(&mut String, &str, &Labels<'_>, &SchemaCounts)| {
                let name = format!("apiserver_flowcontrol_{name}");
                heading(out, &name, kind, help);
                for level in levels.by_name.values() {
                    for counts in &level.state.lock().schemas {
                        write(out, &name, &Labels { level: &level.name, schema: &counts.name }, counts);
                    }
                }
            };
        let plain = |value: fn(&SchemaCounts) -> u64| {
            move |out: &mut String, name: &str, labels: &Labels<'_>, counts: &SchemaCounts| {
                line(out, format_args!("{name}{{{labels}}} {}", value(counts)));
            }
        };
        each(
            "dispatched_requests_total",
            "counter",
            "Requests that were executed.",
            &plain(|counts| counts.dispatched),
        );
        each(
            "rejected_requests_total",
            "counter",
            "Requests that were answered with 429.",
            &|out, name, labels, counts| {
                for (reason, count) in REASONS.iter().zip(counts.rejected).filter(|(_, count)| *count > 0) {
                    line(out, format_args!("{name}{{{labels},reason=\"{reason}\"}} {count}"));
                }
            },
        );
        each("current_inqueue_requests", "gauge", "Requests that wait.", &plain(|counts| counts.waiting.into()));
        each(
            "current_inqueue_seats",
            "gauge",
            "Seats that requests wait for.",
            &plain(|counts| counts.waiting_seats.into()),
        );
        each(
            "current_executing_requests",
            "gauge",
            "Requests that are executed.",
            &plain(|counts| counts.executing.into()),
        );
        each(
            "current_executing_seats",
            "gauge",
            "Seats of requests that are executed.",
            &plain(|counts| counts.executing_seats.into()),
        );
        each(
            "request_wait_duration_seconds",
            "histogram",
            "How long requests waited.",
            &|out, name, labels, counts| {
                for (waits, execute) in counts.waits.iter().zip(["false", "true"]) {
                    waits.render(out, name, &format_args!("execute=\"{execute}\",{labels}"), &SECONDS);
                }
            },
        );
        each("request_execution_seconds", "histogram", "How long requests took.", &|out, name, labels, counts| {
            for (executions, kind) in counts.executions.iter().zip(["regular", "watch"]) {
                executions.render(out, name, &format_args!("{labels},type=\"{kind}\""), &SECONDS);
            }
        });
        each(
            "request_queue_length_after_enqueue",
            "histogram",
            "How long queues were.",
            &|out, name, labels, counts| {
                counts.queue_lengths.render(out, name, labels, &LENGTHS);
            },
        );
        each("work_estimated_seats", "histogram", "How many seats requests took.", &|out, name, labels, counts| {
            counts.estimates.render(out, name, labels, &SEATS);
        });
        each("watch_count_samples", "histogram", "How many watchers heard of writes.", &|out, name, labels, counts| {
            counts.watchers.render(out, name, labels, &WATCHERS);
        });
    }
}

struct Labels<'a> {
    level: &'a str,
    schema: &'a str,
}

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "flow_schema=\"{}\",priority_level=\"{}\"", self.schema, self.level)
    }
}
