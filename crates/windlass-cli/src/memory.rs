//! The allocator.
//!
//! A cluster frees in one thread what another has allocated, in every size: with the system's allocator that
//! takes a third of its time once it holds many objects (see docs/performance.md).

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: for how many milliseconds free pages are kept, 1,000 unless set.
const PURGE_DELAY: mi_option_t = 15;

/// Lets pages go back to the system as soon as they are free: a start reads large tables, and an idle cluster
/// should not keep what only its start needed. Costs long lists a tenth of their throughput, the rest nothing
/// that can be measured.
///
/// To be called while there is one thread.
#[expect(unsafe_code, reason = "the allocator has no other interface for it")]
pub(crate) fn give_back_at_once() {
    // SAFETY: the allocator asks for nothing but that no other thread is there, of which the caller makes sure.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
}
