//! Brings a project to what this version generates.
//!
//! `base` is what was generated for the project last, as its record says; `target` is what is generated now. A file that
//! the user has not edited becomes the target's, an edited one is merged. Files that the user has removed stay away, and
//! files that are no longer generated stay if they were edited. If changes contradict each other nothing is written,
//! unless markers were asked for.

use std::path::Path;

use crate::line_ends;
use crate::merge;
use crate::plan::{self, Change, Plan, ReadError};
use crate::project::{self, Source};
use crate::record;
use crate::scaffold::{self, Mode, ScaffoldError};
use crate::tree::Tree;
use crate::write;

/// What to do where the user and the newer version have changed the same lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Change nothing at all.
    #[default]
    Refuse,
    /// Write both versions between markers. Files that tools have to read, such as the Makefile, stay as they are, and
    /// the new version is written beside them.
    Markers,
}

/// Where the user and the newer version have changed the same lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The file.
    pub path: String,
    /// The lines of the user's file, the first and the last, that both have changed. Empty if the whole file is meant.
    pub regions: Vec<(usize, usize)>,
    /// Where the new version was written, if not between markers in the file itself.
    pub beside: Option<String>,
}

/// What an upgrade does, or would do.
#[derive(Debug, Clone)]
pub struct Upgrade {
    /// The files that change.
    pub plan: Plan,
    /// Where changes contradict each other.
    pub contradictions: Vec<Contradiction>,
    /// The version that generated the files.
    pub from: String,
    /// This version.
    pub to: String,
    /// Whether it was written.
    pub written: bool,
}

/// Gives files, by their path, as they were generated.
pub type Unedited<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Files that make, cargo and windlass cannot read with markers in them.
const READ_BY_TOOLS: [&str; 4] = ["Makefile", "justfile", "Cargo.toml", "PROJECT"];
/// What the new version of such a file is called.
const BESIDE: &str = ".windlass-new";

/// Upgrades the project. `unedited` gives files as they were generated, for projects without a record.
///
/// # Errors
/// If the project cannot be read or written.
pub fn upgrade(
    root: &Path,
    mode: Mode,
    on_conflict: OnConflict,
    unedited: Option<Unedited<'_>>,
) -> Result<Upgrade, ScaffoldError> {
    let _lock = write::lock(root)?;
    let before = scaffold::open_locked(root)?;
    let mut after = before.clone();
    let own = env!("CARGO_PKG_VERSION");
    own.clone_into(&mut after.cli_version);
    if let Source::Version(version) = &mut after.settings_mut().windlass {
        own.clone_into(version);
    }
    let rendered = scaffold::rendered(&before)?;
    let target = scaffold::rendered(&after)?;
    let base = match unedited {
        Some(unedited) => earlier(&rendered, &target, unedited),
        None => record::read(root).unwrap_or(rendered),
    };
    let (plan, contradictions) = compare(root, &base, &target, mode.force, on_conflict)?;
    let written = !mode.dry_run && (contradictions.is_empty() || on_conflict == OnConflict::Markers);
    if written {
        scaffold::write_recorded(root, &plan, &target)?;
    }
    Ok(Upgrade { plan, contradictions, from: before.cli_version, to: own.to_owned(), written })
}

/// The generated files as they are somewhere else, such as in an earlier commit.
fn earlier(rendered: &Tree, target: &Tree, unedited: Unedited<'_>) -> Tree {
    let mut tree = Tree::default();
    for path in rendered.paths().chain(target.paths()) {
        if let Some(content) = unedited(path) {
            tree.set(path, line_ends::to_lf(content));
        }
    }
    tree
}

fn compare(
    root: &Path,
    base: &Tree,
    target: &Tree,
    force: bool,
    on_conflict: OnConflict,
) -> Result<(Plan, Vec<Contradiction>), ReadError> {
    let mut paths: Vec<&str> = base.paths().chain(target.paths()).collect();
    paths.sort_unstable();
    paths.dedup();
    let (mut plan, mut contradictions) = (Plan::default(), Vec::new());
    let samples = record::named(root, record::SAMPLES);
    for path in paths {
        let (base, target) = (base.get(path), target.get(path));
        let disk = plan::unedited(plan::read(root, path)?, samples.as_ref().and_then(|tree| tree.get(path)), base);
        if disk.as_deref() == target {
            continue;
        }
        // The description is the user's already: the target was made of it.
        if path == project::FILE {
            plan.change(path, disk, target.map(str::to_owned));
            continue;
        }
        if base == target || (path == crate::render::LICENSE && disk.is_some()) {
            continue;
        }
        let merged = match (base, target, disk.as_deref()) {
            (base, target, disk) if base == disk => Ok(target.map(str::to_owned)),
            // Removed by the user, or theirs now.
            (Some(_), _, None) | (_, None, _) => continue,
            (None, Some(target), None) => Ok(Some(target.to_owned())),
            (None, Some(_), Some(_)) => Err(None),
            (Some(base), Some(target), Some(disk)) => {
                merge::merge_versions(path, base, target, disk).map(Some).map_err(Some)
            }
        };
        match merged {
            Ok(after) => plan.change(path, disk, after),
            Err(_) if force => plan.change(path, disk, target.map(str::to_owned)),
            Err(marked) => {
                let regions = marked.as_deref().map(regions).unwrap_or_default();
                let name = path.rsplit('/').next().unwrap_or(path);
                let marked = marked.filter(|_| !READ_BY_TOOLS.contains(&name));
                let beside = marked.is_none().then(|| format!("{path}{BESIDE}"));
                if on_conflict == OnConflict::Markers {
                    match &beside {
                        Some(beside) => {
                            let before = plan::read(root, beside)?;
                            plan.change(beside, before, target.map(str::to_owned));
                        }
                        None => plan.change(path, disk, marked),
                    }
                }
                contradictions.push(Contradiction { path: path.to_owned(), regions, beside });
            }
        }
    }
    plan.changes.sort_by(|one: &Change, other| one.path.cmp(&other.path));
    Ok((plan, contradictions))
}

/// The lines of the user's file between the markers of a merge.
fn regions(marked: &str) -> Vec<(usize, usize)> {
    let (mut regions, mut line, mut start, mut users) = (Vec::new(), 0, 0, true);
    for text in marked.lines() {
        if text.starts_with("<<<<<<<") {
            start = line + 1;
        } else if text.starts_with("|||||||") || (users && text.starts_with("=======") && start > 0) {
            // An empty region is where lines were removed.
            regions.push((start, line.max(start)));
            users = false;
        } else if text.starts_with(">>>>>>>") {
            users = true;
            start = 0;
        } else if users {
            line += 1;
        }
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_lines_of_the_users_file() {
        let marked = "a\n<<<<<<< ours\nb\nc\n||||||| original\nx\n=======\ny\n>>>>>>> theirs\nd\n<<<<<<< ours\ne\n=======\n\
                      z\n>>>>>>> theirs\n";
        assert_eq!(regions(marked), [(2, 3), (5, 5)]);
    }
}
