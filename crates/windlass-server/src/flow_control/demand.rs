//! How many seats a priority level could use, over time: what borrowing is decided by.
//!
//! The time is an argument. Mirrors `fairqueuing/integrator.go` and `seatDemandStats` of `apf_controller.go`.

use super::Nanos;

/// How much of the smoothed demand is left after a period: half of it after five minutes.
const SMOOTHING: f64 = 0.977;
const SECOND: f64 = 1e9;

/// Integrates a value over time.
#[derive(Debug)]
pub(super) struct Integrator {
    since: Nanos,
    last: Nanos,
    value: u32,
    max: u32,
    /// The integrals of the value and of its square, in seconds.
    sum: f64,
    squares: f64,
}

/// What became of the value in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Observed {
    pub(super) seconds: f64,
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) max: u32,
}

impl Integrator {
    pub(super) fn new(now: Nanos) -> Self {
        Self { since: now, last: now, value: 0, max: 0, sum: 0.0, squares: 0.0 }
    }

    /// The value is this from now on.
    #[inline]
    pub(super) fn set(&mut self, now: Nanos, value: u32) {
        self.advance(now);
        self.value = value;
        self.max = self.max.max(value);
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.last) as f64 / SECOND;
        self.last = self.last.max(now);
        let value = f64::from(self.value);
        self.sum += seconds * value;
        self.squares += seconds * value * value;
    }

    /// What became of the value since the last call.
    pub(super) fn take(&mut self, now: Nanos) -> Observed {
        self.advance(now);
        let seconds = self.last.saturating_sub(self.since) as f64 / SECOND;
        let (average, variance) = if seconds > 0.0 {
            let average = self.sum / seconds;
            (average, self.squares / seconds - average * average)
        } else {
            (0.0, 0.0)
        };
        let observed = Observed { seconds, average, deviation: variance.max(0.0).sqrt(), max: self.max };
        *self = Self { value: self.value, max: self.value, ..Self::new(self.last) };
        observed
    }
}

/// What borrowing knows of a level's demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Demand {
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) high_watermark: u32,
    pub(super) smoothed: f64,
}

impl Demand {
    /// Takes in a period. The smoothed demand rises at once and falls slowly.
    pub(super) fn update(&mut self, observed: Observed) {
        self.high_watermark = observed.max;
        if observed.seconds <= 0.0 {
            return;
        }
        self.average = observed.average;
        self.deviation = observed.deviation;
        let envelope = observed.average + observed.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    #[test]
    fn averages_are_weighted_by_time() {
        let mut integrator = Integrator::new(0);
        integrator.set(S, 10);
        integrator.set(2 * S, 0);
        let observed = integrator.take(4 * S);
        assert_eq!((observed.seconds, observed.average, observed.max), (4.0, 2.5, 10));
        assert!((observed.deviation - 18.75_f64.sqrt()).abs() < 1e-9);
        let next = integrator.take(5 * S);
        assert_eq!(next, Observed { seconds: 1.0, average: 0.0, deviation: 0.0, max: 0 });
    }

    #[test]
    fn smoothed_demand_rises_at_once_and_falls_slowly() {
        let mut demand = Demand::default();
        demand.update(Observed { seconds: 10.0, average: 100.0, deviation: 0.0, max: 120 });
        assert_eq!((demand.smoothed, demand.high_watermark), (100.0, 120));
        demand.update(Observed { seconds: 10.0, average: 0.0, deviation: 0.0, max: 0 });
        assert!((demand.smoothed - 97.7).abs() < 1e-9);
    }
}
