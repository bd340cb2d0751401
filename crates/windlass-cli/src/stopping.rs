//! How the process of a cluster is ended, and how its traces in kubeconfigs are removed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Home, Run};
use crate::kubeconfig_file::{self, Before};

/// How long a cluster may take to stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Ends a cluster's process. Returns whether it had to be killed.
pub(crate) fn stop(run: &Run, home: &Home) -> Result<bool> {
    let pid = Pid::from_raw(run.pid).context("the recorded process id is invalid")?;
    terminate(pid).with_context(|| format!("cannot stop process {}", run.pid))?;
    if ended(run) {
        return Ok(false);
    }
    // It may have ended in this moment.
    let _ = kill_process(pid, Signal::KILL);
    if !ended(run) {
        bail!("process {} cannot be killed; look at {}", run.pid, home.log().display());
    }
    Ok(true)
}

/// Asks a process to stop, also one that is suspended.
pub(crate) fn terminate(pid: Pid) -> rustix::io::Result<()> {
    [Signal::TERM, Signal::CONT].into_iter().try_for_each(|signal| match kill_process(pid, signal) {
        // It has ended meanwhile.
        Err(Errno::SRCH) => Ok(()),
        sent => sent,
    })
}

/// Waits for a cluster's end, as long as it may take.
pub(crate) fn ended(run: &Run) -> bool {
    let asked = Instant::now();
    while run.runs() {
        if asked.elapsed() > STOP_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Takes a cluster out of the kubeconfig it was put in.
pub(crate) fn forget(home: &Home, started: Option<&Run>, stopped: bool) -> Result<()> {
    if let Some(file) = started.and_then(|run| run.kubeconfig.as_ref()) {
        // A file that was made for this cluster alone is of no use any more.
        let _ = std::fs::remove_file(file);
        return Ok(());
    }
    let context = home.context();
    let what = if stopped { "stopped" } else { "was not running" };
    match kubeconfig_file::names(&context) {
        Ok(false) if started.is_none() => return Ok(()),
        // Where it was put it may still be: a file that another program is writing reads as if it were empty. That is
        // seen under the lock.
        Ok(_) => {}
        Err(error) if started.is_none() => {
            return Err(error.context(format!("cluster {:?} {what}; your kubeconfig cannot be read", home.name)));
        }
        Err(error) => {
            return Err(error.context(format!("cluster {:?} {what}, but stays in your kubeconfig", home.name)));
        }
    }
    let before = started.map(|run| Before { context: run.previous_context.clone(), replaced: run.replaced.clone() });
    kubeconfig_file::forget(&context, &before.unwrap_or_default())
        .with_context(|| format!("cluster {:?} {what}, but stays in your kubeconfig", home.name))
}
