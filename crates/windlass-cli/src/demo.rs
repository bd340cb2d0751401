//! `windlass demo`: a cluster, a pet store and its operator in this process, and two pets that pass
//! through all of them.
//!
//! ```text
//! story ── tells what to do ──► stage: cluster, pet store, operator
//!   │                             │ changes of Pets
//!   └── milestones ──► display ◄──┘ (pets)
//! ```
//!
//! The operator is the one of `examples/petstore`, unchanged, and reaches the cluster over TLS with
//! a kubeconfig as it would reach any other. Whatever happens, and at whatever moment a signal
//! comes, [`Stage::stop`] runs: nothing is left behind.

mod display;
mod live;
mod pets;
mod stage;
mod story;
mod table;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use windlass_server::depth;

use crate::args::Demo;
use crate::signals::Signals;
use crate::{logging, open_files};
use display::Display;
use pets::Pets;
use stage::Stage;

pub(crate) fn run(args: &Demo) -> Result<ExitCode> {
    let logs = std::env::var_os("RUST_LOG").is_some_and(|filter| !filter.is_empty());
    if logs {
        logging::init();
    }
    open_files::raise_limit();
    let pets = watch::Sender::new(Pets::default());
    let display = Display::choose(args.output, logs, pets.subscribe());
    depth::run(async || perform(args, &pets, &display).await)?
}

async fn perform(args: &Demo, pets: &watch::Sender<Pets>, display: &Display) -> Result<ExitCode> {
    let mut signals = Signals::with_quit().context("cannot listen for signals")?;
    let (mut stage, mut failures) = Stage::new();

    display.open();
    let ended = tokio::select! {
        biased;
        code = signals.recv() => Ended::Interrupted(code),
        Some(failure) = failures.recv() => Ended::Told(Err(failure)),
        told = story::tell(&mut stage, pets, display, args.keep) => Ended::Told(told),
        () = display.animate() => unreachable!("an animation does not end"),
    };

    if let Ended::Interrupted(_) = ended {
        display.interrupted();
    }
    let stopped = tokio::select! {
        biased;
        code = signals.recv() => {
            // Asked twice: what memory holds goes with the process, the file has to be removed.
            stage.abandon();
            display.close();
            return Ok(ExitCode::from(code));
        }
        stopped = story::clean_up(&mut stage, display) => stopped,
        () = display.animate() => unreachable!("an animation does not end"),
    };
    match ended {
        Ended::Interrupted(code) => {
            display.close();
            stopped?;
            Ok(ExitCode::from(code))
        }
        Ended::Told(told) => {
            if told.is_ok() && stopped.is_ok() {
                display.finish();
            }
            display.close();
            told.and(stopped)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

enum Ended {
    Told(Result<()>),
    /// By a signal, with the exit code that tells so.
    Interrupted(u8),
}
