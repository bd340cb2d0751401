//! Logs go to standard error; `RUST_LOG` says how much.

use tracing_subscriber::EnvFilter;

use crate::paint::Paint;

/// Sets logging up for a process that serves.
pub(crate) fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Setting it twice is harmless: the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // What cannot be logged, as on a full disk, cannot be complained about in the log: that would be a panic.
        .log_internal_errors(false)
        .with_ansi(Paint::on(&std::io::stderr()).0)
        .try_init();
}
