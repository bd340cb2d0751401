//! The time that reconcilers compare with the times of objects.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The system's time, unless timers are further on.
///
/// Timers may stand still while the system's time passes (a paused clock does, and a machine that sleeps), and may jump
/// ahead of it (a paused clock). What was `now` plus a duration has come when a timer of that duration fires, in both
/// cases.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    /// One moment by two clocks: the system's and the one of timers.
    started: (Timestamp, Instant),
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    /// The system's time when it was last read.
    wall: Timestamp,
    /// How far the system's time has been ahead of the timers' at most, since it was last set back.
    ahead: SignedDuration,
}

impl Clock {
    pub(super) fn start() -> Self {
        let started = (Timestamp::now(), Instant::now());
        let seen = Seen { wall: started.0, ahead: SignedDuration::ZERO };
        Self { started, seen: Arc::new(Mutex::new(seen)) }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.read(Timestamp::now())
    }

    /// The time when the system's is this.
    fn read(&self, wall: Timestamp) -> Timestamp {
        let (time, instant) = self.started;
        let elapsed = SignedDuration::try_from(instant.elapsed()).unwrap_or(SignedDuration::ZERO);
        let by_timers = time.checked_add(elapsed).unwrap_or(time);
        let mut seen = self.seen.lock();
        if wall < seen.wall {
            seen.ahead = SignedDuration::ZERO;
        }
        seen.wall = wall;
        seen.ahead = seen.ahead.max(wall.duration_since(by_timers));
        by_timers.checked_add(seen.ahead).unwrap_or(by_timers)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn what_was_waited_for_has_come_when_timers_stood_still() {
        let clock = Clock::start();
        let wall = clock.started.0 + MINUTE;
        assert_eq!(clock.read(wall), wall);
        tokio::time::advance(HOUR).await;
        assert_eq!(clock.read(wall), wall + HOUR);
        assert_eq!(clock.read(wall + MINUTE), wall + HOUR);
        assert_eq!(clock.read(wall + HOUR + MINUTE), wall + HOUR + MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn time_goes_on_when_the_system_clock_is_set_back() {
        let clock = Clock::start();
        tokio::time::advance(MINUTE).await;
        assert_eq!(clock.read(clock.started.0 - HOUR), clock.started.0 + MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_temporarily_wrong_system_clock_is_forgotten() {
        let clock = Clock::start();
        let wrong = clock.started.0 + HOUR;
        assert_eq!(clock.read(wrong), wrong);
        tokio::time::advance(MINUTE).await;
        assert_eq!(clock.read(clock.started.0 + MINUTE), clock.started.0 + MINUTE);
    }
}
