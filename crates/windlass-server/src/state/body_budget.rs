//! How much the bodies of requests may take that are being read or worked on.
//!
//! Every user has a share, so that no user takes another's, and all together have a total that bounds the server's
//! memory. Administrators (`system:masters`) have a share as well but do not depend on the total. A request says at
//! its start how much it may take, and so never waits for more while it holds some. It waits for a moment if there is
//! nothing left, and is then told to come back later.
//!
//! There are two budgets: one for bodies as they arrive, and one for what they take once they are decoded, which may be
//! thirty times as much. A request takes room of the second while it has room of the first, and never the other way
//! round, so that requests do not wait for one another in a circle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::status::Status;

/// What the bodies of one user's requests may take.
const SHARE: usize = 32 << 20;
/// What all bodies may take together.
const TOTAL: usize = 128 << 20;
/// What the decoded bodies of one user's requests may take. A body that would take more has it for itself.
const DECODED_SHARE: usize = 64 << 20;
/// What all decoded bodies may take together.
const DECODED_TOTAL: usize = 192 << 20;
/// What each value, key or separator of a body takes once it is decoded, with what is made of it on its way to the store.
const DECODED_VALUE: usize = 96;
/// What each byte takes where that is all that is known.
const DECODED_BYTE: usize = 24;
/// How many requests of one user may wait for their share.
const WAITING: usize = 64;
/// How long a request waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// When a client is told to come back, in seconds: as upstream's `retryAfter`.
const RETRY_AFTER: u32 = 1;

/// See the module's introduction.
pub(crate) struct BodyBudget {
    share: usize,
    total: usize,
    state: Mutex<State>,
    released: Notify,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self { share: SHARE, total: TOTAL, state: Mutex::default(), released: Notify::default() }
    }
}

#[derive(Default)]
struct State {
    total: usize,
    users: HashMap<Box<str>, Use>,
}

/// What one user has and waits for.
#[derive(Default)]
struct Use {
    bytes: usize,
    waiting: usize,
}

/// Whose body it is.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_master: bool,
}

/// Room for a body, given back when it is dropped.
pub(crate) struct Room {
    budget: Arc<BodyBudget>,
    user: Box<str>,
    bytes: usize,
    counts: bool,
}

/// There is no room.
pub(crate) struct NoRoom {
    /// Whether the request has waited for it; few of a user may.
    pub(crate) waited: bool,
    /// What the client is told.
    pub(crate) status: Status,
}

impl BodyBudget {
    /// The budget of bodies that are decoded.
    pub(crate) fn decoded() -> Self {
        Self { share: DECODED_SHARE, total: DECODED_TOTAL, ..Self::default() }
    }

    /// Room for what a body is decoded to. Cancel-safe.
    pub(crate) async fn room_decoded(self: &Arc<Self>, user: &Account<'_>, body: &[u8]) -> Result<Room, NoRoom> {
        self.room(user, decoded_size(body).min(self.share)).await
    }

    /// Room for `bytes` of a user's request. Cancel-safe.
    pub(crate) async fn room(self: &Arc<Self>, user: &Account<'_>, bytes: usize) -> Result<Room, NoRoom> {
        let mut waiting = None;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            // From here on it hears of what is given back, also between the look and the wait.
            released.as_mut().enable();
            if let Some(room) = self.take(user, bytes) {
                return Ok(room);
            }
            if waiting.is_none() {
                waiting = Some(self.wait(user).ok_or_else(|| no_room(false))?);
            }
            tokio::time::timeout_at(deadline, released).await.map_err(|_| no_room(true))?;
        }
    }

    /// Room if there is any now.
    fn take(self: &Arc<Self>, user: &Account<'_>, bytes: usize) -> Option<Room> {
        let counts = !user.is_master;
        let mut state = self.state.lock();
        let own = state.users.get(user.name).map_or(0, |own| own.bytes);
        if own + bytes > self.share || (counts && state.total + bytes > self.total) {
            return None;
        }
        if counts {
            state.total += bytes;
        }
        state.of(user).bytes += bytes;
        Some(Room { budget: Arc::clone(self), user: user.name.into(), bytes, counts })
    }

    /// A place among those who wait, if there is one.
    fn wait(&self, user: &Account<'_>) -> Option<Waiting<'_>> {
        let mut state = self.state.lock();
        let own = state.of(user);
        if own.waiting >= WAITING {
            return None;
        }
        own.waiting += 1;
        Some(Waiting { budget: self, user: user.name.into() })
    }
}

impl State {
    fn of(&mut self, user: &Account<'_>) -> &mut Use {
        self.users.entry(user.name.into()).or_default()
    }

    /// Changes what a user holds and waits for, and removes users that have neither.
    fn release(&mut self, user: &str, change: impl FnOnce(&mut Use)) {
        if let Some(own) = self.users.get_mut(user) {
            change(own);
            if own.bytes == 0 && own.waiting == 0 {
                self.users.remove(user);
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        if self.counts {
            state.total -= self.bytes;
        }
        state.release(&self.user, |own| own.bytes -= self.bytes);
        drop(state);
        self.budget.released.notify_waiters();
    }
}

/// A request that waits for room.
struct Waiting<'b> {
    budget: &'b BodyBudget,
    user: Box<str>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.budget.state.lock().release(&self.user, |own| own.waiting -= 1);
    }
}

/// About how much a body takes once it is decoded: texts little more than themselves, each value and each key a lot. Of
/// protobuf nothing is known beforehand.
fn decoded_size(body: &[u8]) -> usize {
    if body.starts_with(b"k8s\0") {
        return body.len() * DECODED_BYTE;
    }
    let separates = |byte: &&u8| matches!(byte, b'{' | b'[' | b',' | b':' | b'\n');
    body.len() * 2 + body.iter().filter(separates).count() * DECODED_VALUE
}

fn no_room(waited: bool) -> NoRoom {
    let status = Status::too_many_requests("Too many requests, please try again later.", RETRY_AFTER);
    NoRoom { waited, status }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MEGABYTE: usize = 1 << 20;

    fn user(name: &str) -> Account<'_> {
        Account { name, is_master: false }
    }

    fn now(budget: &Arc<BodyBudget>, user: &Account<'_>, bytes: usize) -> Option<Room> {
        let room = budget.room(user, bytes).now_or_never()?;
        Some(room.unwrap_or_else(|_| panic!("there is no room")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_no_more_than_a_share() {
        let budget = Arc::new(BodyBudget::default());
        let (greedy, other) = (user("greedy"), user("other"));
        let taken: Vec<Room> = std::iter::from_fn(|| now(&budget, &greedy, 3 * MEGABYTE)).collect();
        assert_eq!(taken.len(), 10);
        assert!(now(&budget, &greedy, MEGABYTE).is_some());
        assert!(now(&budget, &other, 3 * MEGABYTE).is_some());
        let started = Instant::now();
        let NoRoom { waited, status } = budget.room(&greedy, 3 * MEGABYTE).await.err().expect("no room");
        assert!(waited);
        assert_eq!((status.code.as_u16(), &*status.reason, status.retry_after), (429, "TooManyRequests", Some(1)));
        assert_eq!(started.elapsed(), WAIT_TIMEOUT);
        drop(taken);
        assert!(budget.state.lock().users.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_on_when_another_ends() {
        let budget = Arc::new(BodyBudget::default());
        let user = user("busy");
        let mut taken: Vec<Room> = std::iter::from_fn(|| now(&budget, &user, 8 * MEGABYTE)).collect();
        let waiting = tokio::spawn({
            let (budget, user) = (Arc::clone(&budget), user);
            async move { budget.room(&user, 8 * MEGABYTE).await.is_ok() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        taken.pop();
        assert!(waiting.await.expect("a task"));
    }

    #[tokio::test(start_paused = true)]
    async fn few_requests_of_a_user_wait() {
        let budget = Arc::new(BodyBudget::default());
        let user = user("busy");
        let _taken = now(&budget, &user, SHARE);
        let mut waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(budget.room(&user, 1))).collect();
        for request in &mut waiting {
            assert!(request.now_or_never().is_none());
        }
        assert!(budget.room(&user, 1).now_or_never().expect("no wait").is_err());
        waiting.pop();
        assert!(budget.room(&user, 1).now_or_never().is_none());
    }

    #[test]
    fn small_values_are_expected_to_grow() {
        let containers = br#"{"name":"c","image":"i"},"#.repeat(70_000);
        assert!(decoded_size(&containers) > 15 * containers.len());
        assert!(decoded_size(&vec![b'x'; MEGABYTE]) <= 2 * MEGABYTE);
        assert_eq!(decoded_size(b"k8s\0abcd"), 8 * DECODED_BYTE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_grows_beyond_a_share_is_alone() {
        let budget = Arc::new(BodyBudget::decoded());
        let (user, other) = (user("busy"), user("other"));
        let body = b"[[],".repeat(MEGABYTE);
        assert!(decoded_size(&body) > DECODED_SHARE);
        let first = budget.room_decoded(&user, &body).await.ok().expect("room for one");
        assert!(budget.room_decoded(&user, &body).now_or_never().is_none());
        assert!(budget.room_decoded(&other, &body).await.is_ok());
        drop(first);
        assert!(budget.room_decoded(&user, &body).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn administrators_get_in_when_others_have_taken_everything() {
        let budget = Arc::new(BodyBudget::default());
        let taken: Vec<Room> = (0..4).filter_map(|n| now(&budget, &user(&n.to_string()), SHARE)).collect();
        assert_eq!(taken.len(), 4);
        assert!(now(&budget, &user("late"), 1).is_none());
        assert!(now(&budget, &Account { name: "admin", is_master: true }, SHARE).is_some());
        drop(taken);
        assert_eq!(budget.state.lock().total, 0);
    }
}
