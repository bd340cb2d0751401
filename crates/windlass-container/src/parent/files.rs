//! The files of a volume, changed all at once, as kubelets do it.
//!
//! ```text
//! VOLUME/name          -> ..data/name
//! VOLUME/..data        -> ..2
//! VOLUME/..2/name      the content
//! ```
//!
//! `..data` is replaced in one step, so a reader sees all of the old files or all of the new ones.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path};

use crate::spec::{FileContent, Keep};

const DATA: &str = "..data";

/// Writes the files of a volume; does nothing if it has them.
pub(super) fn write(volume: &Path, mut files: Vec<FileContent>, keep: &Keep) -> io::Result<()> {
    fs::create_dir_all(volume)?;
    fs::set_permissions(volume, fs::Permissions::from_mode(0o755))?;
    let current = fs::read_link(volume.join(DATA)).ok();
    if let Some(current) = current.as_ref().filter(|_| *keep != Keep::Nothing) {
        add_kept(&volume.join(current), "", keep, &mut files)?;
    }
    let files = &files[..];
    if let Some(current) = &current
        && is_same(&volume.join(current), files)
    {
        return Ok(());
    }
    let number = current.as_ref().and_then(|name| name.to_str()?.strip_prefix("..")?.parse::<u64>().ok());
    let name = format!("..{}", number.map_or(0, |number| number + 1));
    let dir = volume.join(&name);
    // What a crash left.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    let mut tops = BTreeSet::new();
    for file in files {
        let path = Path::new(&file.path);
        let mut parts = path.components();
        let (Some(Component::Normal(top)), true) =
            (parts.next(), parts.all(|part| matches!(part, Component::Normal(_))))
        else {
            return Err(io::Error::other(format!("the path {} leads out of the volume", file.path)));
        };
        tops.insert(top.to_owned());
        write_file(&dir.join(path), file)?;
    }
    let aside = volume.join("..new");
    let _ = fs::remove_file(&aside);
    symlink(&name, &aside)?;
    fs::rename(&aside, volume.join(DATA))?;
    for top in &tops {
        let link = volume.join(top);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(top), &link)?;
        }
    }
    for entry in fs::read_dir(volume)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("..") && !tops.contains(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    if let Some(current) = current {
        let _ = fs::remove_dir_all(volume.join(current));
    }
    Ok(())
}

/// Adds the files of a directory that are not among those already.
fn add_kept(dir: &Path, prefix: &str, keep: &Keep, files: &mut Vec<FileContent>) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            add_kept(&entry.path(), &format!("{path}/"), keep, files)?;
        } else if keep.keeps(&path) && files.iter().all(|file| file.path != path) {
            let (bytes, mode) = (fs::read(entry.path())?, metadata.permissions().mode() & 0o7777);
            files.push(FileContent { path, mode, bytes, gid: Some(metadata.gid()) });
        }
    }
    Ok(())
}

fn write_file(path: &Path, file: &FileContent) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let mut written = fs::File::options().write(true).create_new(true).mode(0o600).open(path)?;
    written.write_all(&file.bytes)?;
    if let Some(gid) = file.gid {
        match std::os::unix::fs::chown(path, None, Some(gid)) {
            // A group that the user namespace does not have.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            given => given?,
        }
    }
    fs::set_permissions(path, fs::Permissions::from_mode(file.mode))
}

fn is_same(dir: &Path, files: &[FileContent]) -> bool {
    let same = |file: &FileContent| {
        let path = dir.join(&file.path);
        let mode = path.metadata().map(|metadata| metadata.permissions().mode() & 0o7777).ok();
        mode == Some(file.mode) && fs::read(path).is_ok_and(|bytes| bytes == file.bytes)
    };
    files.iter().all(same) && count(dir) == files.len()
}

fn count(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn file(path: &str, text: &str) -> FileContent {
        FileContent { path: path.into(), mode: 0o640, bytes: text.as_bytes().to_vec(), gid: None }
    }

    #[test]
    fn files_change_all_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        let read = |path: &str| fs::read_to_string(volume.join(path)).ok();
        write(&volume, vec![file("a", "1"), file("sub/b", "2")], &Keep::Nothing).unwrap();
        assert_eq!((read("a").as_deref(), read("sub/b").as_deref()), (Some("1"), Some("2")));
        let mode = fs::metadata(volume.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let before = fs::read_link(volume.join(DATA)).unwrap();
        write(&volume, vec![file("a", "1"), file("sub/b", "2")], &Keep::Nothing).unwrap();
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), before, "nothing has changed");
        write(&volume, vec![file("a", "3"), file("c", "4")], &Keep::Nothing).unwrap();
        assert_eq!((read("a").as_deref(), read("sub/b"), read("c").as_deref()), (Some("3"), None, Some("4")));
        write(&volume, vec![file("c", "5")], &Keep::Everything).unwrap();
        assert_eq!((read("a").as_deref(), read("c").as_deref()), (Some("3"), Some("5")));
        assert!(!volume.join(before).exists());
        write(&volume, vec![file("d", "6")], &Keep::These(vec!["c".into()])).unwrap();
        assert_eq!((read("a"), read("c").as_deref(), read("d").as_deref()), (None, Some("5"), Some("6")));
    }

    #[test]
    fn files_stay_in_their_volume() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x", ""] {
            assert!(write(&dir.path().join("v"), vec![file(path, "1")], &Keep::Nothing).is_err(), "{path}");
        }
        assert!(!dir.path().join("x").exists());
    }
}
