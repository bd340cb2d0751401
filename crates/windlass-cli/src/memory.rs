//! The allocator.
//!
//! A cluster frees in one thread what another has allocated, in every size: with the system's allocator that
//! takes a third of its time once it holds many objects (see docs/performance.md).

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`, in milliseconds; arenas wait ten times as long.
const PURGE_DELAY: mi_option_t = 15;

/// Lets what is freed go back to the system after a tenth of a second instead of ten seconds: a start reads
/// large tables, and an idle cluster should not keep what only its start needed.
///
/// To be called while there is one thread.
#[expect(unsafe_code, reason = "the allocator has no other interface for it")]
pub(crate) fn give_back_soon() {
    // SAFETY: the allocator asks for nothing but that no other thread is there, of which the caller makes sure.
    unsafe { mi_option_set(PURGE_DELAY, 10) };
}
