//! Requests that continue on the blocking pool as soon as they say that they may take long.
//!
//! A request does not know at its start how much work it is: a small patch may be one of a large object. So every
//! request begins on a thread that serves, and awaits [`Offload::rest_of_request`] when it knows. From then on each poll
//! of the request runs on the blocking pool and takes a permit of [`Offload`]. While the request waits for something it
//! holds neither thread nor permit, so requests that wait for each other do not block each other.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::turns::Turns;
use super::{CAPACITY_TIMEOUT, Offload, done};
use crate::status::Qualified;

thread_local! {
    /// Which kind of future this thread is polling.
    static STEP: RefCell<Step> = const { RefCell::new(Step::Unknown) };
}

/// One poll of a future.
enum Step {
    /// Of a future that cannot be moved to another thread.
    Unknown,
    /// Of an [`OffloadableFuture`] on a thread that serves.
    Serving,
    /// The same, which is to continue on the blocking pool.
    Leaving(Target),
    /// Of an [`OffloadableFuture`] on the blocking pool.
    Offloaded,
}

/// Where a request continues: which permits it takes, and the resource that it is about.
struct Target {
    turns: Arc<Turns>,
    group: Box<str>,
    plural: Box<str>,
}

/// Restores what this thread did before, also if the poll panics.
struct Before(Option<Step>);

impl Before {
    fn begin(step: Step) -> Self {
        Self(Some(STEP.replace(step)))
    }

    /// Ends the step. Returns what became of it.
    fn end(mut self) -> Step {
        STEP.replace(self.0.take().unwrap_or(Step::Unknown))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            STEP.set(before);
        }
    }
}

impl Offload {
    /// Continues this request, which is about a `resource`, on the blocking pool, if it may take `long`. Does nothing
    /// outside of a request.
    pub(crate) async fn rest_of_request(&self, resource: Qualified<'_>, long: bool) {
        if !long {
            return;
        }
        let mut asked = false;
        poll_fn(|context| {
            let leaves = !std::mem::replace(&mut asked, true)
                && STEP.with_borrow_mut(|step| match step {
                    Step::Serving => {
                        let (group, plural) = (resource.group.into(), resource.name.into());
                        *step = Step::Leaving(Target { turns: Arc::clone(&self.steps), group, plural });
                        true
                    }
                    Step::Leaving(_) => true,
                    Step::Unknown | Step::Offloaded => false,
                });
            if !leaves {
                return Poll::Ready(());
            }
            // Combinators between this future and the request poll only futures that were woken.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl Offload {
    /// Runs a future about a `resource` on the blocking pool, for work that belongs to no request, such as encoding for a
    /// watcher. Yields `late` if no permit becomes free in time.
    pub(crate) async fn run_future<T: Send + 'static>(
        &self,
        resource: Qualified<'_>,
        future: BoxFuture<'static, T>,
        late: fn() -> T,
    ) -> T {
        let (group, plural) = (resource.group.into(), resource.name.into());
        let target = Target { turns: Arc::clone(&self.steps), group, plural };
        on_blocking_pool(future, target).await.unwrap_or_else(late)
    }
}

/// A future that runs where it is polled until it awaits [`Offload::rest_of_request`], and then on the blocking pool.
#[must_use = "nothing happens unless it is polled"]
pub struct OffloadableFuture<T> {
    place: Place<T>,
    /// The result if no permit becomes free in time.
    late: fn() -> T,
}

enum Place<T> {
    Here(BoxFuture<'static, T>),
    Offloaded(BoxFuture<'static, Option<T>>),
}

impl<T: Send + 'static> OffloadableFuture<T> {
    /// `late` gives the result if no permit becomes free in time.
    pub(crate) fn new(future: BoxFuture<'static, T>, late: fn() -> T) -> Self {
        Self { place: Place::Here(future), late }
    }
}

impl<T: Send + 'static> Future for OffloadableFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Place::Here(future) = &mut self.place {
            let before = Before::begin(Step::Serving);
            let poll = future.as_mut().poll(context);
            let Step::Leaving(target) = before.end() else { return poll };
            if poll.is_ready() {
                return poll;
            }
            let future = std::mem::replace(future, Box::pin(std::future::pending()));
            self.place = Place::Offloaded(Box::pin(on_blocking_pool(future, target)));
        }
        let late = self.late;
        match &mut self.place {
            Place::Offloaded(future) => future.as_mut().poll(context).map(|value| value.unwrap_or_else(late)),
            Place::Here(_) => Poll::Pending,
        }
    }
}

/// Runs a future on the blocking pool, poll by poll. `None` if no permit becomes free in time.
async fn on_blocking_pool<T: Send + 'static>(mut future: BoxFuture<'static, T>, target: Target) -> Option<T> {
    let alarm = Arc::new(Alarm(Notify::new()));
    loop {
        let resource = Qualified { group: &target.group, name: &target.plural };
        let Ok(turn) = tokio::time::timeout(CAPACITY_TIMEOUT, target.turns.turn(resource)).await else {
            let Target { group, plural, .. } = &target;
            tracing::warn!(%group, resource = %plural, "a request was refused: no capacity became free in time");
            return None;
        };
        let turn = turn.ok()?;
        let waker = Waker::from(Arc::clone(&alarm));
        let step = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let _before = Before::begin(Step::Offloaded);
            let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
            (poll, future)
        });
        let (poll, rest) = done(step).await?;
        match poll {
            Poll::Ready(value) => return Some(value),
            Poll::Pending => future = rest,
        }
        alarm.0.notified().await;
    }
}

/// Remembers that a future wants its next step, whether or not anybody waits for that yet.
struct Alarm(Notify);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use futures::FutureExt;

    use super::*;

    const PODS: Qualified<'_> = Qualified { group: "", name: "pods" };

    type Threads = Vec<ThreadId>;

    fn run(future: impl Future<Output = Threads> + Send + 'static) -> OffloadableFuture<Threads> {
        OffloadableFuture::new(Box::pin(future), Vec::new)
    }

    #[tokio::test]
    async fn work_outside_of_requests_runs_on_the_pool() {
        let offload = Offload::new();
        let future = async {
            tokio::task::yield_now().await;
            vec![current().id()]
        };
        let threads = offload.run_future(PODS, future.boxed(), Vec::new).await;
        assert!(threads.len() == 1 && threads[0] != current().id());
    }

    #[tokio::test]
    async fn the_rest_of_a_request_is_offloaded() {
        let offload = Arc::new(Offload::new());
        let here = current().id();
        let threads = run(async move {
            let mut threads = vec![current().id()];
            offload.rest_of_request(PODS, false).await;
            threads.push(current().id());
            offload.rest_of_request(PODS, true).await;
            threads.push(current().id());
            // Waiting gives up the turn, the only one there may be.
            let other = Arc::clone(&offload);
            let other = run(async move {
                other.rest_of_request(PODS, true).await;
                vec![current().id()]
            });
            threads.extend(tokio::spawn(other).await.expect("a task"));
            threads.push(current().id());
            offload.rest_of_request(PODS, true).await;
            threads.push(offload.run(PODS, true, || current().id()).await.expect("a turn"));
            threads
        })
        .await;
        assert_eq!(
            threads.iter().map(|thread| *thread == here).collect::<Vec<_>>(),
            [true, true, false, false, false, false]
        );
    }

    #[tokio::test]
    async fn concurrent_parts_of_a_request_leave_together() {
        let offload = Arc::new(Offload::new());
        let here = current().id();
        let threads = run(async move {
            let part = |_| async {
                offload.rest_of_request(PODS, true).await;
                tokio::task::yield_now().await;
                current().id()
            };
            let parts: futures::stream::FuturesUnordered<_> = (0..3).map(part).collect();
            futures::StreamExt::collect(parts).await
        })
        .await;
        assert!(threads.len() == 3 && !threads.contains(&here));
    }

    #[tokio::test]
    async fn other_tasks_stay() {
        let here = current().id();
        Offload::new().rest_of_request(PODS, true).await;
        assert_eq!(current().id(), here);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_a_limit() {
        let offload = Arc::new(Offload::new());
        let turns = Arc::clone(&offload.steps);
        let _all: Vec<_> = std::iter::from_fn(|| turns.turn(PODS).now_or_never()).collect();
        let threads = run(async move {
            offload.rest_of_request(PODS, true).await;
            vec![current().id()]
        });
        assert!(threads.await.is_empty());
    }

    #[tokio::test]
    async fn a_panic_is_one_of_the_request() {
        let offload = Arc::new(Offload::new());
        let task = tokio::spawn(run(async move {
            offload.rest_of_request(PODS, true).await;
            panic!("as tests do");
        }));
        assert!(task.await.expect_err("a panic").is_panic());
    }
}
