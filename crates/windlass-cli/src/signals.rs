//! The signals that ask a process to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;

/// Does something short that should not be left half done. A signal that comes meanwhile ends the process afterwards, and
/// a second one at once.
pub(crate) fn uninterrupted<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let Ok(runtime) = runtime else { return work() };
    let caught = Arc::new(AtomicU8::new(0));
    let inside = runtime.enter();
    if let Ok(mut signals) = Signals::new() {
        let caught = caught.clone();
        runtime.spawn(async move {
            caught.store(signals.recv().await, Ordering::Relaxed);
            let code = signals.recv().await;
            std::process::exit(i32::from(code));
        });
    }
    let result = work();
    drop(inside);
    match caught.load(Ordering::Relaxed) {
        code if code != 0 && result.is_ok() => {
            output::note("interrupted; the change is complete");
            std::process::exit(i32::from(code));
        }
        _ => result,
    }
}

/// Caught from its making on, for as long as the process lives.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`, whose point is that the process does not stop.
    hangup: Option<Signal>,
    /// Only where it is asked for: it is for those who want to see where a process hangs.
    quit: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        // Caught, it does not end the process: a file that may not grow (`ulimit -f`) is an error of the write.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hangup, quit: None })
    }

    /// For a process that has to tidy up however it is ended from its terminal.
    pub(crate) fn with_quit() -> std::io::Result<Self> {
        Ok(Self { quit: Some(signal(SignalKind::quit())?), ..Self::new()? })
    }

    /// Waits for the next one, and returns how a process that it ended would exit. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            () = caught(&mut self.hangup) => 129,
            () = caught(&mut self.quit) => 131,
        }
    }

    /// One that came while the process did not wait for any.
    pub(crate) async fn pending(&mut self) -> Option<u8> {
        // Lets the runtime see what the system has delivered.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            code = self.recv() => Some(code),
            () = std::future::ready(()) => None,
        }
    }
}

/// Waits for a signal, forever if it is not one to be caught. Cancel-safe.
async fn caught(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether this process was started to survive its terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
