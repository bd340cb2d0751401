//! The conformance ratchet: what passes keeps passing.
//!
//! `shared/conformance`, beside this repository, holds transcripts of a real kube-apiserver and a tool that
//! replays them. This program starts our server, replays every scenario, and fails when one that is listed in
//! `passing.txt` fails. `--update` adds what passes now. The list only grows: a name that was listed once, in
//! any commit, and is still a scenario must be listed.
#![allow(clippy::print_stdout)]

mod list;
mod replay;
mod server;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use list::Passing;
use replay::Corpus;
use server::Server;

/// Replays transcripts of a real kube-apiserver against `windlass up`.
#[derive(Debug, Parser)]
struct Args {
    /// Add what passes now to the list
    #[arg(long)]
    update: bool,
    /// The program to test [default: the `windlass` beside this program]
    #[arg(long, value_name = "FILE")]
    windlass: Option<PathBuf>,
    /// The directory with `replay.py` and `scenarios/` [default: $WINDLASS_CORPUS or ../shared/conformance]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Replay only the scenarios that are listed
    #[arg(long, conflicts_with = "update")]
    listed_only: bool,
    /// How many scenarios to replay at the same time
    #[arg(long, default_value_t = 8)]
    jobs: usize,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let dir = args.corpus.or_else(|| std::env::var_os("WINDLASS_CORPUS").map(PathBuf::from));
    let dir = dir.unwrap_or_else(|| repository().join("../shared/conformance"));
    let Some(corpus) = Corpus::find(&dir)? else {
        println!("SKIPPED: there is no conformance corpus at {}", dir.display());
        return Ok(ExitCode::SUCCESS);
    };
    let mut passing = Passing::read(&repository().join("tests/conformance/passing.txt"))?;
    let program = args.windlass.map_or_else(sibling, Ok)?;
    let unlisted: BTreeSet<String> = corpus.scenarios.difference(&passing.names).cloned().collect();

    let server = Server::start(&program)?;
    let listed = corpus.replay(&server, &passing.names, args.jobs)?;
    let failed: BTreeSet<String> = passing.names.difference(&listed.passed).cloned().collect();
    let new = if args.listed_only || unlisted.is_empty() {
        BTreeSet::new()
    } else {
        corpus.replay(&server, &unlisted, args.jobs)?.passed
    };
    drop(server);

    println!("conformance: {} of {} listed scenarios pass", listed.passed.len(), passing.names.len());
    if !args.listed_only {
        println!("conformance: {} of {} others pass", new.len(), unlisted.len());
    }
    for line in listed.failures.lines() {
        println!("  {line}");
    }
    for name in &failed {
        println!("FAILED: {name} is listed as passing");
    }
    if args.update {
        passing.names.extend(new);
        passing.write()?;
        println!("wrote {}", passing.path.display());
    } else {
        for name in &new {
            println!("PASSES NOW: {name}; add it: cargo run -p windlass-conformance -- --update");
        }
    }
    let lost = passing.lost(repository(), &corpus.scenarios).unwrap_or_else(|| {
        println!("SKIPPED: without the history of passing.txt nobody can tell whether it only grows");
        Vec::new()
    });
    for name in &lost {
        println!("FAILED: {name} was listed before; the list only grows");
    }
    Ok(if failed.is_empty() && lost.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The root of this repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The `windlass` that was built into the same directory as this program.
fn sibling() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("windlass");
    path.exists().then_some(path).context("build the server first (cargo build), or name it with --windlass")
}
