//! Files that only their owner can read, written in one step: a reader sees all of one or none, and one that could not
//! be written leaves nothing.

use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes such a file, in place of what was there.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    replace(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only its owner can read a temporary file, and it is removed if it gets no other name.
    let mut file = tempfile::Builder::new().prefix(".windlass-").tempfile_in(dir)?;
    file.as_file_mut().write_all(text.as_bytes())?;
    if let Ok(there) = std::fs::metadata(path) {
        // A file that root edits for a user stays the user's. Other users may not give files away, nor needs to.
        let _ = fchown(file.as_file(), Some(there.uid()), Some(there.gid()));
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
