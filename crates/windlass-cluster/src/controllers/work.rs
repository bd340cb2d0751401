//! Workers on a queue, for controllers whose keys come from elsewhere than an informer of one kind.

use std::hash::Hash;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass::queue::{Completion, Queue};

/// Works on what is in the queue until the token is cancelled and what was begun is finished.
/// Dropping the future aborts.
pub(super) async fn work<T, F, Fut>(queue: Queue<T>, workers: usize, shutdown: CancellationToken, each: F)
where
    T: Hash + Eq + Clone + Send + Sync + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Completion> + Send,
{
    let each = Arc::new(each);
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        let (queue, each) = (queue.clone(), Arc::clone(&each));
        tasks.spawn(async move {
            while let Some(item) = queue.next().await {
                let verdict = each(item.key.clone()).await;
                queue.finish(&item.key, verdict);
            }
        });
    }
    shutdown.cancelled().await;
    queue.close();
    while tasks.join_next().await.is_some() {}
}
