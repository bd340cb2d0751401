//! Workers on a queue, for controllers whose keys come from elsewhere than an informer of one kind.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::controller::RepeatedPanics;
use windlass::queue::{Completion, Queue};

/// Works on the keys of a queue until the token is cancelled and every key that was begun is finished. A key whose
/// work panics is retried like one that failed, and counted in `panics`. Dropping the future aborts.
pub(super) async fn work<T, F, Fut>(
    queue: Queue<T>,
    workers: usize,
    shutdown: CancellationToken,
    panics: RepeatedPanics<T>,
    each: F,
) where
    T: Hash + Ord + Clone + Display + Send + Sync + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Completion> + Send,
{
    let each = Arc::new(each);
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (queue, each, panics) = (queue.clone(), Arc::clone(&each), panics.clone());
        tasks.spawn(async move {
            while let Some(item) = queue.next().await {
                let work = async { each(item.key.clone()).await };
                let completion = panics.catch(&item.key, work).await.unwrap_or(Completion::Retry);
                queue.finish(&item.key, completion);
            }
        });
    }
    shutdown.cancelled().await;
    queue.close();
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use windlass::queue::Priority;

    use super::*;

    #[tokio::test]
    async fn a_key_that_panics_is_retried_and_reported() {
        let (queue, panics, shutdown) = (Queue::default(), RepeatedPanics::default(), CancellationToken::new());
        let (calls, done) = (Arc::new(AtomicU32::new(0)), CancellationToken::new());
        queue.add("thor", Priority::NORMAL);
        let (seen, observed, finished) = (Arc::clone(&calls), panics.clone(), done.clone());
        let working = tokio::spawn(work(queue, 1, shutdown.clone(), panics.clone(), move |_| {
            let (call, observed, finished) = (seen.fetch_add(1, Ordering::Relaxed), observed.clone(), finished.clone());
            assert!(call != 0, "before the future is made");
            async move {
                assert!(call > 3, "no ink");
                let failing = observed.check().expect_err("four panics in a row");
                assert_eq!(failing, "thor panicked 4 times in a row: no ink");
                finished.cancel();
                Completion::Done
            }
        }));
        done.cancelled().await;
        shutdown.cancel();
        working.await.expect("no worker panicked");
        assert_eq!(panics.check(), Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 5);
    }
}
