//! Files of an image with those of a container on top, and whether the kernel allows that.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

/// An overlay that is mounted nowhere yet.
pub(crate) fn overlaid(lower: &Path, upper: &Path, work: &Path) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&context, "lowerdir", lower)?;
    rustix::mount::fsconfig_set_string(&context, "upperdir", upper)?;
    rustix::mount::fsconfig_set_string(&context, "workdir", work)?;
    // For users who are not root, and no worse for root.
    rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
    rustix::mount::fsconfig_create(&context)?;
    Ok(context)
}

/// Whether files in a directory can be overlaid; why not otherwise. Needs root, if only in a user namespace.
pub(crate) fn try_overlay(dir: &Path) -> io::Result<()> {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let dir = dir.join(format!(".overlay-{}-{}", std::process::id(), TRIES.fetch_add(1, Ordering::Relaxed)));
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| dir.join(name));
    for dir in [&lower, &upper, &work] {
        fs::create_dir_all(dir)?;
    }
    let tried = overlaid(&lower, &upper, &work);
    let _ = fs::remove_dir_all(&dir);
    Ok(tried.map(drop)?)
}
