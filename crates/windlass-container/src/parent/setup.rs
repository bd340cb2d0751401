//! What the containers of a pod share: namespaces, and file systems in memory.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::make_dir;
use crate::network::NetworkNamespace;
use crate::spec::{Isolation, PAUSE, PodConfig, PodDir};

/// Separates this process from others in some way. The flag that makes `unshare` unsafe, `FILES`, is never used.
#[expect(deprecated, reason = "the successor is unsafe for the sake of a flag that is not used here")]
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// The process namespaces of a pod's containers.
pub(super) struct Namespaces {
    /// That of this process.
    own: Option<OwnedFd>,
    /// The one that containers share, and what keeps it.
    shared: Option<(OwnedFd, OwnedFd)>,
    host_pid: bool,
}

impl Namespaces {
    /// Enters the pod's namespaces.
    pub(super) fn enter(dir: &PodDir, config: &PodConfig) -> io::Result<Self> {
        // Neither the terminal's signals nor those to the group of the process that started it.
        let _ = rustix::process::setsid();
        // What containers leave behind is reaped here.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let mut namespaces = Self { own: None, shared: None, host_pid: config.host_pid };
        if config.isolation == Isolation::None {
            make_dir(&dir.memory().join("volumes"))?;
            return Ok(namespaces);
        }
        if config.user_namespace {
            enter_user_namespace()?;
        }
        let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWUTS;
        if !config.host_ipc {
            flags |= UnshareFlags::NEWIPC;
        }
        match &config.network {
            NetworkNamespace::Host => flags.remove(UnshareFlags::NEWUTS),
            NetworkNamespace::Loopback => flags |= UnshareFlags::NEWNET,
            NetworkNamespace::Path(path) => {
                let namespace = File::open(path)?;
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
        }
        unshare(flags)?;
        if flags.contains(UnshareFlags::NEWNET) {
            loopback_up()?;
        }
        if flags.contains(UnshareFlags::NEWUTS) {
            rustix::system::sethostname(config.hostname.as_bytes())?;
        }
        for (name, value) in &config.sysctls {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            fs::write(path, value).map_err(|error| io::Error::other(format!("cannot set {name}: {error}")))?;
        }
        mount_memory(dir, config)?;
        namespaces.own = Some(File::open("/proc/self/ns/pid")?.into());
        if config.share_pid {
            namespaces.share()?;
        }
        Ok(namespaces)
    }

    /// Starts the process that keeps the namespace that all containers share.
    fn share(&mut self) -> io::Result<()> {
        unshare(UnshareFlags::NEWPID)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(PAUSE).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let spawned = command.spawn();
        self.leave()?;
        let pause = spawned?;
        let namespace = File::open(format!("/proc/{}/ns/pid", pause.id()))?;
        let pid = Pid::from_raw(pause.id().cast_signed()).ok_or_else(|| io::Error::other("no process"))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        self.shared = Some((namespace.into(), pidfd));
        Ok(())
    }

    /// Starts a process in the process namespace of a container: a new one, or that of a process.
    pub(super) fn spawn(&mut self, command: &mut Command, beside: Option<i32>) -> io::Result<std::process::Child> {
        if self.own.is_none() || self.host_pid {
            return command.spawn();
        }
        let joined = match (beside, &self.shared) {
            (Some(process), _) => Some(OwnedFd::from(File::open(format!("/proc/{process}/ns/pid"))?)),
            (None, Some((shared, _))) => Some(shared.try_clone()?),
            (None, None) => None,
        };
        match joined {
            Some(namespace) => {
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
            }
            None => unshare(UnshareFlags::NEWPID)?,
        }
        let spawned = command.spawn();
        self.leave()?;
        spawned
    }

    /// Has the next children in the namespace of this process again.
    fn leave(&self) -> io::Result<()> {
        let Some(own) = &self.own else {
            let own = File::open("/proc/self/ns/pid")?;
            return Ok(rustix::thread::move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?);
        };
        Ok(rustix::thread::move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?)
    }
}

/// Tries the namespaces of a pod.
pub(super) fn try_all() -> io::Result<()> {
    let refused =
        |what: &'static str| move |error: io::Error| io::Error::other(format!("the kernel refuses {what}: {error}"));
    if !rustix::process::geteuid().is_root() {
        enter_user_namespace().map_err(refused("user namespaces"))?;
    }
    for (flag, what) in [
        (UnshareFlags::NEWNS, "mount namespaces"),
        (UnshareFlags::NEWUTS, "namespaces for host names"),
        (UnshareFlags::NEWIPC, "IPC namespaces"),
        (UnshareFlags::NEWNET, "network namespaces"),
        (UnshareFlags::NEWPID, "process namespaces"),
    ] {
        unshare(flag).map_err(refused(what))?;
    }
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|error| refused("mounts of its own")(error.into()))?;
    rustix::mount::mount("tmpfs", "/tmp", "tmpfs", MountFlags::empty(), None::<&std::ffi::CStr>)
        .map_err(|error| refused("file systems in memory")(error.into()))?;
    loopback_up().map_err(refused("networks"))
}

/// A user namespace in which this user is root.
fn enter_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    // Children open files of this process, which the change of the user forbids otherwise.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// File systems in memory that only this pod sees, and that end with it.
fn mount_memory(dir: &PodDir, config: &PodConfig) -> io::Result<()> {
    // What the host mounts later is seen here, nothing the other way round.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let memory = dir.memory();
    make_dir(&memory)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // Scripts in ConfigMaps are executed.
    rustix::mount::mount("tmpfs", &memory, "tmpfs", flags, Some(c"mode=0755"))?;
    make_dir(&memory.join("volumes"))?;
    make_dir(&dir.shm())?;
    rustix::mount::mount("shm", dir.shm(), "tmpfs", flags | MountFlags::NOEXEC, Some(c"mode=1777,size=64m"))?;
    for (name, limit) in &config.memory {
        let path = dir.memory_volume(name);
        make_dir(&path)?;
        let options = limit.map_or_else(|| "mode=0777".to_owned(), |limit| format!("mode=0777,size={limit}"));
        let options = std::ffi::CString::new(options)?;
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, Some(options.as_c_str()))?;
    }
    Ok(())
}

/// A socket in the pod's network.
pub(super) fn socket(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Brings the loopback interface of a new network up, which has number 1 in each: `RTM_NEWLINK` with `IFF_UP`.
fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::with_capacity(32);
    // nlmsghdr: length, type, flags (request, acknowledge), sequence, sender.
    message.extend(32_u32.to_ne_bytes());
    message.extend(16_u16.to_ne_bytes());
    message.extend(5_u16.to_ne_bytes());
    message.extend([0; 8]);
    // ifinfomsg: family, type, index, flags, which of them.
    message.extend([0; 4]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    let error = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel gave no answer")),
    }
}
