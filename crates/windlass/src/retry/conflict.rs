//! The one policy by which the library tries a write again that another writer's write made fail.
//!
//! A conflict means that the object is not the one that the writer read. The next attempt reads it anew, after a
//! pause: writers that start together would otherwise meet again. Pauses grow and are shortened at random, and after
//! half a minute the conflict goes to the caller. The loop is the caller's, since what is read anew differs:
//!
//! ```text
//! read ▸ change ▸ write ──conflict──▶ pause() ── true ──▶ read anew ...
//!                                        └────── false ─▶ the conflict is the answer
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// How long a write is tried again: dozens of writers of one object all succeed within this time.
const DEADLINE: Duration = Duration::from_secs(30);
/// The first pause between attempts, and the longest; each is shortened at random by up to a half.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The attempts of one write.
#[derive(Debug)]
pub(crate) struct ConflictRetry {
    deadline: Instant,
    pause: Duration,
}

impl ConflictRetry {
    /// To be made before the first attempt.
    pub(crate) fn new() -> Self {
        Self { deadline: Instant::now() + DEADLINE, pause: PAUSES.0 }
    }

    /// Waits before the next attempt. Returns `false`, at once, when there is to be none.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_longest_until_the_deadline() {
        let (begin, mut retry, mut pauses) = (Instant::now(), ConflictRetry::new(), Vec::new());
        loop {
            let before = Instant::now();
            if !retry.pause().await {
                break;
            }
            pauses.push(before.elapsed());
        }
        // The clock of tests counts whole milliseconds and rounds up.
        let tick = Duration::from_millis(1);
        for (tried, pause) in pauses.iter().enumerate() {
            let full = PAUSES.0.saturating_mul(1 << tried.min(16)).min(PAUSES.1);
            assert!((full / 2..=full + tick).contains(pause), "attempt {tried}: {pause:?}");
        }
        let waited = begin.elapsed();
        assert!(waited >= DEADLINE && waited <= DEADLINE + PAUSES.1 + tick, "{waited:?}");
    }
}
