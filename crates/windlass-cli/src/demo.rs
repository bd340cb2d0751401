//! `windlass demo [NAME]`: a cluster and the operator of an example in this process, and objects that pass through both.
//!
//! ```text
//! story ── tells what to do ──► stage: cluster, operator, for Pets a pet store
//!   │                             │ changes of objects
//!   └── milestones ──► display ◄──┘ (pets, tables)
//! ```
//!
//! The pet store has a story of its own; those of the other examples are [tales]. The operators are those of `examples`,
//! unchanged, and reach the cluster over TLS with a kubeconfig as they would reach any other. Whatever happens, and at whatever moment a signal
//! comes, [`Stage::stop`] runs: nothing is left behind.

mod display;
mod live;
mod pets;
mod stage;
mod story;
mod table;
mod tables;
mod tale;
mod tales;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass_server::depth;

use crate::args::{Demo, Format};
use crate::signals::Signals;
use crate::{logging, open_files, output};
use display::{Board, Display, Playbill};
use pets::Pets;
use stage::Stage;
use tables::Tables;

/// The demo that runs if none is named.
const PET_STORE: (&str, Playbill) = (
    "petstore",
    Playbill {
        about: "a cluster, a pet store and its operator in one process",
        objects: "pets",
        commands: &["get pets --watch", "get pets -o yaml", "edit pet tron", "describe pet thor", "delete pets --all"],
    },
);

pub(crate) fn run(args: &Demo) -> Result<ExitCode> {
    if args.list {
        list(args.output);
        return Ok(ExitCode::SUCCESS);
    }
    let tale = match args.name.as_deref() {
        None => None,
        Some(name) if name == PET_STORE.0 => None,
        Some(name) => Some(tales::ALL.iter().find(|tale| tale.name == name).ok_or_else(|| {
            let names: Vec<&str> = names().map(|(name, _)| name).collect();
            output::Usage(format!("there is no demo {name:?}; there are {}", names.join(", ")))
        })?),
    };
    let logs = std::env::var_os("RUST_LOG").is_some_and(|filter| !filter.is_empty());
    if logs {
        logging::init();
    }
    open_files::raise_limit();
    if let Some(tale) = tale {
        let board = watch::Sender::new(Tables::default());
        let display = Display::choose(args.output, logs, tale.playbill, board.subscribe());
        return depth::run(async || {
            perform(&display, async |stage| tale::tell(tale, stage, &board, &display, args.keep).await).await
        })?;
    }
    let pets = watch::Sender::new(Pets::default());
    let display = Display::choose(args.output, logs, PET_STORE.1, pets.subscribe());
    depth::run(async || perform(&display, async |stage| story::tell(stage, &pets, &display, args.keep).await).await)?
}

/// Names, and what runs.
fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = tales::ALL.iter().map(|tale| (tale.name, tale.playbill.about));
    std::iter::once((PET_STORE.0, PET_STORE.1.about)).chain(others)
}

fn list(format: Format) {
    match format {
        Format::Text => {
            for (name, about) in names() {
                output::line(format_args!("{name:<24} {about}"));
            }
        }
        Format::Json => {
            let demos: Vec<Value> = names().map(|(name, about)| json!({ "name": name, "about": about })).collect();
            output::json(&json!({ "demos": demos }));
        }
    }
}

/// Tells a story from its beginning to its end, or until a signal comes, and cleans up.
async fn perform<B: Board>(display: &Display<B>, tell: impl AsyncFnOnce(&mut Stage) -> Result<()>) -> Result<ExitCode> {
    let mut signals = Signals::with_quit().context("cannot listen for signals")?;
    let (mut stage, mut failures) = Stage::new();

    display.open();
    let ended = tokio::select! {
        biased;
        code = signals.recv() => Ended::Interrupted(code),
        Some(failure) = failures.recv() => Ended::Told(Err(failure)),
        told = tell(&mut stage) => Ended::Told(told),
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
