//! `windlass down`: stops a cluster that runs in the background.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::args::{Down, Format};
use crate::home::Home;
use crate::{kubeconfig, output};

/// How long a cluster may take to stop.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Down) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    let started = home.started();
    let run = home.running();
    if let Some(run) = &run {
        let pid = Pid::from_raw(run.pid).context("the recorded process id is not one")?;
        kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop process {}", run.pid))?;
        let started = Instant::now();
        while home.running().is_some() {
            if started.elapsed() > PATIENCE {
                bail!("process {} does not stop; look at {}", run.pid, home.log().display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let forgotten = match started.as_ref().and_then(|run| run.kubeconfig.as_ref()) {
        // A file that was made for this cluster alone is of no use any more.
        Some(file) => {
            let _ = std::fs::remove_file(file);
            Ok(())
        }
        None => kubeconfig::forget(&home.context(), started.as_ref().and_then(|run| run.previous_context.as_deref())),
    };
    // Whatever is wrong with the user's file, the cluster is gone.
    home.clear_run();
    if args.purge {
        home.purge()?;
    }
    forgotten.with_context(|| format!("cluster {:?} stopped, but stays in your kubeconfig", home.name))?;
    match (args.output, run.is_some()) {
        (Format::Json, stopped) => output::json(&json!({"name": home.name, "stopped": stopped, "purged": args.purge})),
        (Format::Text, true) => output::line(format_args!("cluster {:?} stopped", home.name)),
        (Format::Text, false) => output::line(format_args!("cluster {:?} was not running", home.name)),
    }
    Ok(ExitCode::SUCCESS)
}
