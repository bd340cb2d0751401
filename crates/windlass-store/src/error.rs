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
    /// The store was closed, or an earlier write to disk failed and the state is no longer known.
    #[error("the store is closed")]
    Closed,
}
