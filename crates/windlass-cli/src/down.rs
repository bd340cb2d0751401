//! `windlass down`: stops a cluster that runs in the background, or in another terminal. Of the latter it finds those
//! that keep their objects in the cluster's own directory: with `--ephemeral` or `--data-dir` they are stopped where
//! they run.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use crate::args::Down;
use crate::home::Home;
use crate::stopping::{self, STOP_TIMEOUT};
use crate::{output, up};

pub(crate) fn run(args: &Down) -> Result<ExitCode> {
    let home = Home::of(&args.name.name)?;
    if args.only_pods {
        up::pods::clean_up(&home, false)?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = home.started();
    let run = home.present();
    let killed = match &run {
        Some(run) => stopping::stop(run, &home)?,
        None => false,
    };
    up::pods::clean_up(&home, args.purge)?;
    let forgotten = stopping::forget(&home, started.as_ref(), run.is_some());
    // Whatever is wrong with the user's file, the cluster is gone.
    home.clear_run();
    if args.purge {
        home.purge()?;
    }
    forgotten?;
    let stopped = run.is_some();
    let kept = run.is_some_and(|run| !run.ephemeral) && !args.purge;
    let document = || json!({"name": home.name, "stopped": stopped, "killed": killed, "purged": args.purge});
    if output::document(args.output, document) {
    } else if killed {
        output::line(format_args!(
            "cluster {:?} did not stop within {} seconds and was killed{}",
            home.name,
            STOP_TIMEOUT.as_secs(),
            if kept { "; what it had acknowledged is on disk" } else { "" }
        ));
    } else if stopped {
        output::line(format_args!("cluster {:?} stopped", home.name));
    } else {
        output::line(format_args!("cluster {:?} was not running", home.name));
    }
    Ok(ExitCode::SUCCESS)
}
