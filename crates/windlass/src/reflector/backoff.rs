//! Exponential delay with jitter, one per watch, so that a failing source slows down no other.

use std::time::Duration;

/// Delay between attempts of one reflector: doubles from `base` to `max`, plus up to as much again
/// at random, so that many clients of a server that comes back do not arrive together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    attempts: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(30))
    }
}

impl Backoff {
    pub(crate) fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, attempts: 0 }
    }

    /// The next delay; `jitter` is a random number in `0.0..1.0`.
    pub(crate) fn next(&mut self, jitter: f64) -> Duration {
        let factor = 1u32.checked_shl(self.attempts).unwrap_or(u32::MAX);
        self.attempts = self.attempts.saturating_add(1);
        let delay = self.base.checked_mul(factor).map_or(self.max, |delay| delay.min(self.max));
        delay + delay.mul_f64(jitter)
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_maximum_and_adds_jitter() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..9).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000]);
        assert_eq!(backoff.next(0.5), Duration::from_secs(45));
        backoff.reset();
        assert_eq!(backoff.next(0.0), Duration::from_millis(200));
    }
}
