//! What the containers of a pod share: namespaces, and file systems in memory.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::make_dir;
use crate::network::NetworkNamespace;
use crate::spec::{Isolation, NO_NFTABLES, NO_OVERLAYS, PAUSE, PROBE, PodConfig, PodDir};
use crate::user_namespace::{self, UserNamespace, unshare};

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
        // What the host mounts later is seen here, nothing the other way round.
        rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        if config.user_namespace {
            mount_proc()?;
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
        command.arg(PAUSE).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let spawned = command.spawn();
        self.leave()?;
        let mut pause = spawned?;
        let mut said = [0; 256];
        let length = pause.stdout.take().map_or(Ok(0), |mut stdout| stdout.read(&mut said))?;
        if said.get(..length) != Some(super::LISTENING.as_bytes()) {
            let why = String::from_utf8_lossy(said.get(..length).unwrap_or_default()).into_owned();
            return Err(io::Error::other(format!("cannot keep a namespace for processes: {why}")));
        }
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

/// Starts the parent again as the first process of a process namespace, and does not wait for it. In a user namespace a
/// process that makes process namespaces for its children can only return to its own one if that belongs to the same user
/// namespace. The pod's processes end with it, whatever happens.
pub(super) fn start_first(dir: &PodDir, argument: &str) -> io::Result<()> {
    unshare(UnshareFlags::NEWPID)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(crate::spec::PARENT).arg(&dir.0).arg(argument).stdin(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Makes an empty directory in memory the root of this process.
pub(super) fn empty_root() -> io::Result<()> {
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    unshare(UnshareFlags::NEWNS)?;
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    rustix::mount::mount("tmpfs", "/proc", "tmpfs", flags, Some(c"size=0k"))?;
    rustix::process::chdir("/proc")?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Shows the processes of this process namespace.
fn mount_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>)?)
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::other(format!("the kernel refuses {what}: {error}"))
}

/// Tries the namespaces of a pod. Returns what is missing that pods can do without, a line for each.
pub(super) fn try_all() -> io::Result<String> {
    if UserNamespace::is_needed() {
        user_namespace::enter_alone().map_err(refused("user namespaces"))?;
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
    loopback_up().map_err(refused("networks"))?;
    let mut command = Command::new("/proc/self/exe");
    let tried = command.args([PROBE, "inside"]).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    if !tried.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&tried.stdout).into_owned()));
    }
    let wanted = [(NO_OVERLAYS, crate::overlay::try_overlay(Path::new("/tmp"))), (NO_NFTABLES, try_nftables())];
    let missing = wanted.into_iter().filter_map(|(name, tried)| Some(format!("{name} {}\n", tried.err()?)));
    Ok(missing.collect())
}

/// Tries what only a process in a process namespace of its own can.
pub(super) fn try_inside() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS).map_err(refused("mount namespaces"))?;
    mount_proc().map_err(refused("a /proc of its own"))
}

/// File systems in memory that only this pod sees, and that end with it.
fn mount_memory(dir: &PodDir, config: &PodConfig) -> io::Result<()> {
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

/// Asks the kernel for the generation of its packet filter: `NFT_MSG_GETGEN`, for any family.
fn try_nftables() -> io::Result<()> {
    let header = header(20, 10 << 8 | 16, 1);
    ask_kernel(Some(rustix::net::netlink::NETFILTER), &[&header[..], &[0; 4]].concat())
}

/// The header of a message to the kernel: length, type, flags, sequence, sender.
fn header(length: u32, kind: u16, flags: u16) -> Vec<u8> {
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]].concat()
}

/// Brings the loopback interface of a new network up, which has number 1 in each: `RTM_NEWLINK` with `IFF_UP`.
fn loopback_up() -> io::Result<()> {
    // To be acknowledged.
    let mut message = header(32, 16, 1 | 4);
    // ifinfomsg: family, type, index, flags, which of them.
    message.extend([0; 4]);
    message.extend(1_i32.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    ask_kernel(None, &message)
}

/// Sends a message to the kernel: whether its answer is an error.
fn ask_kernel(protocol: Option<rustix::net::Protocol>, message: &[u8]) -> io::Result<()> {
    /// `NLMSG_ERROR`, which also acknowledges, with 0.
    const ERROR: [u8; 2] = 2_u16.to_ne_bytes();
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::send(&socket, message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (_, length) = rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    if length >= 20 && answer.get(4..6) != Some(&ERROR[..]) {
        return Ok(());
    }
    let error = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the kernel gave no answer")),
    }
}
