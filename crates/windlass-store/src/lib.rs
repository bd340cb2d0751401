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
//! What always holds:
//! - a write is visible to readers only after it is as durable as its engine promises;
//! - revisions are dense and never go back, not even over a crash;
//! - memory is bounded: history is dropped, oldest first, when it exceeds its budget.
//!
//! The store knows nothing of what the bytes mean. The one concession is [`Value::splice`]: a writer
//! may leave room for the revision its own write will get, so that stored bytes can be served as
//! they are.

pub mod contract;
mod durable;
mod error;
mod history;
mod keymap;
mod memory;
mod types;

pub use durable::{Durable, DurableOptions, Recovery};
pub use error::{OpenError, StoreError};
pub use history::HistoryBudget;
pub use memory::Memory;
pub use types::{Entry, Event, Expect, Range, Revision, Snapshot, Store, Txn, TxnResult, Value, Write};
