//! What can go wrong with a store.

use crate::Revision;

/// Why a store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The revision asked for has been dropped.
    #[error("revision {asked} has been compacted; the oldest retained revision is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest that can be read.
        oldest: Revision,
    },
    /// The revision asked for does not exist yet.
    #[error("revision {asked} is in the future; the newest revision is {newest}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The newest there is.
        newest: Revision,
    },
    /// A transaction names the same key twice.
    #[error("write {index} of the transaction names a key that an earlier write names too")]
    RepeatedKey {
        /// The index of the second write to the key.
        index: usize,
    },
    /// A transaction is larger than any store takes.
    #[error("the transaction's keys and values take {bytes} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The size of the transaction.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// The store was closed; what it holds can still be read.
    #[error("the store is closed")]
    Closed,
}
