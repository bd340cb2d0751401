//! The file system of a container: its image, what every Linux program expects, and its volumes.
//!
//! The image is not trusted: every path in it is resolved by the kernel with the container's root as the root. Devices that a
//! container makes are of no use to it: nothing that it can write to is mounted with devices, unless it is privileged.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};

use super::{Failure, failed};
use crate::overlay::overlaid;
use crate::spec::{MountConfig, RootConfig};

/// Devices of the host that a container gets.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
/// What the kernel says about the whole machine.
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Puts the container's file system together, and makes it the root.
pub(super) fn enter(root: &RootConfig) -> Result<(), Failure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(failed("keep mounts apart"))?;
    overlay(root)?;
    let top = openat(rustix::fs::CWD, &root.target, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed("open the container's root"))?;
    let inside = Inside { root: top, devices: root.privileged };
    inside.system(root)?;
    for mount in &root.mounts {
        inside.volume(mount)?;
    }
    rustix::process::chdir(&root.target).map_err(failed("enter the container's root"))?;
    rustix::process::pivot_root(".", ".").map_err(failed("change the root"))?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(failed("leave the host's root"))?;
    rustix::process::chdir("/").map_err(failed("enter the root"))?;
    if !root.privileged {
        for path in MASKED {
            mask(path).map_err(failed(format!("mask {path}")))?;
        }
        for path in READ_ONLY {
            seal(path).map_err(failed(format!("protect {path}")))?;
        }
    }
    if root.read_only {
        restrict(Path::new("/"), MountFlags::RDONLY).map_err(failed("make the root read-only"))?;
    }
    Ok(())
}

/// The image below, what the container changes above; a copy where the kernel has no overlays.
fn overlay(root: &RootConfig) -> Result<(), Failure> {
    for dir in [&root.upper, &root.work, &root.target] {
        fs::create_dir_all(dir).map_err(failed(format!("create {}", dir.display())))?;
    }
    let mounted = (|| -> rustix::io::Result<()> {
        let context = overlaid(&root.lower, &root.upper, &root.work)?;
        let flags = rustix::mount::FsMountFlags::FSMOUNT_CLOEXEC;
        let attributes = if root.privileged { MountAttrFlags::empty() } else { MountAttrFlags::MOUNT_ATTR_NODEV };
        let mount = rustix::mount::fsmount(&context, flags, attributes)?;
        let flags = rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&mount, "", rustix::fs::CWD, &root.target, flags)
    })();
    if mounted.is_ok() {
        return Ok(());
    }
    copy(&root.lower, &root.upper)?;
    rustix::mount::mount_bind(&root.upper, &root.target).map_err(failed("mount the container's root"))?;
    if !root.privileged {
        restrict(&root.target, MountFlags::NODEV).map_err(failed("keep devices out of the container's root"))?;
    }
    Ok(())
}

/// Copies a tree of files.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    copy_tree(from, to).map_err(failed(format!("copy {}", from.display())))
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, lchown};
    fs::create_dir_all(to)?;
    let owners = rustix::process::geteuid().is_root();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = source.symlink_metadata()?;
        if metadata.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if metadata.is_dir() {
            copy_tree(&source, &target)?;
        } else if metadata.is_file() {
            fs::copy(&source, &target)?;
        } else {
            continue;
        }
        if owners {
            // In a user namespace not every owner exists.
            let _ = lchown(&target, Some(metadata.uid()), Some(metadata.gid()));
        }
        if !metadata.is_symlink() {
            fs::set_permissions(&target, metadata.permissions())?;
        }
    }
    Ok(())
}

/// The path by which this process names a file that it has open.
fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// The container's root, before it is the root.
struct Inside {
    root: OwnedFd,
    /// Whether devices in volumes can be used.
    devices: bool,
}

impl Inside {
    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// A directory, or a file, that is made if it is missing.
    fn place(&self, path: &Path, is_dir: bool) -> rustix::io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        match self.open(path) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let parent = self.place(parent, true)?;
        // A link that leads nowhere.
        let _ = rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::empty());
        if is_dir {
            mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
        } else {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
        }
        self.open(path)
    }

    fn mount(&self, kind: &str, path: &str, flags: MountFlags, options: Option<&str>) -> Result<(), Failure> {
        let mounted = || -> rustix::io::Result<()> {
            let place = self.place(Path::new(path), true)?;
            let options = options.and_then(|options| CString::new(options).ok());
            rustix::mount::mount(kind, by_descriptor(&place), kind, flags, options.as_deref())
        };
        mounted().map_err(failed(format!("mount {path}")))
    }

    fn bind(&self, source: &Path, target: &str, is_dir: bool) -> Result<OwnedFd, Failure> {
        let bound = || -> rustix::io::Result<OwnedFd> {
            let place = self.place(Path::new(target), is_dir)?;
            rustix::mount::mount_bind_recursive(source, by_descriptor(&place))?;
            // What is there now, not what was.
            self.open(Path::new(target.trim_start_matches('/')))
        };
        bound().map_err(failed(format!("mount {} at {target}", source.display())))
    }

    /// What every Linux program expects.
    fn system(&self, root: &RootConfig) -> Result<(), Failure> {
        let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        self.mount("proc", "/proc", safe, None)?;
        // The devices in it are mounts of their own.
        let devices = if root.privileged { MountFlags::empty() } else { MountFlags::NODEV };
        let flags = MountFlags::NOSUID | MountFlags::STRICTATIME | devices;
        self.mount("tmpfs", "/dev", flags, Some("mode=0755,size=64k"))?;
        for device in DEVICES {
            self.bind(Path::new(&format!("/dev/{device}")), &format!("/dev/{device}"), false)?;
        }
        let options = if Self::has_tty_group() {
            "newinstance,ptmxmode=0666,mode=0620,gid=5"
        } else {
            "newinstance,ptmxmode=0666,mode=0620"
        };
        self.mount("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(options))?;
        self.bind(&root.shm, "/dev/shm", true)?;
        let dev = self.open(Path::new("dev")).map_err(failed("open /dev"))?;
        for (to, name) in LINKS {
            rustix::fs::symlinkat(to, &dev, name).map_err(failed(format!("create /dev/{name}")))?;
        }
        // Of the pod's network; a pod in the host's may not mount it if its user is not root.
        let flags = if root.privileged { safe } else { safe | MountFlags::RDONLY };
        if self.mount("sysfs", "/sys", flags, None).is_err() {
            let sys = self.bind(Path::new("/sys"), "/sys", true)?;
            let _ = restrict(&by_descriptor(&sys), MountFlags::RDONLY);
        }
        Ok(())
    }

    /// Whether the group of terminals exists, which it does not in every user namespace.
    fn has_tty_group() -> bool {
        let map = fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
        let ranges = map.lines().filter_map(|line| {
            let mut numbers = line.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
            Some((numbers.next()?, numbers.nth(1)?))
        });
        ranges.into_iter().any(|(first, count)| (first..first.saturating_add(count)).contains(&5))
    }

    fn volume(&self, mount: &MountConfig) -> Result<(), Failure> {
        let named = || format!("mount {} at {}", mount.source.display(), mount.target);
        let source = match &mount.sub_path {
            Some(path) => open_below(&mount.source, path).map_err(failed(named()))?,
            None => openat(rustix::fs::CWD, &mount.source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(failed(named()))?,
        };
        let kind = rustix::fs::fstat(&source).map_err(failed(named()))?.st_mode;
        let is_dir = rustix::fs::FileType::from_raw_mode(kind) == rustix::fs::FileType::Directory;
        let mounted = self.bind(&by_descriptor(&source), &mount.target, is_dir)?;
        let mut restrictions = if self.devices { MountFlags::empty() } else { MountFlags::NODEV };
        if mount.read_only {
            restrictions |= MountFlags::RDONLY;
        }
        if restrictions.is_empty() {
            return Ok(());
        }
        restrict(&by_descriptor(&mounted), restrictions).map_err(failed(named()))
    }
}

/// A path of a volume, which may be made, but must not lead out of it by links that a container put there.
fn open_below(volume: &Path, path: &str) -> rustix::io::Result<OwnedFd> {
    let top = openat(rustix::fs::CWD, volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inside = Inside { root: top, devices: false };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&inside.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Err(Errno::NOENT) => {
            inside.place(Path::new(path), true)?;
            openat2(&inside.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
        }
        other => other,
    }
}

/// Adds flags to those that a mount has: a user namespace may not take those away.
fn restrict(path: &Path, added: MountFlags) -> rustix::io::Result<()> {
    let now = rustix::fs::statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND | added;
    for (has, flag) in [
        (rustix::fs::StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (rustix::fs::StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (rustix::fs::StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (rustix::fs::StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (rustix::fs::StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (rustix::fs::StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (rustix::fs::StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if now.contains(has) {
            flags |= flag;
        }
    }
    rustix::mount::mount_remount(path, flags, "")
}

/// Hides a file or a directory.
fn mask(path: &str) -> rustix::io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount_bind("/dev/null", path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTDIR) => rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(c"size=0k")),
        Err(error) => Err(error),
    }
}

/// Makes a file or a directory of the kernel read-only.
fn seal(path: &str) -> rustix::io::Result<()> {
    match rustix::mount::mount_bind_recursive(path, path) {
        Ok(()) => restrict(Path::new(path), MountFlags::RDONLY),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}
