//! How long rejected clients are told to wait: longer while many requests are rejected.
//!
//! Doubles while at least three requests are rejected per second of it, up to 32 seconds, and falls by one when there are
//! fewer than one. Mirrors `dropped_requests_tracker.go`; the time is an argument.

use std::collections::VecDeque;

const LONGEST: u64 = 32;

/// What one priority level has rejected.
#[derive(Debug)]
pub(super) struct RetryAfter {
    seconds: u64,
    /// When it was last raised.
    raised: u64,
    /// The second that is counted now.
    current: (u64, u64),
    /// Seconds with rejected requests, and how many, the newest last.
    history: VecDeque<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { seconds: 1, raised: 0, current: (0, 0), history: VecDeque::new() }
    }
}

impl RetryAfter {
    /// Counts a rejected request; `now` in seconds. Returns how long its client is to wait, in seconds.
    pub(super) fn reject(&mut self, now: u64) -> u64 {
        if self.current.0 == now {
            self.current.1 += 1;
            return self.seconds;
        }
        self.history.push_back(self.current);
        let oldest = self.current.0.saturating_sub((2 * self.seconds).min(LONGEST));
        while self.history.front().is_some_and(|(second, _)| *second < oldest) {
            self.history.pop_front();
        }
        self.current = (now, 1);
        self.adjust(now);
        self.seconds
    }

    fn adjust(&mut self, now: u64) {
        let recent = self.history.iter().filter(|(second, _)| (now.saturating_sub(self.seconds)..now).contains(second));
        let rejected: u64 = recent.map(|(_, requests)| requests).sum();
        if now.saturating_sub(self.raised) >= self.seconds && rejected >= 3 * self.seconds {
            self.seconds = (2 * self.seconds).min(LONGEST);
            self.raised = now;
        } else if rejected < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_wait_longer_while_many_are_rejected() {
        let mut retry = RetryAfter::default();
        let mut said = Vec::new();
        for second in 1000..1080 {
            for _ in 0..100 {
                retry.reject(second);
            }
            said.push(retry.seconds);
        }
        assert_eq!(said[..4], [1, 2, 2, 4]);
        assert_eq!(said.last(), Some(&LONGEST));
        assert!(retry.history.len() <= 33);
    }

    #[test]
    fn clients_wait_shorter_when_few_are_rejected() {
        let mut retry = RetryAfter { seconds: 8, ..RetryAfter::default() };
        let said: Vec<u64> = (0..8).map(|n| retry.reject(2000 + 40 * n)).collect();
        assert_eq!(said, [7, 6, 5, 4, 3, 2, 1, 1]);
    }
}
