//! What the commands that change a project have in common: where it is, and what is printed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use windlass_scaffold::command::{CommandError, Selector};
use windlass_scaffold::project::License;
use windlass_scaffold::scaffold::{self, Mode};
use windlass_scaffold::{Plan, Project};

use crate::args::{Change, LicenseName, Selected};
use crate::output;
use crate::signals::uninterrupted;

/// Changes the project of the current directory, or of the closest directory above it that has one.
pub(crate) fn change(
    args: &Change,
    change: impl FnOnce(&mut Project) -> Result<(), CommandError>,
    next: &str,
) -> Result<ExitCode> {
    let root = root(Path::new("."));
    let plan = uninterrupted(|| scaffold::change(&root, mode(args), change))?;
    report(&plan, args, next);
    Ok(ExitCode::SUCCESS)
}

/// The directory with the file `PROJECT`, at `start` or above it.
pub(crate) fn root(start: &Path) -> PathBuf {
    let Ok(start) = std::path::absolute(start) else { return start.to_owned() };
    let with_project = start.ancestors().find(|directory| directory.join("PROJECT").is_file());
    with_project.unwrap_or(&start).to_owned()
}

/// The directory of the project, for commands that build it.
pub(crate) fn cargo_root() -> Result<PathBuf> {
    let root = root(Path::new("."));
    anyhow::ensure!(
        root.join("Cargo.toml").is_file(),
        "there is no project here: {} has no Cargo.toml; run `windlass init`, or go to the project's directory",
        root.display()
    );
    Ok(root)
}

/// Refuses to build where cargo would find no package.
pub(crate) fn ensure_package() -> Result<()> {
    let here = std::path::absolute(".").context("cannot tell the current directory")?;
    anyhow::ensure!(
        here.ancestors().any(|directory| directory.join("Cargo.toml").is_file()),
        "there is no project here: {} has no Cargo.toml; run `windlass init`, or go to the project's directory",
        here.display()
    );
    Ok(())
}

/// Refuses a project that a newer windlass has written. Commands that only build it work on any other.
pub(crate) fn check(root: &Path) -> Result<()> {
    match std::fs::read_to_string(root.join("PROJECT")) {
        Ok(text) => Ok(Project::check_version(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", root.join("PROJECT").display())),
    }
}

/// The text of a file whose comment is to be at the top of Rust files, without the signs that make it a comment.
pub(crate) fn header(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    anyhow::ensure!(!text.contains(|c: char| c.is_control() && !c.is_whitespace()), "{} is no text", file.display());
    let plain = |line: &str| {
        let line = line.trim().trim_start_matches("/*").trim_end_matches("*/").trim();
        line.trim_start_matches("//").trim_start_matches('*').trim().to_owned()
    };
    let header = text.lines().map(plain).collect::<Vec<_>>().join("\n").trim().to_owned();
    anyhow::ensure!(!header.is_empty(), "{} says nothing; --license and --owner name a license", file.display());
    Ok(header)
}

pub(crate) fn mode(args: &Change) -> Mode {
    Mode { dry_run: args.dry_run, force: args.force }
}

/// Prints what was changed, or what would be.
pub(crate) fn report(plan: &Plan, args: &Change, next: &str) {
    if output::document(args.output, || json!({"dryRun": args.dry_run, "changes": changes(plan)})) {
        return;
    }
    if plan.changes.is_empty() {
        output::line("nothing to change");
    } else if args.dry_run {
        show(plan);
    } else {
        for change in &plan.changes {
            output::line(format_args!("{} {}", change.verb(), change.path));
        }
        output::line(format_args!("\nnext: {next}"));
    }
}

/// Prints the changes as a diff that `git apply` takes, with the empty line that may be its last one.
pub(crate) fn show(plan: &Plan) {
    let diff = plan.diff();
    output::line(diff.strip_suffix('\n').unwrap_or(&diff));
}

/// What programs are given about the files that change.
pub(crate) fn changes(plan: &Plan) -> Vec<Value> {
    plan.changes.iter().map(|change| json!({"action": change.verb(), "path": change.path})).collect()
}

impl From<LicenseName> for License {
    fn from(name: LicenseName) -> Self {
        match name {
            LicenseName::Apache2 => Self::Apache2,
            LicenseName::Mit => Self::Mit,
            LicenseName::None => Self::None,
            LicenseName::Copyright => Self::Copyright,
        }
    }
}

impl From<Selected> for Selector {
    fn from(selected: Selected) -> Self {
        Self { group: selected.group, version: selected.version, kind: selected.kind }
    }
}
