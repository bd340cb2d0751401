//! Memory: the allocator, and what an idle cluster keeps.
//!
//! A cluster frees in one thread what another has allocated, in every size: with the system's allocator that
//! takes a third of its time once it holds many objects (see docs/performance.md).

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay`: for how many milliseconds free pages are kept, 1,000 unless set.
const PURGE_DELAY: mi_option_t = 15;

/// Lets pages go back to the system as soon as they are free: a start reads large tables, and an idle cluster
/// should not keep what only its start needed. It costs long lists some of their throughput.
///
/// To be called while there is one thread.
#[expect(unsafe_code, reason = "the allocator has no other interface for it")]
pub(crate) fn give_back_at_once() {
    // SAFETY: the allocator asks for nothing but that no other thread is there, of which the caller makes sure.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
}

/// Lets go of the code that has run so far: most of it is needed once, at the start. What runs again is mapped again,
/// from the kernel's cache.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the kernel has no other interface for it")]
pub(crate) fn let_go_of_the_start() {
    let Ok(program) = std::env::current_exe() else { return };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (range, access, file) = (fields.next(), fields.next(), fields.nth(3));
        let range = range.and_then(|range| range.split_once('-'));
        let at = |text: &str| usize::from_str_radix(text, 16).ok();
        let (Some((start, end)), Some("r-xp")) = (range, access) else { continue };
        let (Some(start), Some(end)) = (at(start), at(end)) else { continue };
        if file.is_some_and(|file| program.as_os_str() == file) {
            let start = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: code is mapped from the program's file and nobody writes to it, so what is there afterwards is
            // what was there before. If the kernel refuses, all stays as it is.
            let _ = unsafe { rustix::mm::madvise(start, end - start.addr(), rustix::mm::Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn let_go_of_the_start() {}
