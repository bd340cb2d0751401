//! Offloads long work from the threads that serve requests to the blocking pool of the runtime.
//!
//! Expressions and patterns are written by users, and the longest that is allowed takes seconds. Requests are
//! served by a few threads that must not be blocked, so work that may take long is done on other threads. It takes at
//! most all cores but one, and resources share them fairly: see [`Turns`]. Quick work, which nearly all is, is done
//! where it is.
//!
//! A request that is long because it is about much data is [offloaded](Offload::rest_of_request) as a whole.
//!
//! [`Growth`] estimates the time before the fact. It decides where work is done and nothing else; what it may cost is
//! bounded elsewhere.

mod offload;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::turns::Turns;
use crate::status::{Qualified, Status};

pub(crate) use offload::OffloadableFuture;
pub(crate) use windlass_cel::growth::{Growth, size};

/// A write that is about more bytes, in its body or in what is stored, may take longer: an applied list
/// of small items takes 400 nanoseconds a byte, a created one 200.
const LARGE_WRITE: usize = 16 * 1024;
/// A read that decodes more bytes than this may take longer, at up to 100 nanoseconds a byte.
const LARGE_READ: usize = 64 * 1024;
/// How long a request waits for a thread of the blocking pool.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(34);

/// Whether writing may take long if it is about so many bytes.
pub(crate) fn is_large_write(bytes: usize) -> bool {
    bytes > LARGE_WRITE
}

/// Whether decoding and showing so many bytes may take long.
pub(crate) fn is_large_read(bytes: usize) -> bool {
    bytes > LARGE_READ
}

/// Runs long work on the blocking pool.
pub(crate) struct Offload {
    /// Permits for checks, whose time is bounded by budgets of seconds.
    checks: Arc<Turns>,
    /// Permits for steps of large requests, whose time is bounded by the size of their data: they do not wait for checks.
    steps: Arc<Turns>,
}

impl Offload {
    /// As many of each as there are cores, but for one.
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let turns = || Turns::new(cores.saturating_sub(1).max(1));
        Self { checks: turns(), steps: turns() }
    }

    /// Does `work` about a `resource` on this thread, or on the blocking pool if it may take `long`. Once begun, the work
    /// goes on when the request is dropped, and keeps its permit until it is done.
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
        Box::pin(self.offloaded(resource, work)).await
    }

    async fn offloaded<T: Send + 'static>(
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

/// Does `work` on the blocking pool without a permit: requests must not delay the server's own configuration.
/// `None` if the runtime is about to end.
pub(crate) async fn at_once<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    done(tokio::task::spawn_blocking(work)).await
}

/// Waits for work on the blocking pool, and panics if it does. `None` if the runtime is about to end.
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
        let offload = Offload::new();
        let here = std::thread::current().id();
        let at = || std::thread::current().id();
        let pods = Qualified { group: "", name: "pods" };
        assert_eq!(offload.run(pods, false, at).await.expect("a turn"), here);
        assert_ne!(offload.run(pods, true, at).await.expect("a turn"), here);
    }
}
