//! `windlass upgrade`: brings a project to what this version generates.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use windlass_scaffold::upgrade::{self as scaffold, Contradiction, Unedited};

use crate::args::{ListFormat, OnConflict, Upgrade};
use crate::signals::uninterrupted;
use crate::{output, project};

pub(crate) fn run(args: &Upgrade) -> Result<ExitCode> {
    let root = project::root(Path::new("."));
    let on_conflict = match args.conflicts {
        OnConflict::Refuse => scaffold::OnConflict::Refuse,
        OnConflict::Markers => scaffold::OnConflict::Markers,
    };
    if let Some(revision) = &args.from {
        check_revision(&root, revision)?;
    }
    let unedited = |path: &str| git_show(&root, args.from.as_deref()?, path);
    let unedited = args.from.as_ref().map(|_| &unedited as Unedited<'_>);
    let done = uninterrupted(|| scaffold::upgrade(&root, project::mode(&args.change), on_conflict, unedited))?;
    let contradicts = !done.contradictions.is_empty();
    output::document(args.change.output, || {
        json!({
            "from": done.from, "to": done.to, "written": done.written, "changes": project::changes(&done.plan),
            "conflicts": done.contradictions.iter().map(|found| json!({
                "path": found.path, "newVersion": found.beside.as_ref().filter(|_| done.written),
                "lines": found.regions.iter().map(|(first, last)| json!([first, last])).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    });
    if args.change.output == ListFormat::Table && (!contradicts || done.written || args.change.dry_run) {
        project::report(&done.plan, &args.change, "git diff, then cargo test --workspace");
    }
    if contradicts {
        let lines: Vec<String> =
            done.contradictions.iter().map(|found| format!("  {}", describe(found, done.written))).collect();
        let lines = lines.join("\n");
        if done.written {
            output::note(format_args!("resolve what you and windlass {} have changed alike:\n{lines}", done.to));
            return Ok(ExitCode::FAILURE);
        }
        bail!(
            "you and windlass {} have changed the same lines, and nothing was written:\n{lines}\nAdd \
             --conflicts=markers to write both versions, or --force to replace these files",
            done.to
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(found: &Contradiction, written: bool) -> String {
    let lines: Vec<String> = found
        .regions
        .iter()
        .map(|(first, last)| if first == last { format!("line {first}") } else { format!("lines {first} to {last}") })
        .collect();
    let place = if lines.is_empty() { "the whole file".to_owned() } else { lines.join(", ") };
    match found.beside.as_ref().filter(|_| written) {
        Some(beside) => format!("{}: {place}; the new version is in {beside}", found.path),
        None => format!("{}: {place}", found.path),
    }
}

fn check_revision(root: &Path, revision: &str) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(format!("{revision}^{{commit}}"));
    let found = git.current_dir(root).output().context("cannot run git, which --from needs")?;
    if !found.status.success() {
        bail!("--from {revision}: git knows no such commit here");
    }
    Ok(())
}

fn git_show(root: &Path, revision: &str, path: &str) -> Option<String> {
    let shown = Command::new("git").arg("show").arg(format!("{revision}:./{path}")).current_dir(root).output().ok()?;
    shown.status.success().then(|| String::from_utf8(shown.stdout).ok())?
}
