//! `windlass guard`: runs a program for as long as standard input is open.
//!
//! Standard input is a pipe whose other end only the process has that started this one. However that process ends, the
//! system closes the pipe, and the program and its children are ended: by SIGTERM, and if they take longer than
//! [`GRACE`] by SIGKILL. SIGINT and SIGTERM are passed on to them, and then there is no limit.

use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::args::Guard;
use crate::signals::Signals;

/// How long a program may take to end.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Guard) -> Result<ExitCode> {
    let (program, arguments) = args.command.split_first().context("no program was named")?;
    let mut command = Command::new(program);
    // A group of its own: its children are ended with it.
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    // Caught before the program runs: a signal that comes now is not lost.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the program has no process id")?;
    runtime.spawn(async move {
        loop {
            let signal = if signals.recv().await == 130 { Signal::INT } else { Signal::TERM };
            // It may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    });
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        while matches!(stdin.read(&mut [0; 64]), Ok(read) if read > 0) {}
        // It may have ended already.
        let _ = kill_process_group(group, Signal::TERM);
        std::thread::sleep(GRACE);
        let _ = kill_process_group(group, Signal::KILL);
    });
    let status = child.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
