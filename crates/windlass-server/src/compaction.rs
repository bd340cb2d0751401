//! History goes by age: what is older than the interval is compacted, as upstream compacts etcd
//! (`staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go`).
//!
//! The store drops history by volume besides. A revision can be read for at least one interval and at most two. While
//! nothing is written, nothing happens here.

use std::sync::Arc;
use std::time::Duration;

use windlass_store::{Store, StoreError};

/// How long history is kept unless a server is told otherwise: kube-apiserver's `--etcd-compaction-interval`.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Compacts until the store is gone. An interval of zero leaves everything to the store.
pub(crate) async fn run(store: Arc<dyn Store>, interval: Duration) {
    if interval.is_zero() {
        return;
    }
    match compact(&*store, interval).await {
        Ok(()) | Err(StoreError::Closed) => {}
        Err(error) => tracing::error!(%error, "old revisions are no longer compacted: the store cannot be used"),
    }
}

async fn compact(store: &dyn Store, interval: Duration) -> Result<(), StoreError> {
    let mut newest = store.revision();
    loop {
        let compacted = store.compacted();
        let Ok(seen) = newest.wait_for(|revision| *revision > compacted).await.map(|revision| *revision) else {
            return Ok(());
        };
        tokio::time::sleep(interval).await;
        store.compact(seen).await?;
    }
}

#[cfg(test)]
mod tests {
    use windlass_store::{Expect, Memory, Range, Value, Write};

    use super::*;

    async fn write(store: &Memory, value: &'static str) -> u64 {
        let write = Write::Put { key: "k".into(), expect: Expect::Any, value: Value::plain(value) };
        store.txn(vec![write]).await.expect("written");
        *store.revision().borrow()
    }

    async fn is_readable(store: &Memory, revision: u64) -> bool {
        store.range(Range::prefix("k"), Some(revision), 0).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn revisions_are_readable_for_one_to_two_intervals() {
        let store = Arc::new(Memory::new());
        let task = tokio::spawn(run(Arc::<Memory>::clone(&store), Duration::from_secs(300)));
        let first = write(&store, "a").await;
        tokio::time::sleep(Duration::from_secs(200)).await;
        let second = write(&store, "b").await;
        tokio::time::sleep(Duration::from_secs(99)).await;
        assert!(is_readable(&store, first).await);
        // At 300 s the first is the oldest that is kept, and at 600 s the second.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!is_readable(&store, first - 1).await && is_readable(&store, first).await);
        write(&store, "c").await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(!is_readable(&store, first).await);
        assert!(is_readable(&store, second).await);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn no_interval_keeps_history() {
        let store = Arc::new(Memory::new());
        let first = write(&store, "a").await;
        write(&store, "b").await;
        run(Arc::<Memory>::clone(&store), Duration::ZERO).await;
        assert!(is_readable(&store, first).await);
    }
}
