//! The time that grace periods are measured by.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// The runtime's clock, as a timestamp: it moves with every timer, so a test that moves a paused clock moves the grace
/// periods too. Times that are written to objects come from the wall clock instead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    wall: Timestamp,
    since: Instant,
}

impl Clock {
    /// A clock that agrees with the wall clock at this moment. It must be made within a runtime.
    pub(super) fn new() -> Self {
        Self { wall: Timestamp::now(), since: Instant::now() }
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        self.wall.checked_add(self.since.elapsed()).unwrap_or(Timestamp::MAX)
    }
}
