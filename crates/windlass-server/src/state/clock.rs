//! The time that requests are dated with. Tests give a server a clock of their own.

use std::sync::Arc;

use jiff::Timestamp;

/// What tells the time.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
