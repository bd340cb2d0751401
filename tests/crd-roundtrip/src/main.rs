//! `cargo run -p windlass-crd-roundtrip -- DIRECTORY WORK`: definitions to Rust and back.
//!
//! `DIRECTORY` has a directory for each project, with definitions as YAML files in it. Each becomes a module of a
//! generated package in `WORK`; the packages are built, so that all types compile without warnings, and run: they
//! print `Kind::crd()` of each type. What they print is compared with the originals in the normal form of
//! `windlass_scaffold::types::normal`. The tables for `docs/reference/types-from-crds.md` are printed at the end.
//!
//! This is no test of the workspace: the definitions are not ours to keep, and compiling hundreds of them takes
//! minutes. Each package has a bounded amount of source, so memory stays bounded as well.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod compare;
mod packages;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use windlass_scaffold::types::Definition;

/// A definition that was read, and what became of it.
struct Case {
    project: String,
    file: PathBuf,
    definition: Definition,
    original: serde_json::Value,
    source: String,
}

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(work)) = (args.next(), args.next()) else {
        bail!("usage: windlass-crd-roundtrip DIRECTORY WORK");
    };
    let (cases, refused) = read(&directory)?;
    let started = std::time::Instant::now();
    println!(
        "{} definitions, {} bytes of Rust",
        cases.len(),
        cases.iter().map(|case| case.source.len()).sum::<usize>()
    );
    for (file, reason) in &refused {
        println!("REFUSED {}: {reason}", file.display());
    }
    let results = packages::run(&cases, &work)?;
    println!("compiled and run in {} s", started.elapsed().as_secs());
    let differences = compare::report(&cases, &results);
    if !refused.is_empty() || differences > 0 {
        bail!("{} definitions were refused, {differences} versions differ", refused.len());
    }
    Ok(())
}

type Refused = Vec<(PathBuf, String)>;

fn read(directory: &Path) -> Result<(Vec<Case>, Refused)> {
    let (mut cases, mut refused) = (Vec::new(), Vec::new());
    let mut projects: Vec<PathBuf> = entries(directory)?;
    projects.sort();
    let (mut slowest, mut slowest_file) = (std::time::Duration::ZERO, PathBuf::new());
    for project in projects.into_iter().filter(|path| path.is_dir()) {
        let name = project.file_name().unwrap_or_default().to_string_lossy().replace('+', "/");
        let mut files = entries(&project)?;
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let started = std::time::Instant::now();
            match one(&text) {
                Ok((definition, original, source)) => {
                    if started.elapsed() > slowest {
                        (slowest, slowest_file) = (started.elapsed(), file.clone());
                    }
                    cases.push(Case { project: name.clone(), file, definition, original, source });
                }
                Err(error) => refused.push((file, format!("{error:#}"))),
            }
        }
    }
    println!("slowest to generate: {} in {} ms", slowest_file.display(), slowest.as_millis());
    Ok((cases, refused))
}

fn one(text: &str) -> Result<(Definition, serde_json::Value, String)> {
    let mut definitions = Definition::parse(text)?;
    let mut definition = definitions.swap_remove(0);
    let original = windlass_scaffold::types::documents(text)?.swap_remove(0);
    // A version without a schema is one that nothing is known about.
    definition.versions.retain(windlass_scaffold::types::DefinitionVersion::has_schema);
    if definition.versions.is_empty() {
        bail!("no version has a schema");
    }
    let source = definition.to_rust()?;
    Ok((definition, original, source))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}
