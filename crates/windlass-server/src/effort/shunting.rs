//! Requests that leave the threads that serve, from the moment they say that they may take long.
//!
//! A request does not know at its start how much work it is: a small patch may be one of a large object. So all
//! begin on a thread that serves, and whoever finds out waits for [`Sidings::aside`]. From then on every step of
//! the request, up to where it waits for something, is made on another thread and takes a turn of the [`Sidings`].
//! While it waits it holds neither thread nor turn, so requests that wait for each other do not stop each other.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::turns::Turns;
use super::{CAPACITY_TIMEOUT, Sidings, done};
use crate::status::Qualified;

thread_local! {
    /// Whose step this thread is making.
    static STEP: RefCell<Step> = const { RefCell::new(Step::Unknown) };
}

/// One step of a future.
enum Step {
    /// Of something that cannot be moved.
    Unknown,
    /// Of a [`Shunting`] on a thread that serves.
    Serving,
    /// The same, which waits to go on elsewhere, in turns of these.
    Leaving(Turnout),
    /// Of a [`Shunting`] that has left.
    Aside,
}

/// Where a request goes on: in whose turns, and for the sake of which resource.
struct Turnout {
    turns: Arc<Turns>,
    group: Box<str>,
    plural: Box<str>,
}

/// Puts back what this thread did before, also if the step panics.
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

impl Sidings {
    /// What follows in this request about a `resource` is done elsewhere, if it may take `long`. Does nothing in a
    /// task that is no request.
    pub(crate) async fn aside(&self, resource: Qualified<'_>, long: bool) {
        if !long {
            return;
        }
        let mut asked = false;
        poll_fn(|context| {
            let leaves = !std::mem::replace(&mut asked, true)
                && STEP.with_borrow_mut(|step| match step {
                    Step::Serving => {
                        let (group, plural) = (resource.group.into(), resource.name.into());
                        *step = Step::Leaving(Turnout { turns: Arc::clone(&self.steps), group, plural });
                        true
                    }
                    Step::Leaving(_) => true,
                    Step::Unknown | Step::Aside => false,
                });
            if !leaves {
                return Poll::Ready(());
            }
            // Whatever is between this and the request asks only those who have something to say.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl Sidings {
    /// Carries out a future about a `resource` elsewhere, for work that belongs to no request, as writing to a watcher
    /// does. It comes to `late` if there is never a turn for it.
    pub(crate) async fn run_future<T: Send + 'static>(
        &self,
        resource: Qualified<'_>,
        future: BoxFuture<'static, T>,
        late: fn() -> T,
    ) -> T {
        let (group, plural) = (resource.group.into(), resource.name.into());
        let turnout = Turnout { turns: Arc::clone(&self.steps), group, plural };
        elsewhere(future, turnout).await.unwrap_or_else(late)
    }
}

/// A future that is carried out where it is polled, until it goes [aside](Sidings::aside).
#[must_use = "nothing happens unless it is polled"]
pub struct Shunting<T> {
    place: Place<T>,
    /// What it comes to if there is never a turn for it.
    late: fn() -> T,
}

enum Place<T> {
    Here(BoxFuture<'static, T>),
    Elsewhere(BoxFuture<'static, Option<T>>),
}

impl<T: Send + 'static> Shunting<T> {
    /// `late` is what it comes to if there is never a turn for it.
    pub(crate) fn new(future: BoxFuture<'static, T>, late: fn() -> T) -> Self {
        Self { place: Place::Here(future), late }
    }
}

impl<T: Send + 'static> Future for Shunting<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Place::Here(future) = &mut self.place {
            let before = Before::begin(Step::Serving);
            let poll = future.as_mut().poll(context);
            let Step::Leaving(turnout) = before.end() else { return poll };
            if poll.is_ready() {
                return poll;
            }
            let future = std::mem::replace(future, Box::pin(std::future::pending()));
            self.place = Place::Elsewhere(Box::pin(elsewhere(future, turnout)));
        }
        let late = self.late;
        match &mut self.place {
            Place::Elsewhere(future) => future.as_mut().poll(context).map(|value| value.unwrap_or_else(late)),
            Place::Here(_) => Poll::Pending,
        }
    }
}

/// Carries a future out elsewhere, step by step. `None` if there is no turn for a step.
async fn elsewhere<T: Send + 'static>(mut future: BoxFuture<'static, T>, turnout: Turnout) -> Option<T> {
    let alarm = Arc::new(Alarm(Notify::new()));
    loop {
        let resource = Qualified { group: &turnout.group, name: &turnout.plural };
        let Ok(turn) = tokio::time::timeout(CAPACITY_TIMEOUT, turnout.turns.turn(resource)).await else {
            let Turnout { group, plural, .. } = &turnout;
            tracing::warn!(%group, resource = %plural, "a request was refused: no capacity became free in time");
            return None;
        };
        let turn = turn.ok()?;
        let waker = Waker::from(Arc::clone(&alarm));
        let step = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let _before = Before::begin(Step::Aside);
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

    fn run(future: impl Future<Output = Threads> + Send + 'static) -> Shunting<Threads> {
        Shunting::new(Box::pin(future), Vec::new)
    }

    #[tokio::test]
    async fn work_of_no_request_is_done_elsewhere() {
        let sidings = Sidings::new();
        let future = async {
            tokio::task::yield_now().await;
            vec![current().id()]
        };
        let threads = sidings.run_future(PODS, future.boxed(), Vec::new).await;
        assert!(threads.len() == 1 && threads[0] != current().id());
    }

    #[tokio::test]
    async fn what_follows_is_done_elsewhere() {
        let sidings = Arc::new(Sidings::new());
        let here = current().id();
        let threads = run(async move {
            let mut threads = vec![current().id()];
            sidings.aside(PODS, false).await;
            threads.push(current().id());
            sidings.aside(PODS, true).await;
            threads.push(current().id());
            // Waiting gives up the turn, the only one there may be.
            let other = Arc::clone(&sidings);
            let other = run(async move {
                other.aside(PODS, true).await;
                vec![current().id()]
            });
            threads.extend(tokio::spawn(other).await.expect("a task"));
            threads.push(current().id());
            sidings.aside(PODS, true).await;
            threads.push(sidings.run(PODS, true, || current().id()).await.expect("a turn"));
            threads
        })
        .await;
        assert_eq!(
            threads.iter().map(|thread| *thread == here).collect::<Vec<_>>(),
            [true, true, false, false, false, false]
        );
    }

    #[tokio::test]
    async fn parts_that_are_asked_one_by_one_leave_together() {
        let sidings = Arc::new(Sidings::new());
        let here = current().id();
        let threads = run(async move {
            let part = |_| async {
                sidings.aside(PODS, true).await;
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
        Sidings::new().aside(PODS, true).await;
        assert_eq!(current().id(), here);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_forever() {
        let sidings = Arc::new(Sidings::new());
        let turns = Arc::clone(&sidings.steps);
        let _all: Vec<_> = std::iter::from_fn(|| turns.turn(PODS).now_or_never()).collect();
        let threads = run(async move {
            sidings.aside(PODS, true).await;
            vec![current().id()]
        });
        assert!(threads.await.is_empty());
    }

    #[tokio::test]
    async fn a_panic_is_one_of_the_request() {
        let sidings = Arc::new(Sidings::new());
        let task = tokio::spawn(run(async move {
            sidings.aside(PODS, true).await;
            panic!("as tests do");
        }));
        assert!(task.await.expect_err("a panic").is_panic());
    }
}
