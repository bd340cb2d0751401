//! What the library promises, and whether this run reached it.

use crate::{contender, megabytes, soak};

/// One promise.
struct Promise {
    what: &'static str,
    unit: &'static str,
    measured: f64,
    limit: Limit,
}

enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Promise {
    fn is_reached(&self) -> bool {
        match self.limit {
            Limit::AtMost(most) => self.measured <= most,
            Limit::AtLeast(least) => self.measured >= least,
        }
    }
}

/// Prints a line for each promise. Whether all were reached.
pub(crate) fn report(windlass: &contender::Result, json: usize, soak: &soak::Result) -> bool {
    let per_byte = windlass.settled.saturating_sub(windlass.before) as f64 / json as f64;
    let growth = (soak.after as f64 / soak.base as f64 - 1.0) * 100.0;
    let promise = |what, measured, limit, unit| Promise { what, unit, measured, limit };
    let promises = [
        // What client-go needs on a real API server.
        promise("time to sync", windlass.sync_seconds, Limit::AtMost(0.40), "s"),
        promise("memory settled", megabytes(windlass.settled), Limit::AtMost(45.0), "MB"),
        promise("memory at the peak", megabytes(windlass.peak), Limit::AtMost(70.0), "MB"),
        promise("memory of the cache per byte of JSON", per_byte, Limit::AtMost(1.5), ""),
        promise("no-op reconciles", windlass.noop_per_second, Limit::AtLeast(400_000.0), "/s"),
        // What the allocator does by itself is less; five bytes that are kept of each update are more.
        promise("growth over all updates", growth, Limit::AtMost(5.0), "%"),
    ];
    for promise in &promises {
        let (word, limit) = match promise.limit {
            Limit::AtMost(most) => ("at most", most),
            Limit::AtLeast(least) => ("at least", least),
        };
        let verdict = if promise.is_reached() { "reached" } else { "MISSED" };
        let Promise { what, unit, measured, .. } = promise;
        println!("{verdict:<8} {what:<37} {measured:>12.2} {unit:<3} ({word} {limit})");
    }
    promises.iter().all(Promise::is_reached)
}
