//! The directories that hold keys and secrets: no other user may write there.
//!
//! A user who could replace the certificate authority, or the store, would be an administrator of the cluster. So a
//! directory that others may write to, or that belongs to another user, is refused. Keys that others may read are closed.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::error::ClusterError;

/// Makes the directory if it is not there, and checks that it is only ours to write.
pub(crate) fn directory(path: &Path) -> Result<(), ClusterError> {
    let failed = |source: io::Error| ClusterError::Directory { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let metadata = fs::metadata(path).map_err(failed)?;
    match problem(metadata.mode(), metadata.uid(), user()) {
        Some(problem) => Err(ClusterError::Unsafe { path: path.to_owned(), problem }),
        None => Ok(()),
    }
}

/// Closes the files of a directory to all others.
pub(crate) fn close_files(dir: &Path) -> Result<(), ClusterError> {
    let failed = |source: io::Error| ClusterError::Directory { path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_file() && metadata.mode() & 0o077 != 0 {
            tracing::warn!(path = %entry.path().display(), "a file of the cluster was open to other users");
            fs::set_permissions(entry.path(), Permissions::from_mode(0o600)).map_err(failed)?;
        }
    }
    Ok(())
}

/// What is wrong with a directory of this mode and owner.
fn problem(mode: u32, owner: u32, user: Option<u32>) -> Option<String> {
    if user.is_some_and(|user| owner != user && owner != 0) {
        return Some(format!("it belongs to another user ({owner}): choose a directory of your own"));
    }
    if mode & 0o022 != 0 {
        let mode = mode & 0o7777;
        return Some(format!("other users may write to it (mode {mode:04o}): run `chmod go-w` on it"));
    }
    None
}

/// The user that this process runs as, where the system says so.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_directories_are_refused_with_a_remedy() {
        let check = |mode: u32, owner: u32, expected: Option<&str>| {
            assert_eq!(problem(mode, owner, Some(1000)).as_deref(), expected, "{mode:o} {owner}");
        };
        check(0o40700, 1000, None);
        check(0o40755, 1000, None);
        check(0o40755, 0, None);
        check(0o40775, 1000, Some("other users may write to it (mode 0775): run `chmod go-w` on it"));
        check(0o41777, 1000, Some("other users may write to it (mode 1777): run `chmod go-w` on it"));
        check(0o40700, 1001, Some("it belongs to another user (1001): choose a directory of your own"));
    }

    #[test]
    fn keys_that_others_may_read_are_closed() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        let key = dir.path().join("ca.key");
        fs::write(&key, "secret")?;
        fs::set_permissions(&key, Permissions::from_mode(0o644))?;
        close_files(dir.path())?;
        assert_eq!(fs::metadata(&key)?.mode() & 0o777, 0o600);
        Ok(())
    }
}
