//! How deep values may nest: as deep as the stack of the thread that walks them allows.
//!
//! Upstream reads 10,000 levels. Everything here that looks at a value does so level by level on the stack, down to
//! letting it go, so that a thread needs room for it: [`run`] serves on threads that have it. Others, such as those
//! of a test, get along with [`SHALLOW`], which no object that anybody means comes near.
//!
//! A value stays among the threads of one runtime, so it is never where there is no room for it.

use std::cell::Cell;
use std::io;

/// As deep as Go's decoder reads.
pub const DEEPEST: usize = 10_000;
/// As deep as any thread can look: at two mebibytes of stack there is as much again to spare.
pub const SHALLOW: usize = 120;
/// How much deeper `metadata.managedFields` may nest: it repeats the structure of its object five levels down.
pub const MANAGED: usize = 5;
/// What [`DEEPEST`] takes, three times over and unoptimised. Only what is used is ever there.
const STACK: usize = 256 << 20;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(SHALLOW) };
}

/// How deep values may nest on this thread.
pub fn limit() -> usize {
    LIMIT.get()
}

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
    runtime.enable_all().thread_stack_size(STACK).on_thread_start(|| LIMIT.set(DEEPEST)).on_thread_park(before_park);
    let first = move || {
        LIMIT.set(DEEPEST);
        Ok(runtime.build()?.block_on(future()))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("main".to_owned()).stack_size(STACK);
        thread.spawn_scoped(scope, first)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
