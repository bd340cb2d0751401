//! Writes a plan: all of it, or nothing.
//!
//! New contents are first written into a directory beside the project's files, `.windlass-changes`, with a list of
//! what is to happen. When that list is on disk the change is decided: files are then moved into place one by one,
//! and the directory is removed. What a file was before is kept in the directory: when one file cannot be put into place,
//! all others go back. A process that ends before the list is there leaves a directory without one, which is thrown away;
//! one that ends in the middle leaves the list, and the next command finishes the work before it begins its own.
//!
//! A symbolic link stays one: the file that it leads to is written. A file keeps its permissions and its line ends.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::line_ends;
use crate::plan::{Change, Plan};

const STAGE: &str = ".windlass-changes";
const LIST: &str = "list.json";

/// A file cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}; {}{}", path.display(), outcome(*is_half), remedy(source))]
pub struct WriteError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
    /// Some files are changed, and cannot be changed back.
    is_half: bool,
}

fn outcome(is_half: bool) -> &'static str {
    if is_half { "some files were changed, and the next command changes the others" } else { "nothing was changed" }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". Make the directory writable, or use another one"
        }
        _ => "",
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Move {
    /// Where the file goes, relative to the project; absolute if a link leads there.
    path: String,
    /// The file of the staging directory; `None` removes.
    from: Option<String>,
    executable: bool,
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> WriteError + use<'a> {
    move |source| WriteError { what, path: path.to_owned(), source, is_half: false }
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
    // What cannot be removed either stays; the error that came first is the one to tell.
    if staged.is_err() {
        let _ = fs::remove_dir_all(root.join(STAGE));
    }
    let written = staged.and_then(|()| finish(root).map(|_| ()));
    if written.is_err() {
        for directory in created.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
    written
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
            let done = carry_out_all(root, &stage, &moves);
            if done.as_ref().is_err_and(|error| error.is_half) {
                return done.map(|()| decided);
            }
            // The list goes first: without it the directory means nothing.
            let removed = fs::remove_file(&list)
                .map_err(|source| WriteError { is_half: true, ..failed("remove", &list)(source) });
            if done.is_err() {
                let _ = fs::remove_dir_all(&stage);
            }
            done.and(removed)?;
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
    reachable(root, &format!("{STAGE}/{LIST}"))?;
    fs::create_dir_all(&stage).map_err(failed("create the directory", &stage))?;
    let mut moves = Vec::with_capacity(plan.changes.len());
    for (number, change) in plan.changes.iter().enumerate() {
        let target = followed(root, change)?;
        if target != change.path && is_changed(root, plan, &target) {
            continue; // the file that the link leads to has a change of its own
        }
        reachable(root, &target)?;
        let mut from = None;
        if let Some(after) = &change.after {
            let name = number.to_string();
            let path = stage.join(&name);
            let text = line_ends::for_file(root, &root.join(&target), after);
            fs::write(&path, text).map_err(failed("write", &path))?;
            from = Some(name);
        }
        let executable = change.after.as_deref().is_some_and(|text| text.starts_with("#!/"));
        moves.push(Move { path: target, from, executable });
    }
    let text = serde_json::to_vec(&moves).expect("invariant: moves are plain values");
    let partial = stage.join("list.partial");
    let written = fs::File::create(&partial).and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
    written.map_err(failed("write", &partial))?;
    let list = stage.join(LIST);
    fs::rename(&partial, &list).map_err(failed("write", &list))
}

/// Where a change is made: where a link leads to, or at its path. A link that is removed is removed itself.
fn followed(root: &Path, change: &Change) -> Result<String, WriteError> {
    let path = root.join(&change.path);
    if change.after.is_none() || !path.is_symlink() {
        return Ok(change.path.clone());
    }
    let target = path.canonicalize().map_err(failed("follow the link", &path))?;
    let not_text = || failed("follow the link", &path)(io::ErrorKind::InvalidFilename.into());
    target.to_str().map(str::to_owned).ok_or_else(not_text)
}

/// Whether the plan changes this file under its own name.
fn is_changed(root: &Path, plan: &Plan, file: &str) -> bool {
    plan.changes.iter().any(|change| {
        let path = root.join(&change.path);
        !path.is_symlink() && path.canonicalize().is_ok_and(|path| path == Path::new(file))
    })
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

/// Changes all files. If one cannot be changed, those before it become what they were.
fn carry_out_all(root: &Path, stage: &Path, moves: &[Move]) -> Result<(), WriteError> {
    for (number, entry) in moves.iter().enumerate() {
        let Err(mut error) = carry_out(root, stage, (number, entry)) else { continue };
        for entry in moves.iter().enumerate().take(number + 1).rev() {
            error.is_half |= take_back(root, stage, entry).is_err();
        }
        return Err(error);
    }
    Ok(())
}

/// What a file was before its change.
fn kept(stage: &Path, number: usize) -> PathBuf {
    stage.join(format!("{number}.before"))
}

/// Undoes one change. The new content goes back to where it was, so that the list still says what can be done.
fn take_back(root: &Path, stage: &Path, (number, entry): (usize, &Move)) -> io::Result<()> {
    let (target, kept) = (root.join(&entry.path), kept(stage, number));
    let from = entry.from.as_ref().map(|from| stage.join(from)).filter(|from| !from.exists());
    if let Some(from) = &from {
        move_file(&target, from)?;
        remove_empty_parents(root, &target);
    }
    if kept.symlink_metadata().is_ok() {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        move_file(&kept, &target)?;
    }
    Ok(())
}

/// Keeps what a file is before it changes. One that is kept already was when an earlier process ended.
fn keep(target: &Path, kept: &Path) -> io::Result<()> {
    if kept.symlink_metadata().is_ok() {
        return Ok(());
    }
    match fs::hard_link(target, kept) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Another file system, or one without links.
        Err(_) => fs::copy(target, kept).map(|_| ()),
        linked => linked,
    }
}

fn carry_out(root: &Path, stage: &Path, (number, entry): (usize, &Move)) -> Result<(), WriteError> {
    let target = root.join(&entry.path);
    let kept = kept(stage, number);
    let Some(from) = &entry.from else {
        keep(&target, &kept).map_err(failed("remove", &target))?;
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
    if let Ok(metadata) = fs::metadata(&target) {
        fs::set_permissions(&from, metadata.permissions()).map_err(failed("write", &target))?;
    } else if entry.executable {
        make_executable(&from).map_err(failed("write", &target))?;
    }
    keep(&target, &kept).map_err(failed("write", &target))?;
    move_file(&from, &target).map_err(failed("write", &target))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Puts one file into the place of another. A link may lead to another file system, where the file is copied to first.
fn move_file(from: &Path, target: &Path) -> io::Result<()> {
    match fs::rename(from, target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let mut beside = target.as_os_str().to_owned();
            beside.push(".windlass-new");
            fs::copy(from, &beside)?;
            fs::rename(&beside, target)?;
            fs::remove_file(from)
        }
        moved => moved,
    }
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
    #[cfg(unix)]
    fn links_stay_and_the_files_behind_them_are_written() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("project"), dir.path().join("README.md"));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(&outside, "old").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(root.join("docs/agents.md"), "old").unwrap();
        symlink("../README.md", root.join("README.md")).unwrap();
        symlink("docs/agents.md", root.join("AGENTS.md")).unwrap();
        symlink("AGENTS.md", root.join("OTHER.md")).unwrap();
        let changes = [("AGENTS.md", Some("new agents")), ("README.md", Some("new readme"))];
        write(&root, &plan(&changes)).unwrap();
        assert!(["README.md", "AGENTS.md"].iter().all(|link| root.join(link).is_symlink()));
        assert_eq!(fs::read_to_string(&outside).unwrap(), "new readme");
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(root.join("docs/agents.md")).unwrap(), "new agents");
        // A file that changes under two names gets the change that was made for it.
        write(&root, &plan(&[("OTHER.md", Some("for the link")), ("docs/agents.md", Some("for the file"))])).unwrap();
        assert_eq!(fs::read_to_string(root.join("OTHER.md")).unwrap(), "for the file");
        // Removed is the link.
        write(&root, &plan(&[("README.md", None)])).unwrap();
        assert!(outside.exists() && !root.join("README.md").is_symlink());
        fs::remove_file(root.join("docs/agents.md")).unwrap();
        let error = write(&root, &plan(&[("AGENTS.md", Some("again"))])).unwrap_err().to_string();
        assert!(error.contains("cannot follow the link") && error.contains("nothing was changed"), "{error}");
        assert!(!root.join(STAGE).exists());
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
    fn one_unchangeable_file_keeps_all_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("gone")).unwrap();
        fs::write(root.join("gone/file"), "was removed").unwrap();
        fs::write(root.join("edited"), "old").unwrap();
        let changes = [("edited", Some("new")), ("gone/file", None), ("made/file", Some("new")), ("z", Some("new"))];
        stage(root, &plan(&changes)).unwrap();
        // What was not there when everything was checked.
        fs::create_dir(root.join("z")).unwrap();
        fs::write(root.join("z/file"), "in the way").unwrap();
        let error = finish(root).unwrap_err().to_string();
        assert!(error.starts_with("cannot") && error.contains("/z: "), "{error}");
        assert!(error.contains("nothing was changed"), "{error}");
        assert_eq!(files(root), ["edited", "gone/file", "z/file"]);
        assert_eq!(fs::read_to_string(root.join("edited")).unwrap(), "old");
        assert_eq!(fs::read_to_string(root.join("gone/file")).unwrap(), "was removed");
        assert!(!root.join("made").exists());
    }

    #[test]
    fn a_decided_change_is_taken_back_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::write(root.join("a"), "old").unwrap();
        stage(root, &plan(&[("a", Some("new")), ("b", Some("new")), ("c", Some("new"))])).unwrap();
        // A process that was ended after the second move.
        let moves: Vec<Move> = serde_json::from_slice(&fs::read(root.join(STAGE).join(LIST)).unwrap()).unwrap();
        for entry in moves.iter().enumerate().take(2) {
            carry_out(root, &root.join(STAGE), entry).unwrap();
        }
        fs::create_dir_all(root.join("c/d")).unwrap();
        finish(root).unwrap_err();
        assert_eq!(files(root), ["a"]);
        assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "old");
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
