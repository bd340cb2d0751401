//! `cargo run -p windlass-fuzz -- --seconds 60`: sends mutated requests to the API server, in this process, and checks every answer.
//!
//! A case creates a valid object and sends up to ten odd requests about it: mutated objects, patches, paths, queries, headers. Cases
//! follow from the seed and their number, and do not depend on each other: `--replay SEED:INDEX` runs one again and prints it.
//! `docs/reference/robustness.md` says what is tried and what is checked.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod case;
mod disturb;
mod expected;
mod kinds;
mod odd;
mod patches;
mod report;
mod request;
mod text;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;

use case::{Case, PANICKED, PANICS};
use kinds::Material;
use report::Report;
use world::World;

/// Sends mutated requests to the API server and checks every answer.
#[derive(Clone, Parser)]
struct Args {
    /// What the requests follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends after so many odd requests.
    #[arg(long)]
    requests: Option<u64>,
    /// Ends after this time; 60 unless there is another limit.
    #[arg(long)]
    seconds: Option<u64>,
    /// Runs one case, and prints its requests and answers.
    #[arg(long, value_name = "SEED:INDEX", value_parser = seed_and_index)]
    replay: Option<(u64, u64)>,
    /// How many servers are tried at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Writes which case runs into files of this directory, for a process that is killed.
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn seed_and_index(text: &str) -> Result<(u64, u64)> {
    let (seed, index) = text.split_once(':').context("SEED:INDEX, such as 1:4711")?;
    Ok((seed.parse()?, index.parse()?))
}

fn main() -> Result<()> {
    let args = Args::parse();
    std::panic::set_hook(Box::new(|panic| {
        PANICS.lock().push(format!("{panic}\n{}", std::backtrace::Backtrace::force_capture()));
        PANICKED.fetch_add(1, Ordering::Relaxed);
    }));
    let started = Instant::now();
    let seed = args.replay.map_or(args.seed, |(seed, _)| seed);
    let mut report = windlass_server::depth::run(async move || run(args).await)??;
    for panic in PANICS.lock().drain(..) {
        report.find("panic", "between requests", &panic);
    }
    report.print(seed, started.elapsed());
    if !report.findings.is_empty() {
        println!("\nrun one again with --replay SEED:INDEX");
        std::process::exit(1);
    }
    Ok(())
}

async fn run(args: Args) -> Result<Report> {
    let material = Arc::new(Material::read()?);
    if let Some((seed, index)) = args.replay {
        let mut report = Report::default();
        let mut world = World::start(&material).await?;
        let (world, material) = (&mut world, &*material);
        Case { world, material, report: &mut report, seed, index, verbose: true }.run().await?;
        return Ok(report);
    }
    let sent = Arc::new(AtomicU64::new(0));
    let jobs: Vec<_> = (0..args.jobs.max(1))
        .map(|job| tokio::spawn(work(args.clone(), job, Arc::clone(&material), Arc::clone(&sent))))
        .collect();
    let mut report = Report::default();
    for job in jobs {
        report.merge(job.await??);
    }
    Ok(report)
}

/// The cases of one server: those whose number leaves `job` when it is divided by the number of servers.
async fn work(args: Args, job: u64, material: Arc<Material>, sent: Arc<AtomicU64>) -> Result<Report> {
    let mut world = World::start(&material).await?;
    let mut report = Report::default();
    let seconds = args.seconds.or_else(|| args.requests.is_none().then_some(60));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut told = Instant::now();
    for index in (job..).step_by(args.jobs.max(1) as usize) {
        let total = sent.load(Ordering::Relaxed);
        if end.is_some_and(|end| Instant::now() > end) || args.requests.is_some_and(|requests| total >= requests) {
            break;
        }
        if let Some(directory) = &args.trace {
            std::fs::write(directory.join(format!("{job}")), format!("{}:{index}\n", args.seed))?;
        }
        let before = report.odd;
        Case { world: &mut world, material: &material, report: &mut report, seed: args.seed, index, verbose: false }
            .run()
            .await?;
        sent.fetch_add(report.odd - before, Ordering::Relaxed);
        if job == 0 && told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{total} requests, case {index}, {} findings here", report.findings.len());
        }
    }
    Ok(report)
}
