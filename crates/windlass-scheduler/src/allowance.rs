//! How many events about pods that were scheduled are reported: 1,000 at once, then 100 per second, twice the requests that
//! kube-scheduler makes by default. In a cluster where thousands of pods a second are scheduled, the rest would cost more than
//! scheduling them. Why a pod cannot be scheduled is always reported.

use std::time::Instant;

const BURST: f64 = 1_000.0;
const PER_SECOND: f64 = 100.0;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Allowance {
    tokens: f64,
    at: Option<Instant>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { tokens: BURST, at: None }
    }
}

impl Allowance {
    /// Whether one more event may be reported now.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let since = self.at.replace(now).map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.tokens = (self.tokens + since * PER_SECOND).min(BURST);
        let is_allowed = self.tokens >= 1.0;
        if is_allowed {
            self.tokens -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_per_second() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        let mut taken = |at: Instant| (0..5_000).filter(|_| allowance.take(at)).count();
        assert_eq!(taken(now), 1_000);
        assert_eq!(taken(now), 0);
        assert_eq!(taken(now + Duration::from_secs(2)), 200);
        assert_eq!(taken(now + Duration::from_secs(3600)), 1_000);
    }
}
