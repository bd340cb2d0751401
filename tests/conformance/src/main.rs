//! The conformance ratchet: what passes keeps passing.
//!
//! `shared/conformance`, beside this repository, holds transcripts of a real control plane and a tool that replays
//! them. For each [profile] this program starts our server, replays every scenario, and fails when one fails
//! that the profile's list has. `--update` adds what passes now. A list only grows: a name that was listed once, in any
//! commit, and is still a scenario must be listed.
#![allow(clippy::print_stdout)]

mod list;
mod profile;
mod replay;
mod server;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;

use list::Passing;
use profile::Profile;
use replay::Corpus;
use server::Server;

/// Replays transcripts of a real control plane against `windlass up`.
#[derive(Debug, Parser)]
struct Args {
    /// Add what passes now to the list
    #[arg(long)]
    update: bool,
    /// The program to test [default: the `windlass` beside this program]
    #[arg(long, value_name = "FILE")]
    windlass: Option<PathBuf>,
    /// The directory with `replay.py`, `scenarios/` and `cluster/` [default: $WINDLASS_CORPUS or ../shared/conformance]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Replay only the scenarios of this profile
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Replay only the scenarios that are listed
    #[arg(long, conflicts_with = "update")]
    listed_only: bool,
    /// How many scenarios to replay at the same time
    #[arg(long, default_value_t = 8)]
    jobs: usize,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let dir = args.corpus.clone().or_else(|| std::env::var_os("WINDLASS_CORPUS").map(PathBuf::from));
    let dir = dir.unwrap_or_else(|| repository().join("../shared/conformance"));
    let program = args.windlass.clone().map_or_else(sibling, Ok)?;
    let mut holds = true;
    for profile in Profile::ALL {
        if args.profile.is_some_and(|only| only != profile) {
            continue;
        }
        match Corpus::find(&dir, profile.folder())? {
            Some(corpus) => holds &= check(&args, profile, &corpus, &program)?,
            None => println!("SKIPPED: there is no conformance corpus at {}", dir.join(profile.folder()).display()),
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replays the scenarios of one profile; tells whether everything on its list passes and is still listed.
fn check(args: &Args, profile: Profile, corpus: &Corpus, program: &Path) -> Result<bool> {
    let mut passing = Passing::read(repository(), profile.list())?;
    let unlisted: BTreeSet<String> = corpus.scenarios.difference(&passing.names).cloned().collect();

    let server = Server::start(program, profile.flags())?;
    let listed = corpus.replay(&server, &passing.names, args.jobs)?;
    let failed: BTreeSet<String> = passing.names.difference(&listed.passed).cloned().collect();
    let new = if args.listed_only || unlisted.is_empty() {
        BTreeSet::new()
    } else {
        corpus.replay(&server, &unlisted, args.jobs)?.passed
    };
    drop(server);

    let folder = profile.folder();
    println!("{folder}: {} of {} listed scenarios pass", listed.passed.len(), passing.names.len());
    if !args.listed_only {
        println!("{folder}: {} of {} others pass", new.len(), unlisted.len());
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
        println!("SKIPPED: {} has no history that could show whether it only grows", profile.list());
        Vec::new()
    });
    for name in &lost {
        println!("FAILED: {name} was listed before; the list only grows");
    }
    Ok(failed.is_empty() && lost.is_empty())
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
