//! A runtime for values that nest as deep as Kubernetes allows.
//!
//! A value stays among the threads of one runtime, so it is never where there is no room for it.

use std::io;

pub use windlass_api::depth::{DEEPEST, MANAGED, SHALLOW, limit};

/// What [`DEEPEST`] takes, three times over and unoptimised. Only what is used is ever there.
const STACK: usize = 256 << 20;

/// Runs a future on a new runtime whose threads, all of them, have the stack for [`DEEPEST`].
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let deepest = windlass_server::depth::run(async || windlass_server::depth::limit())?;
/// assert_eq!(deepest, windlass_server::depth::DEEPEST);
/// # Ok(())
/// # }
/// ```
pub fn run<T: Send>(future: impl AsyncFnOnce() -> T + Send) -> io::Result<T> {
    run_with(|| {}, future)
}

/// The same. Each thread that serves calls `before_park` when it has nothing to do for the moment, so it has to be
/// quick.
pub fn run_with<T: Send>(before_park: fn(), future: impl AsyncFnOnce() -> T + Send) -> io::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .enable_all()
        .thread_stack_size(STACK)
        .on_thread_start(windlass_api::depth::allow_deepest)
        .on_thread_park(before_park);
    let first = move || {
        windlass_api::depth::allow_deepest();
        Ok(runtime.build()?.block_on(future()))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK);
        thread.spawn_scoped(scope, first)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
