//! `windlass image load`, `list` and `remove`: the images of this machine.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use windlass_image::{Store, Stored, archive};

use crate::args::{ImageList, ImageLoad, ImageRemove};
use crate::output;

pub(super) fn load(args: &ImageLoad) -> Result<ExitCode> {
    let store = Store::of_user()?;
    let name = args.tag.clone().map(Into::into);
    let loaded = archive::load(&store, &args.file, name.as_ref());
    let loaded = loaded.with_context(|| format!("cannot load {}", args.file.display()))?;
    store.collect()?;
    if output::document(args.output, || json!(loaded)) {
        return Ok(ExitCode::SUCCESS);
    }
    for image in loaded {
        output::line(format_args!("loaded {} as {}", image.digest, image.name));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn list(args: &ImageList) -> Result<ExitCode> {
    let images = Store::of_user()?.list()?;
    if output::document(args.output, || json!(images)) {
        return Ok(ExitCode::SUCCESS);
    }
    if images.is_empty() {
        output::line("no images; make one with `windlass image build`, or load one with `windlass image load`");
        return Ok(ExitCode::SUCCESS);
    }
    let widest = images.iter().map(|image| image.name.len()).max().unwrap_or_default();
    output::line(format_args!("{:widest$}  {:12}  {:>9}", "NAME", "DIGEST", "SIZE"));
    for Stored { name, digest, size, .. } in images {
        let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
        output::line(format_args!("{name:widest$}  {short:12}  {:>9}", megabytes(size)));
    }
    Ok(ExitCode::SUCCESS)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1_000_000.0)
}

pub(super) fn remove(args: &ImageRemove) -> Result<ExitCode> {
    let store = Store::of_user()?;
    for name in &args.names {
        store.remove(name)?;
        output::line(format_args!("removed {name}"));
    }
    // What is in use stays until its user ends.
    collect(&store)?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes what nothing names. The process must have one thread.
#[cfg(target_os = "linux")]
fn collect(store: &Store) -> Result<()> {
    use windlass_container::UserNamespace;
    if !UserNamespace::is_needed() || !store.has_owners() {
        store.collect()?;
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let users = UserNamespace::enter(&store.dir().join("users"), &program)
        .context("cannot delete files of other users without a user namespace")?;
    let collected = store.collect();
    users.end();
    collected?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn collect(store: &Store) -> Result<()> {
    store.collect()?;
    Ok(())
}
