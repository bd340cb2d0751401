//! Memory: the allocator, and what an idle cluster keeps.
//!
//! A cluster frees in one thread what another has allocated, in every size: with the system's allocator that
//! takes a third of its time once it holds many objects (see docs/performance.md).

use std::cell::Cell;
use std::time::{Duration, Instant};

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

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

/// How often a thread collects what others have freed.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    static COLLECTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Gives back pages of this thread that other threads have freed: the allocator finds them only when the thread
/// allocates more of the same size, which after a burst it may never do. Called by threads that have nothing to do;
/// does nothing if it did something a moment ago.
#[expect(unsafe_code, reason = "the allocator has no other interface for it")]
pub(crate) fn collect() {
    let now = Instant::now();
    if COLLECTED.get().is_none_or(|last| now.duration_since(last) >= COLLECT_EVERY) {
        COLLECTED.set(Some(now));
        // SAFETY: the allocator has no condition for it.
        unsafe { mi_collect(true) };
    }
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
            // SAFETY: code is mapped from the program's file and is not written to, so what is there afterwards is
            // what was there before. If the kernel refuses, all stays as it is.
            let _ = unsafe { rustix::mm::madvise(start, end - start.addr(), rustix::mm::Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn let_go_of_the_start() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const BLOCKS: usize = 64 << 10;

    /// The process's resident memory in bytes that is no file's.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a number");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }

    #[test]
    fn pages_that_another_thread_freed_are_given_back() {
        let (blocks, freed) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel();
        let owner = std::thread::spawn(move || {
            let mut all: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; 1000]).collect();
            // Pages that are not full stay with their thread.
            for n in (0..BLOCKS).rev().step_by(2) {
                all.swap_remove(n);
            }
            blocks.send(all).expect("sends");
            goes_on.recv().expect("is told");
            let before = resident();
            collect();
            before.saturating_sub(resident())
        });
        drop(freed.recv().expect("blocks"));
        go_on.send(()).expect("sends");
        let given_back = owner.join().expect("ends");
        assert!(given_back > BLOCKS * 1000 / 2, "{given_back}");
    }
}
