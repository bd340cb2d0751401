//! A revisioned byte key-value store.
//!
//! One global [`Revision`] counts every write. A transaction compares and swaps on the revision a
//! key was last written at; reads see the newest state or the state at any retained revision; every
//! write is an [`Event`] in one ordered log that can be replayed from any retained revision.
//!
//! ```text
//!  txn ──▶ engine ──▶ (log on disk) ──▶ state + event log ──▶ revision() wakes readers of events()
//! ```
//!
//! There are two engines behind one trait, [`Store`]: [`Memory`], which is gone with its process, and
//! [`Durable`], whose acknowledged writes survive it. Both keep state and history in memory, in the
//! same way; the second puts a log on disk before it. [`contract`] holds the tests that both pass, and
//! that any other engine can be put to.
//!
//! What always holds:
//! - a write is visible to readers only after it is as durable as its engine promises;
//! - revisions are dense and never go back, not even over a crash;
//! - a reader of events sees every event in order, or gets an error if some are gone;
//! - memory is bounded: history is dropped, oldest first, when it exceeds its [budget](HistoryBudget).
//!
//! The store knows nothing of what the bytes mean. The one concession is [`Value::splice`]: a writer
//! may leave room for the revision its own write will get, so that stored bytes can be served as
//! they are.
//!
//! What it does not do: leases, queries by anything but key, or several writers on one directory.
//!
//! # Following the log
//!
//! A watch is a loop around [`Store::events`] and [`Store::revision`]:
//!
//! ```
//! use windlass_store::{Expect, Memory, Store, StoreError, Value, Write};
//!
//! async fn follow(store: &impl Store, mut after: u64, until: u64) -> Result<Vec<String>, StoreError> {
//!     let mut seen = Vec::new();
//!     let mut revision = store.revision();
//!     while after < until {
//!         for event in store.events(after, 500).await? {
//!             seen.push(format!("{} {:?}", event.revision, event.key));
//!             after = event.revision;
//!         }
//!         // Wait for something new; a store that is gone has nothing more to tell.
//!         if after < until && revision.wait_for(|newest| *newest > after).await.is_err() {
//!             break;
//!         }
//!     }
//!     Ok(seen)
//! }
//!
//! # futures::executor::block_on(async {
//! let store = Memory::new();
//! let put = |key: &'static str| {
//!     vec![Write::Put { key: key.into(), expect: Expect::Absent, value: Value::plain("") }]
//! };
//! let writes = async {
//!     store.txn(put("a")).await?;
//!     store.txn(put("b")).await
//! };
//! let (seen, _) = futures::future::try_join(follow(&store, 1, 3), writes).await?;
//! assert_eq!(seen, ["2 b\"a\"", "3 b\"b\""]);
//! # Ok::<(), StoreError>(())
//! # }).unwrap();
//! ```

mod error;
mod types;

mod history;
mod keymap;

mod durable;
mod memory;

pub mod contract;

pub use durable::{Durable, DurableOptions, Recovery};
pub use error::{OpenError, StoreError};
pub use history::HistoryBudget;
pub use memory::Memory;
pub use types::{Entry, Event, Expect, Range, Snapshot, Store, Txn, TxnResult, Value, Write};

/// The number of a write; see [`Store::revision`] for where it starts.
pub type Revision = u64;
