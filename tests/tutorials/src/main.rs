//! Walks tutorials from an empty directory to an operator that reconciles, with the `windlass` command alone; and
//! generates projects with many combinations of options and has the compiler check them; and checks the examples.
//!
//! Everything is compiled into one target directory, so that dependencies are compiled once. The operators of the
//! tutorials run outside of their cluster as a ServiceAccount with the roles that `windlass manifests` writes.
#![allow(clippy::print_stdout, reason = "a program for people and CI logs")]

mod cluster;
mod combinations;
mod commands;
mod example;
mod service;
mod tutorial;
mod workspace;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser;

use commands::Commands;

#[derive(Parser)]
struct Args {
    /// The program to test
    #[arg(long, default_value = "target/debug/windlass")]
    windlass: PathBuf,
    /// Where projects are generated; what is there is deleted
    #[arg(long, default_value = "target/tutorials")]
    directory: PathBuf,
    /// The versions of dependencies that projects use
    #[arg(long, default_value = "Cargo.lock")]
    lock: PathBuf,
    /// Check the examples in this directory instead of walking tutorials
    #[arg(long, value_name = "DIRECTORY")]
    examples: Option<PathBuf>,
    /// How often the operator of each example is killed
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Walk only these tutorials, and skip the combinations; or check only these examples
    names: Vec<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let started = Instant::now();
    if args.directory.exists() {
        std::fs::remove_dir_all(&args.directory).context("cannot delete the projects of the last run")?;
    }
    std::fs::create_dir_all(&args.directory)?;
    let commands = Commands::new(&args.windlass, &args.directory, &args.lock)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(examples) = &args.examples {
        return runtime.block_on(example::check(&commands, examples, &args.names, args.rounds));
    }
    for page in tutorial::pages()? {
        let is_elsewhere = [tutorial::Start::Tutorial, tutorial::Start::Example].contains(&page.start);
        if !is_elsewhere && is_named(&args.names, page.path) {
            walk(&commands, &page)?;
        }
    }
    for tutorial in tutorial::ALL {
        if args.names.is_empty() || args.names.iter().any(|name| name == tutorial.name) {
            let started = Instant::now();
            let walked = runtime.block_on(tutorial.walk(&commands));
            walked.with_context(|| format!("the tutorial {:?} fails", tutorial.name))?;
            println!("tutorial {}: {} s", tutorial.name, started.elapsed().as_secs());
        }
    }
    if args.names.is_empty() {
        workspace::check(&commands)?;
    }
    println!("done in {} s", started.elapsed().as_secs());
    Ok(())
}

/// Whether everything is walked, or this page.
fn is_named(names: &[String], page: &str) -> bool {
    names.is_empty() || names.iter().any(|name| page.trim_end_matches(".md").ends_with(name.as_str()))
}

/// Walks a page, and says how long that took.
fn walk(commands: &Commands, page: &tutorial::Page) -> Result<()> {
    let started = Instant::now();
    tutorial::walk(commands, page).with_context(|| format!("the page {} fails", page.path))?;
    println!("page {}: {} s", page.path, started.elapsed().as_secs());
    Ok(())
}
