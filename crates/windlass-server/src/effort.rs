//! How long checking an object may take, and where it is done.
//!
//! Expressions and patterns are written by users, and the longest that is allowed takes seconds. Requests are
//! served by a few threads that must not be held up, so what may take long is done on others: no more at once
//! than leave a core to everybody else, and fairly among resources: see [`Turns`]. What is quick, and nearly
//! everything is, stays where it is.
//!
//! Where a whole request is long, as it is about much data, it goes [aside](Sidings::aside) as a whole.
//!
//! [`Growth`] estimates the time before the fact. It decides where work is done and nothing else; what it may cost is
//! bounded elsewhere.

mod shunting;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::turns::Turns;
use crate::status::{Qualified, Status};

pub(crate) use shunting::Shunting;
pub(crate) use windlass_cel::growth::{Growth, size};

/// A write that is about more bytes, in its body or in what is stored, may take longer: an applied list
/// of small items takes 400 nanoseconds a byte, a created one 200.
const LARGE_WRITE: usize = 16 * 1024;
/// A read that decodes more bytes than this may take longer, at up to 100 nanoseconds a byte.
const LARGE_READ: usize = 64 * 1024;
/// A request waits this long for its turn.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(34);

/// Whether writing may take long if it is about so many bytes.
pub(crate) fn is_large_write(bytes: usize) -> bool {
    bytes > LARGE_WRITE
}

/// Whether decoding and showing so many bytes may take long.
pub(crate) fn is_large_read(bytes: usize) -> bool {
    bytes > LARGE_READ
}

/// Where long work is done.
pub(crate) struct Sidings {
    /// Turns for checks, whose time is bounded by budgets of seconds.
    checks: Arc<Turns>,
    /// Turns for steps of large requests, whose time is bounded by what they are about: they do not wait for checks.
    steps: Arc<Turns>,
}

impl Sidings {
    /// As many of each as there are cores, but for one.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let turns = || Turns::new(cores.saturating_sub(1).max(1));
        Self { checks: turns(), steps: turns() }
    }

    /// Does `work` about a `resource` here, or elsewhere if it may take `long`. Once begun it goes on, even if nobody
    /// waits any more, and keeps its place until it is done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        resource: Qualified<'_>,
        long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        if !long {
            return Ok(work());
        }
        // Boxed: few requests wait here, and all would be as large as one that does.
        Box::pin(self.elsewhere(resource, work)).await
    }

    async fn elsewhere<T: Send + 'static>(
        &self,
        resource: Qualified<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = tokio::time::timeout(CAPACITY_TIMEOUT, self.checks.turn(resource)).await;
        let turn = turn.map_err(|_| Status::timed_out())?.map_err(Status::internal)?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(Status::internal)
    }
}

/// Does `work` elsewhere without waiting for a turn: what configures the server is not kept waiting by requests.
/// `None` if the runtime is about to end.
pub(crate) async fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    done(tokio::task::spawn_blocking(work)).await
}

/// Waits for work that is done elsewhere, and panics if it does. `None` if the runtime is about to end.
async fn done<T>(work: JoinHandle<T>) -> Option<T> {
    match work.await {
        Ok(value) => Some(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_work_is_done_on_other_threads() {
        let sidings = Sidings::new();
        let here = std::thread::current().id();
        let at = || std::thread::current().id();
        let pods = Qualified { group: "", name: "pods" };
        assert_eq!(sidings.run(pods, false, at).await.expect("a turn"), here);
        assert_ne!(sidings.run(pods, true, at).await.expect("a turn"), here);
    }
}
