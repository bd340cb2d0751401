//! Writes a plan: all of it, or nothing.
//!
//! New contents are first written into a directory beside the project's files, `.windlass-changes`, with a list of
//! what is to happen. When that list is on disk the change is decided: files are then moved into place one by one,
//! and the directory is removed. A process that ends before leaves a directory without a list, which is thrown away;
//! one that ends in the middle leaves the list, and the next command finishes the work before it begins its own.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

const STAGE: &str = ".windlass-changes";
const LIST: &str = "list.json";

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}; nothing was changed", path.display())]
pub struct WriteError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

#[derive(Debug, Serialize, Deserialize)]
struct Move {
    path: String,
    /// The file of the staging directory; `None` removes.
    from: Option<String>,
    executable: bool,
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> WriteError + use<'a> {
    move |source| WriteError { what, path: path.to_owned(), source }
}

/// Has other commands wait that would change the same project, until it is dropped.
pub(crate) struct Lock(#[allow(dead_code, reason = "held")] Option<fs::File>);

/// Waits until no other command changes the project.
pub(crate) fn lock(root: &Path) -> Result<Lock, WriteError> {
    let directory = match fs::File::open(root) {
        Ok(directory) => directory,
        // There is nothing that others could change.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock(None)),
        Err(error) => return Err(failed("open", root)(error)),
    };
    match directory.lock() {
        Ok(()) => Ok(Lock(Some(directory))),
        // Some file systems have no locks.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Lock(None)),
        Err(error) => Err(failed("lock", root)(error)),
    }
}

/// Carries out the plan below `root`, which is created if it is missing.
///
/// # Errors
/// If a file cannot be written. Nothing has changed then.
pub fn write(root: &Path, plan: &Plan) -> Result<(), WriteError> {
    let _lock = lock(root)?;
    write_locked(root, plan)
}

/// The same for a caller that has the [`lock`].
pub(crate) fn write_locked(root: &Path, plan: &Plan) -> Result<(), WriteError> {
    if plan.changes.is_empty() {
        return Ok(());
    }
    let created = missing_directories(root);
    let staged = stage(root, plan);
    if staged.is_err() {
        // What cannot be removed either stays; the error that came first is the one to tell.
        let _ = fs::remove_dir_all(root.join(STAGE));
        for directory in created.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
    staged?;
    finish(root).map(|_| ())
}

/// Finishes what an earlier process was ended in, and clears what it had not decided yet. For a caller that has the
/// [`lock`].
///
/// Returns whether there was something to finish.
pub(crate) fn finish(root: &Path) -> Result<bool, WriteError> {
    let decided = is_decided(root);
    let stage = root.join(STAGE);
    let list = stage.join(LIST);
    match fs::read(&list) {
        Ok(text) => {
            let moves: Vec<Move> =
                serde_json::from_slice(&text).map_err(io::Error::other).map_err(failed("read", &list))?;
            for entry in &moves {
                carry_out(root, &stage, entry)?;
            }
            // The list goes first: without it the directory means nothing.
            fs::remove_file(&list).map_err(failed("remove", &list))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read", &list)(error)),
    }
    match fs::remove_dir_all(&stage) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &stage)(error)),
        _ => Ok(decided),
    }
}

/// Whether an earlier process was ended in the middle of a change that is to be finished.
pub(crate) fn is_decided(root: &Path) -> bool {
    root.join(STAGE).join(LIST).exists()
}

fn stage(root: &Path, plan: &Plan) -> Result<(), WriteError> {
    let stage = root.join(STAGE);
    fs::create_dir_all(&stage).map_err(failed("create the directory", &stage))?;
    let mut moves = Vec::with_capacity(plan.changes.len());
    for (number, change) in plan.changes.iter().enumerate() {
        reachable(root, &change.path)?;
        let mut from = None;
        if let Some(after) = &change.after {
            let name = number.to_string();
            let path = stage.join(&name);
            fs::write(&path, after).map_err(failed("write", &path))?;
            from = Some(name);
        }
        let executable = change.after.as_deref().is_some_and(|text| text.starts_with("#!/"));
        moves.push(Move { path: change.path.clone(), from, executable });
    }
    let text = serde_json::to_vec(&moves).expect("invariant: moves are plain values");
    let partial = stage.join("list.partial");
    let written = fs::File::create(&partial).and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
    written.map_err(failed("write", &partial))?;
    let list = stage.join(LIST);
    fs::rename(&partial, &list).map_err(failed("write", &list))
}

/// Makes sure that a file can be moved to `path` before anything is decided: what is above it are directories that
/// can be written.
fn reachable(root: &Path, path: &str) -> Result<(), WriteError> {
    let target = root.join(path);
    let mut parent = target.parent();
    while let Some(directory) = parent {
        match fs::metadata(directory) {
            Ok(metadata) if metadata.is_dir() && metadata.permissions().readonly() => {
                return Err(failed("write into", directory)(io::ErrorKind::PermissionDenied.into()));
            }
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => return Err(failed("write into", directory)(io::ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => parent = directory.parent(),
            Err(error) => return Err(failed("reach", directory)(error)),
        }
    }
    if target.is_dir() {
        return Err(failed("write", &target)(io::ErrorKind::IsADirectory.into()));
    }
    Ok(())
}

fn carry_out(root: &Path, stage: &Path, entry: &Move) -> Result<(), WriteError> {
    let target = root.join(&entry.path);
    let Some(from) = &entry.from else {
        match fs::remove_file(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &target)(error)),
            _ => {}
        }
        remove_empty_parents(root, &target);
        return Ok(());
    };
    let from = stage.join(from);
    if !from.exists() {
        return Ok(()); // moved before the process ended
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(failed("create the directory", parent))?;
    }
    #[cfg(unix)]
    if entry.executable {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).map_err(failed("write", &target))?;
    }
    fs::rename(&from, &target).map_err(failed("write", &target))
}

fn remove_empty_parents(root: &Path, path: &Path) {
    let mut parent = path.parent();
    while let Some(directory) = parent
        && directory != root
        && fs::remove_dir(directory).is_ok()
    {
        parent = directory.parent();
    }
}

/// The directories that will be created for `root`, outermost first.
fn missing_directories(root: &Path) -> Vec<PathBuf> {
    let missing = root.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Change;

    fn plan(changes: &[(&str, Option<&str>)]) -> Plan {
        let change = |(path, after): &(&str, Option<&str>)| Change {
            path: (*path).to_owned(),
            before: None,
            after: after.map(str::to_owned),
        };
        Plan { changes: changes.iter().map(change).collect(), conflicts: Vec::new() }
    }

    fn files(root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn files_come_and_go_with_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("new/project");
        write(&root, &plan(&[("a/b/c", Some("one")), ("d", Some("two"))])).unwrap();
        assert_eq!(files(&root), ["a/b/c", "d"]);
        write(&root, &plan(&[("a/b/c", None), ("d", Some("three"))])).unwrap();
        assert_eq!(files(&root), ["d"]);
        assert!(!root.join("a").exists());
        assert_eq!(fs::read_to_string(root.join("d")).unwrap(), "three");
    }

    #[test]
    fn a_failure_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "in the way").unwrap();
        let error = write(dir.path(), &plan(&[("a", Some("one")), ("file/b", Some("two"))])).unwrap_err();
        assert!(error.to_string().contains("nothing was changed"), "{error}");
        assert_eq!(files(dir.path()), ["file"]);
        let root = dir.path().join("file/project");
        write(&root, &plan(&[("a", Some("one"))])).unwrap_err();
        assert_eq!(files(dir.path()), ["file"]);
    }

    #[test]
    fn a_decided_change_is_finished_later() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("old"), "").unwrap();
        stage(dir.path(), &plan(&[("a", Some("one")), ("b/c", Some("two")), ("old", None)])).unwrap();
        // Ended after the first move.
        fs::rename(dir.path().join(STAGE).join("0"), dir.path().join("a")).unwrap();
        finish(dir.path()).unwrap();
        assert_eq!(files(dir.path()), ["a", "b/c"]);
    }

    #[test]
    fn an_undecided_change_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(STAGE)).unwrap();
        fs::write(dir.path().join(STAGE).join("0"), "half").unwrap();
        finish(dir.path()).unwrap();
        assert_eq!(files(dir.path()), Vec::<String>::new());
    }
}
