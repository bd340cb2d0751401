//! Writers of one object, when they meet.
//!
//! A change that meets another's is made anew, from what is stored by then. If all who lost tried again at
//! once, all but one would do so in vain: their work would grow with the square of their number, and one of
//! them might lose for ever. So those who lost take turns, in the order in which they lost, as long as that takes
//! no longer than a few seconds. Who comes
//! fresh lets the one who has the turn write first, for a moment: not for ever, since a webhook may write the
//! very object that it is asked about, and whoever has the turn waits for that webhook.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

/// How many objects are told apart; writers of others share a turn now and then.
const TURNS: usize = 4096;
/// Who has lost waits no longer than this for a turn, and who comes fresh no longer than that.
const LONGEST: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(250);
/// How long, and how often, a change is tried again while others are quicker. Who has the turn hardly loses that often,
/// but to a webhook that writes what it is asked about.
const PATIENCE: (Duration, u32) = (Duration::from_secs(34), 25);

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Contention {
    turns: Box<[Arc<Mutex<()>>]>,
    hasher: RandomState,
}

impl Contention {
    pub(crate) fn new() -> Self {
        Self { turns: (0..TURNS).map(|_| Arc::default()).collect(), hasher: RandomState::new() }
    }

    fn of(&self, key: &[u8]) -> Option<&Arc<Mutex<()>>> {
        let place = self.hasher.hash_one(key) % TURNS as u64;
        usize::try_from(place).ok().and_then(|place| self.turns.get(place))
    }

    /// Waits for the turn to write an object; `None` if that takes longer than it may.
    async fn turn(&self, key: &[u8], longest: Duration) -> Option<OwnedMutexGuard<()>> {
        tokio::time::timeout(longest, Arc::clone(self.of(key)?).lock_owned()).await.ok()
    }
}

/// One writer's attempts to change an object.
#[derive(Debug)]
pub(crate) struct Race {
    deadline: Instant,
    tries: u32,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Race {
    pub(crate) fn begin() -> Self {
        Self { deadline: Instant::now() + PATIENCE.0, tries: PATIENCE.1, turn: None }
    }

    /// Another was quicker: waits until it is this one's turn to try again. `false` if it has been tried enough. Who
    /// writes nothing, or only wants to change a revision that is no longer there, need not `wait`.
    pub(crate) async fn lost(&mut self, contention: &Contention, key: &[u8], wait: bool) -> bool {
        self.tries = self.tries.saturating_sub(1);
        if self.tries == 0 || Instant::now() > self.deadline {
            return false;
        }
        if wait && self.turn.is_none() {
            self.turn = contention.turn(key, LONGEST).await;
        }
        true
    }

    /// Right before the object is written: lets the one who has the turn go first, if this is not the one.
    pub(crate) async fn give_way(&mut self, contention: &Contention, key: &[u8]) {
        if self.turn.is_none() && contention.of(key).is_some_and(|turn| turn.try_lock().is_err()) {
            self.turn = contention.turn(key, MOMENT).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_and_nobody_for_ever() {
        let contention = Contention::new();
        let first = contention.turn(b"a", LONGEST).await.unwrap();
        assert!(contention.turn(b"a", LONGEST).await.is_none());
        drop(first);
        assert!(contention.turn(b"a", LONGEST).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_fresh_gives_way_for_a_moment() {
        let contention = Contention::new();
        let (mut lost, mut fresh) = (Race::begin(), Race::begin());
        fresh.give_way(&contention, b"a").await;
        assert!(fresh.turn.is_none(), "nobody has lost");
        assert!(lost.lost(&contention, b"a", false).await && lost.turn.is_none());
        assert!(lost.lost(&contention, b"a", true).await);
        let since = Instant::now();
        lost.give_way(&contention, b"a").await;
        assert_eq!(since.elapsed(), Duration::ZERO, "it is its own turn");
        fresh.give_way(&contention, b"a").await;
        assert_eq!((since.elapsed(), fresh.turn.is_some()), (MOMENT, false));
        let (waited, ()) = tokio::join!(fresh.give_way(&contention, b"a"), async { drop(lost) });
        assert_eq!((waited, fresh.turn.is_some()), ((), true), "it is next");
    }
}
