//! How far a connection is: what it waits for, since when, and how long that may take.
//!
//! A state machine without a clock. Upstream's limits are those of `Serve` in `pkg/server/secure_serving.go`: 32 seconds
//! for the head of a request, 90 seconds without any request, and 60 seconds for a request that is not long-running.

use std::time::Duration;

use tokio::time::Instant;

/// How long the head of a request may take, on a new connection from the end of the handshake on.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// How long a connection may be without a request.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a client may take to read an answer that is not one of a long-running request.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may read nothing at all of what there is to send.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// It was without a request for too long.
    Idle,
    /// The head of a request took too long.
    Head,
    /// The client took too long to read an answer.
    Answer,
    /// The client read nothing.
    Write,
}

/// How dispensable a connection is; the least come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has no request.
    Idle(Instant),
    /// Each of its requests waits for more of its body.
    Waiting(Instant),
}

/// See the module's introduction.
#[derive(Debug)]
pub(super) struct Progress {
    /// HTTP/2 has frames between requests, so that a byte that arrives is not yet the start of one.
    multiplexed: bool,
    /// How many requests are being answered.
    open: usize,
    /// How many of these wait for more of their bodies.
    waiting: usize,
    /// When the last change from or to one of those states was.
    since: Instant,
    /// When the head of a request began.
    head: Option<Instant>,
    /// When writing began to wait for the client.
    blocked: Option<Instant>,
    /// Until when answers are to be read, by their numbers.
    answers: Vec<(u64, Instant)>,
    numbers: u64,
}

impl Progress {
    /// A connection whose handshake is about to begin.
    pub(super) fn new(now: Instant) -> Self {
        let (open, waiting, since, numbers) = (0, 0, now, 0);
        let answers = Vec::new();
        Self { multiplexed: false, open, waiting, since, head: Some(now), blocked: None, answers, numbers }
    }

    /// The handshake is over.
    pub(super) fn established(&mut self, multiplexed: bool, now: Instant) {
        self.multiplexed = multiplexed;
        self.since = now;
        self.head = (!multiplexed).then_some(now);
    }

    /// Something arrived while there was no request.
    pub(super) fn received(&mut self, now: Instant) {
        if self.open == 0 && !self.multiplexed && self.head.is_none() {
            self.head = Some(now);
        }
    }

    /// A request begins.
    pub(super) fn begin(&mut self, multiplexed: bool) {
        self.multiplexed |= multiplexed;
        self.open += 1;
        self.head = None;
    }

    /// A request has been answered. Returns whether there is none left.
    pub(super) fn end(&mut self, now: Instant) -> bool {
        self.open -= 1;
        self.since = now;
        self.open == 0
    }

    /// A request waits for more of its body.
    pub(super) fn wait(&mut self, now: Instant) {
        self.waiting += 1;
        self.since = now;
    }

    /// A request has what it waited for, or needs it no longer.
    pub(super) fn go_on(&mut self) {
        self.waiting -= 1;
    }

    /// Writing waits for the client.
    pub(super) fn block(&mut self, now: Instant) {
        self.blocked.get_or_insert(now);
    }

    /// The client has read something.
    pub(super) fn unblock(&mut self) {
        self.blocked = None;
    }

    /// An answer begins to be sent. Returns its number.
    pub(super) fn answer(&mut self, now: Instant) -> u64 {
        self.numbers += 1;
        self.answers.push((self.numbers, now + ANSWER_TIMEOUT));
        self.numbers
    }

    /// An answer has been sent.
    pub(super) fn answered(&mut self, number: u64) {
        self.answers.retain(|(other, _)| *other != number);
    }

    /// When the connection is to be closed unless something happens before, and why.
    pub(super) fn expires(&self) -> Option<(Instant, Expired)> {
        let idle = match self.head {
            _ if self.open > 0 => None,
            Some(head) => Some((head + HEAD_TIMEOUT, Expired::Head)),
            None => Some((self.since + IDLE_TIMEOUT, Expired::Idle)),
        };
        let blocked = self.blocked.map(|since| (since + WRITE_TIMEOUT, Expired::Write));
        let answer = self.answers.iter().map(|(_, until)| (*until, Expired::Answer)).min_by_key(|(until, _)| *until);
        [idle, blocked, answer].into_iter().flatten().min_by_key(|(until, _)| *until)
    }

    /// Whether the connection may be closed for the sake of another, and how soon.
    pub(super) fn standing(&self) -> Option<Standing> {
        match (self.open, self.waiting) {
            (0, _) => Some(Standing::Idle(self.head.unwrap_or(self.since))),
            (open, waiting) if open == waiting => Some(Standing::Waiting(self.since)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(progress: &Progress, start: Instant, seconds: u64, why: Expired) {
        let expected = (start + Duration::from_secs(seconds), why);
        assert_eq!(progress.expires(), Some(expected));
    }

    #[test]
    fn a_connection_expires_by_what_it_waits_for() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::new(start);
        progress.established(false, at(1));
        check(&progress, start, 33, Expired::Head);
        progress.received(at(30));
        check(&progress, start, 33, Expired::Head);
        progress.begin(false);
        assert_eq!(progress.expires(), None);
        let answer = progress.answer(at(35));
        check(&progress, start, 95, Expired::Answer);
        progress.block(at(36));
        progress.block(at(50));
        check(&progress, start, 95, Expired::Answer);
        progress.answered(answer);
        check(&progress, start, 96, Expired::Write);
        progress.unblock();
        assert!(progress.end(at(40)));
        check(&progress, start, 130, Expired::Idle);
        progress.received(at(100));
        progress.received(at(110));
        check(&progress, start, 132, Expired::Head);
    }

    #[test]
    fn frames_between_requests_are_no_heads() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        progress.established(true, start);
        progress.received(start + Duration::from_secs(50));
        check(&progress, start, 90, Expired::Idle);
        progress.begin(true);
        progress.begin(true);
        assert!(!progress.end(start + Duration::from_secs(51)));
        assert_eq!(progress.expires(), None);
    }

    #[test]
    fn idle_connections_are_the_most_dispensable() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut idle = Progress::new(start);
        idle.established(true, at(9));
        let mut waiting = Progress::new(start);
        waiting.begin(false);
        assert_eq!(waiting.standing(), None);
        waiting.wait(at(1));
        assert_eq!(waiting.standing(), Some(Standing::Waiting(at(1))));
        assert!(idle.standing() < waiting.standing());
        waiting.begin(false);
        assert_eq!(waiting.standing(), None);
        waiting.go_on();
        assert_eq!(waiting.standing(), None);
    }
}
