//! The signals that ask a process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Caught from its making on, for as long as the process lives.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None under `nohup`, whose point is that the process does not stop.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// Waits for the next one, and returns how a process that it ended would exit. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = hangup => 129,
        }
    }

    /// One that came while nobody waited.
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

/// Whether whoever started this process asked that it survives the terminal.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
