//! How deep values may nest: as deep as the stack of the thread that walks them allows.
//!
//! Upstream reads 10,000 levels. Everything here that looks at a value does so level by level on the stack, down to
//! letting it go, so that a thread needs room for it: [`allow_deepest`] is called on those that have it. Others, such as
//! those of a test, get along with [`SHALLOW`], which no object that anybody means comes near.
//!
//! A value must stay among threads that allow the same depth, so that it is never where there is no room for it.

use std::cell::Cell;

/// As deep as Go's decoder reads.
pub const DEEPEST: usize = 10_000;
/// As deep as any thread can look: at two mebibytes of stack there is as much again to spare.
pub const SHALLOW: usize = 120;
/// How much deeper `metadata.managedFields` may nest: it repeats the structure of its object five levels down.
pub const MANAGED: usize = 5;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(SHALLOW) };
}

/// How deep values may nest on this thread.
pub fn limit() -> usize {
    LIMIT.get()
}

/// Lets values on this thread be [`DEEPEST`]. Its stack must have the room: 256 MiB.
pub fn allow_deepest() {
    LIMIT.set(DEEPEST);
}
