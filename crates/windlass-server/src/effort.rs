//! How long checking an object may take, and where it is done.
//!
//! Expressions and patterns are written by users, and the longest that is allowed takes seconds. Requests are
//! served by a few threads that must not be held up, so what may take long is done on others: no more at once
//! than leave a core to everybody else, and fairly among resources: see [`Turns`]. What is quick, and nearly
//! everything is, stays where it is.
//!
//! Where a whole request is long, as it is about much data, it goes [aside](Sidings::aside) as a whole.
//!
//! [`Growth`] estimates before the fact: it is a polynomial in the size of the object, on the safe side and cheap
//! to work out. It decides where work is done and nothing else; what it may cost is bounded elsewhere.

mod shunting;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use self::turns::Turns;
use crate::status::{Qualified, Status};

pub(crate) use shunting::Shunting;

/// What is expected to take longer, in nanoseconds, leaves the threads that serve requests.
const LONG: f64 = 1_000_000.0;
/// A write that is about more bytes, in its body or in what is stored, may take longer: an applied list
/// of small items takes 400 nanoseconds a byte, a created one 200.
const LARGE_WRITE: usize = 16 * 1024;
/// A read that decodes more bytes than this may take longer, at up to 100 nanoseconds a byte.
const LARGE_READ: usize = 64 * 1024;
/// The size of a value that holds nothing else.
const NODE: usize = 8;
/// Degrees of a polynomial: nobody gets further within a budget.
const DEGREES: usize = 8;
/// A request waits this long for its turn.
const PATIENCE: Duration = Duration::from_secs(34);

/// How the time that work takes grows with what it looks at: nanoseconds by the power of the number of values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth([f64; DEGREES]);

impl Growth {
    /// Adds work that is done once for each combination of `degree` values.
    pub(crate) fn add(&mut self, degree: usize, nanoseconds: f64) {
        self.0[degree.min(DEGREES - 1)] += nanoseconds;
    }

    /// Adds work that is done besides.
    pub(crate) fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    /// The work if it is done for each part of something. Parts share what there is: only what does not depend
    /// on their sizes is done more often.
    pub(crate) fn for_each(mut self) -> Self {
        let fixed = std::mem::take(&mut self.0[0]);
        self.0[1] += fixed;
        self
    }

    /// Whether the work may take long for something of this size.
    pub(crate) fn is_long(&self, size: usize) -> bool {
        is_long(self.nanoseconds(size))
    }

    /// How long the work may take for something of this size.
    pub(crate) fn nanoseconds(&self, size: usize) -> f64 {
        let values = (size / NODE) as f64;
        self.0.iter().rev().fold(0.0, |sum, factor| sum * values + factor)
    }
}

/// Whether work that may take so many nanoseconds is long.
pub(crate) fn is_long(nanoseconds: f64) -> bool {
    nanoseconds > LONG
}

/// The size of a value: what [`Growth`] is about.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => NODE,
        Value::String(text) => NODE + text.len(),
        Value::Array(items) => items.iter().fold(NODE, |sum, item| sum + size(item)),
        Value::Object(map) => map.iter().fold(NODE, |sum, (name, value)| sum + name.len() + size(value)),
    }
}

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
        let turn = tokio::time::timeout(PATIENCE, self.checks.turn(resource)).await;
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
    use serde_json::json;

    use super::*;

    #[test]
    fn work_is_long_by_what_it_looks_at() {
        let mut growth = Growth::default();
        growth.add(0, 1_000.0);
        growth.add(1, 100.0);
        assert!(!growth.is_long(1_000 * NODE));
        assert!(growth.is_long(10_000 * NODE));
        growth.add(2, 10.0);
        assert!(growth.is_long(1_000 * NODE));
        let each = growth.for_each();
        assert!(!each.is_long(0));
    }

    #[test]
    fn sizes_are_those_of_texts_and_of_what_holds_them() {
        assert_eq!(size(&json!({"ab": ["cd", 1, null]})), 2 + NODE + NODE + NODE + 2 + NODE + NODE);
    }

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
