//! What a command will do to the files of a project: planned first, then shown or written.
//!
//! A plan compares three trees: `base`, what the project's `PROJECT` file generates now; `target`, what it will
//! generate; and the files on disk. A file that both trees generate alike is left alone, whatever the user has done
//! to it. A file that the user has not touched becomes the target's. Where both the user and the target changed a
//! file, the changes are merged, and if they contradict each other the plan has a conflict and
//! nothing at all is written. A file that both trees generate at different paths is moved, with the user's changes.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::line_ends;
use crate::merge;
use crate::record;
use crate::tree::Tree;

/// What will be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The files that change, ordered by path.
    pub changes: Vec<Change>,
    /// The files whose changes contradict the user's.
    pub conflicts: Vec<Conflict>,
}

/// One file that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its path in the project.
    pub path: String,
    /// What is there now; `None` creates the file.
    pub before: Option<String>,
    /// What will be there; `None` removes the file.
    pub after: Option<String>,
}

/// One file that cannot be changed without losing what the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its path in the project.
    pub path: String,
    /// Why not.
    pub reason: &'static str,
    /// The change that was to be made.
    pub wanted: Change,
}

/// Names the file where a directory has to be.
fn in_the_way(root: &Path, path: &str, source: std::io::Error) -> ReadError {
    let mut above = Path::new(path).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    let Some(file) = above.find(|path| root.join(path).exists()) else {
        return ReadError { path: path.into(), source };
    };
    let message = format!("{} is a file, and has to be a directory: move it away", file.display());
    ReadError { path: path.to_owned(), source: std::io::Error::new(source.kind(), message) }
}

/// A file on disk cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct ReadError {
    path: String,
    source: std::io::Error,
}

impl Plan {
    /// Compares the trees with the files below `root`. With `force`, a conflict becomes the target's file.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(root: &Path, base: &Tree, target: &Tree, force: bool) -> Result<Self, ReadError> {
        let mut paths: Vec<&str> = base.paths().chain(target.paths()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut plan = Self::default();
        let gone = gone(root, base);
        let moves = base.moves(target);
        let moved: HashSet<&str> = moves.values().copied().collect();
        let samples = record::named(root, record::SAMPLES);
        for path in paths {
            if let Some(old) = moves.get(path) {
                let in_the_way = base.get(path).filter(|_| !moved.contains(path));
                plan.change_moved(root, (old, path), (base.get(old), in_the_way), target.get(path), force)?;
                continue;
            }
            let (base, target) = (base.get(path), target.get(path));
            if base == target {
                continue;
            }
            let disk = unedited(read(root, path)?, samples.as_ref().and_then(|tree| tree.get(path)), base);
            if target.is_none() && moved.contains(path) {
                plan.change(path, disk, None);
                continue;
            }
            // What the user has deleted stays deleted, and so does what would be added to it.
            if disk.is_none() && !force && (gone.contains(directory(path)) || (base.is_some() && is_optional(path))) {
                continue;
            }
            match decide(path, base, target, disk.as_deref()) {
                Decision::Leave => {}
                Decision::Write(after) => plan.change(path, disk, after),
                Decision::Conflict(_) if force => plan.change(path, disk, target.map(str::to_owned)),
                Decision::Conflict(reason) => {
                    let before = base.map(str::to_owned);
                    let wanted = Change { path: path.to_owned(), before, after: target.map(str::to_owned) };
                    plan.conflicts.push(Conflict { path: path.to_owned(), reason, wanted });
                }
            }
        }
        Ok(plan)
    }

    /// A file that is generated at another path goes there with the user's changes.
    fn change_moved(
        &mut self,
        root: &Path,
        (old, path): (&str, &str),
        (base, in_the_way): (Option<&str>, Option<&str>),
        target: Option<&str>,
        force: bool,
    ) -> Result<(), ReadError> {
        let (before, disk) = (read(root, path)?, read(root, old)?);
        // What the user has deleted stays deleted.
        if disk.is_none() && before.is_none() && !force && (base == target || is_optional(old)) {
            return Ok(());
        }
        let decision = match decide(old, base, target, disk.as_deref()) {
            Decision::Leave => Decision::Write(disk),
            decision => decision,
        };
        let wanted = |before: Option<&str>| Change {
            path: path.to_owned(),
            before: before.map(str::to_owned),
            after: target.map(str::to_owned),
        };
        let is_free = before.as_deref() == in_the_way || before.is_none();
        match decision {
            _ if force && !is_free => self.change(path, before, target.map(str::to_owned)),
            _ if !is_free => {
                let reason = if in_the_way.is_some() { REMOVED } else { EXISTS };
                self.conflicts.push(Conflict { path: path.to_owned(), reason, wanted: wanted(in_the_way) });
            }
            Decision::Write(after) => self.change(path, before, after),
            _ if force => self.change(path, before, target.map(str::to_owned)),
            Decision::Conflict(reason) => {
                self.conflicts.push(Conflict { path: old.to_owned(), reason, wanted: wanted(base) });
            }
            Decision::Leave => {}
        }
        Ok(())
    }

    pub(crate) fn change(&mut self, path: &str, before: Option<String>, after: Option<String>) {
        if before != after {
            self.changes.push(Change { path: path.to_owned(), before, after });
        }
    }

    /// The changes as a unified diff.
    pub fn diff(&self) -> String {
        self.changes.iter().map(Change::diff).collect()
    }
}

impl Change {
    /// What happens to the file, in one word.
    pub fn verb(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "create",
            (_, None) => "remove",
            _ => "update",
        }
    }

    /// The change as a unified diff.
    pub fn diff(&self) -> String {
        let before = self.before.as_deref().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let name = |side: &Option<String>, prefix: &str| match side {
            Some(_) => format!("{prefix}/{}", self.path),
            None => "/dev/null".to_owned(),
        };
        let patch = diffy::create_patch(before, after).to_string();
        // The first two lines name the files.
        let hunks = patch.splitn(3, '\n').nth(2).unwrap_or_default();
        let mut text = String::new();
        let _ = write!(text, "--- {}\n+++ {}\n{hunks}", name(&self.before, "a"), name(&self.after, "b"));
        text
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Whether a project is whole without a file: nothing but Rust's own files and `PROJECT` refers to others by name, and
/// Cargo finds tests by itself.
fn is_optional(path: &str) -> bool {
    let is_code = Path::new(path).extension().is_some_and(|extension| extension == "rs" || extension == "toml");
    path.starts_with("tests/") || (!is_code && path != crate::project::FILE)
}

/// The directories with generated files that the user has deleted, all but those with code.
fn gone(root: &Path, base: &Tree) -> HashSet<String> {
    let directories = base.paths().filter(|path| is_optional(path)).map(directory).filter(|path| !path.is_empty());
    directories.filter(|directory| !root.join(directory).exists()).map(str::to_owned).collect()
}

const REMOVED: &str = "has changes of yours and would be removed";
const EXISTS: &str = "exists already";

enum Decision {
    Leave,
    Write(Option<String>),
    Conflict(&'static str),
}

fn decide(path: &str, base: Option<&str>, target: Option<&str>, disk: Option<&str>) -> Decision {
    if disk == target {
        return Decision::Leave;
    }
    if disk == base {
        return Decision::Write(target.map(str::to_owned));
    }
    // Text for people is the user's as soon as they have edited it: not worth refusing a command.
    let is_prose = Path::new(path).extension().is_some_and(|extension| extension == "md");
    match (base, target, disk) {
        // A license that was there before is the user's.
        (None, _, Some(_)) if path == crate::render::LICENSE || is_prose => Decision::Leave,
        // A repository may come with one; what has to be ignored is ignored as well.
        (None, Some(target), Some(disk)) if path.ends_with("ignore") => Decision::Write(Some(with_lines(disk, target))),
        (Some(_), Some(_), None) if is_prose => Decision::Leave,
        (Some(_), None, _) => Decision::Conflict(REMOVED),
        (_, _, None) => Decision::Conflict("was removed by you and would be changed"),
        (None, _, Some(_)) => Decision::Conflict(EXISTS),
        (Some(base), Some(target), Some(disk)) => match merge::merge(path, base, target, disk) {
            Some(merged) => Decision::Write(Some(merged)),
            None if is_prose => Decision::Leave,
            None => Decision::Conflict("has changes of yours at the same place"),
        },
    }
}

/// The user's lines, and behind them those of `target` that are not among them.
fn with_lines(disk: &str, target: &str) -> String {
    let mut text = disk.to_owned();
    for line in target.lines().filter(|line| !disk.lines().any(|other| other == *line)) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What counts as the content of a file: one that was made of a schema is as good as the one that is generated.
pub(crate) fn unedited(disk: Option<String>, made: Option<&str>, base: Option<&str>) -> Option<String> {
    if base.is_some() && disk.is_some() && disk.as_deref() == made { base.map(str::to_owned) } else { disk }
}

/// A file of a project as it is generated: with `\n` at the end of lines, also where a checkout has `\r\n`.
///
/// # Errors
/// If it cannot be read. One that is not there is `None`.
pub fn read(root: &Path, path: &str) -> Result<Option<String>, ReadError> {
    match std::fs::read(root.join(path)) {
        // A file that is no text is the user's: never equal to what is generated.
        Ok(bytes) => Ok(Some(line_ends::to_lf(String::from_utf8_lossy(&bytes).into_owned()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) if source.kind() == std::io::ErrorKind::NotADirectory => Err(in_the_way(root, path, source)),
        Err(source) => Err(ReadError { path: path.to_owned(), source }),
    }
}
