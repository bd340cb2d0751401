//! How long to wait before something that failed is tried again: 10 seconds, then twice as long each time, up to five
//! minutes; from the start again after ten minutes without a failure. The numbers are the kubelet's.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// See the [module documentation](self).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    last: Option<(Duration, Instant)>,
}

impl Backoff {
    /// The delay that is in force for a failure at that time; `None` if it is the first in a while.
    pub(crate) fn delay(&self, failed: Instant) -> Option<Duration> {
        let (delay, at) = self.last?;
        (failed.saturating_duration_since(at) <= 2 * LONGEST).then_some(delay)
    }

    /// Makes the delay after the next failure longer.
    pub(crate) fn lengthen(&mut self, now: Instant) {
        let next = self.delay(now).map_or(FIRST, |delay| (2 * delay).min(LONGEST));
        self.last = Some((next, now));
    }

    /// Counts a failure and returns how long to wait: for what is tried again after each failure, the first included.
    pub(crate) fn failed(&mut self, now: Instant) -> Duration {
        self.lengthen(now);
        self.last.map_or(FIRST, |(delay, _)| delay)
    }
}

/// A delay as Go prints it: `10s`, `1m20s`, `5m0s`.
pub(crate) fn printed(delay: Duration) -> String {
    let seconds = delay.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
