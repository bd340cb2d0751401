//! The user namespace in which a cluster of a user who is not root runs its pods: the user is root in it, and only there.
//!
//! A small process, the *keeper*, has made it, and a mount namespace with it. It does nothing but hand both out, so they
//! outlive the cluster's process: the next one [joins](UserNamespace::enter) them, and finds pods and network namespaces as
//! they were.
//!
//! ```text
//! windlass up                       pod-keeper DIR
//!   starts it ────────────────────▶ makes a user namespace
//!   maps users (newuidmap, or one)
//!                                   makes a mount namespace, listens at DIR/control
//!   asks ─────────────────────────▶
//!                ◀───────────────── two descriptors
//!   joins both
//! ```

mod advice;
mod users;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::mount::MountPropagationFlags;
use rustix::process::DumpableBehavior;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use windlass_image::users::Users;

pub use advice::advice;

use crate::wire;

/// The first argument of the keeper.
pub(crate) const KEEPER: &str = "pod-keeper";
/// How long the keeper and those who ask it wait for each other.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the keeper says when it is in a user namespace that has no users yet.
const MADE: u8 = b'+';
/// What it is told then: users were mapped, or it is to map one.
const MAPPED: u8 = b'm';
const MAP_ONE: u8 = b'1';
/// What it says when it can be asked.
const LISTENING: &str = "listening";

/// What the keeper is asked for.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// The namespaces: of users, and of mounts.
    Namespaces,
    /// Its end.
    End,
}

/// A user namespace that this process is in, or whose keeper it can end.
#[derive(Debug, Clone)]
pub struct UserNamespace {
    dir: PathBuf,
    is_new: bool,
}

impl UserNamespace {
    /// Whether this process needs one to run containers.
    pub fn is_needed() -> bool {
        !rustix::process::geteuid().is_root()
    }

    /// Whether a new one of this user has more users than this one.
    pub fn has_others() -> bool {
        users::can_map()
    }

    /// Whether this process is in one, and has the rights of root over things of its own only.
    pub fn is_entered() -> bool {
        Users::current() != Users::All
    }

    /// Joins the user namespace that is kept in a directory, or makes it. `program` is one with [`entry`](crate::entry). To be
    /// called while the process has one thread.
    pub fn enter(dir: &Path, program: &Path) -> io::Result<Self> {
        if let Some(known) = Self::join(dir)? {
            return Ok(known);
        }
        start(dir, program)?;
        match Self::join(dir)? {
            Some(made) => Ok(Self { is_new: true, ..made }),
            None => Err(io::Error::other("the process that keeps the user namespace ended at once")),
        }
    }

    /// Joins the user namespace that is kept in a directory; `None` if there is none. To be called while the process has one
    /// thread.
    pub fn join(dir: &Path) -> io::Result<Option<Self>> {
        let Ok(keeper) = wire::connect(dir) else { return Ok(None) };
        wire::send(&keeper, &Request::Namespaces, &[])?;
        wait(&keeper)?;
        let files = wire::receive::<()>(&keeper)?.map(|((), files)| files).unwrap_or_default();
        let [users, mounts]: [OwnedFd; 2] =
            files.try_into().map_err(|_| io::Error::other("the keeper of the user namespace gives no answer"))?;
        let here = std::env::current_dir();
        move_into_link_name_space(users.as_fd(), Some(LinkNameSpaceType::User))?;
        // Otherwise the files of this process in /proc are not its own any more.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
        // Which leads to the root.
        if let Ok(here) = here {
            rustix::process::chdir(&here)?;
        }
        Ok(Some(Self { dir: dir.to_owned(), is_new: false }))
    }

    /// Whether it was made by this process: nothing of an earlier one is in it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Ends the keeper: the namespaces end with the last process in them.
    pub fn end(&self) {
        if let Ok(keeper) = wire::connect(&self.dir)
            && wire::send(&keeper, &Request::End, &[]).is_ok()
        {
            // It closes the socket when it ends.
            let _ = wait(&keeper);
        }
        let _ = fs::remove_file(self.dir.join("control"));
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Starts the keeper, and gives it users.
fn start(dir: &Path, program: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // What this process was started with, a pipe of its caller perhaps, is not for the keeper.
    close_fds::set_fds_cloexec(3, &[]);
    let mut command = Command::new(program);
    command.arg(KEEPER).arg(dir).env_clear().current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = command.spawn()?;
    let started = (|| {
        let (Some(mut stdin), Some(mut stdout)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(io::Error::other("the keeper has no streams"));
        };
        let mut said = [0];
        let made = stdout.read_exact(&mut said).is_ok() && said == [MADE];
        if made {
            let mapped = users::map(keeper.id());
            stdin.write_all(&[if mapped { MAPPED } else { MAP_ONE }])?;
        }
        let mut rest = String::new();
        stdout.read_to_string(&mut rest)?;
        if made && rest == LISTENING {
            return Ok(());
        }
        let first = if made { String::new() } else { String::from_utf8_lossy(&said).into_owned() };
        Err(io::Error::other(format!("{first}{rest}")))
    })();
    if started.is_err() {
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    started
}

/// The keeper's process: its argument is the directory that it listens in.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let [dir] = arguments else { return ExitCode::FAILURE };
    let listener = match become_keeper(Path::new(dir)) {
        Ok(listener) => listener,
        Err(error) => {
            let _ = io::stdout().write_all(error.to_string().as_bytes());
            return ExitCode::FAILURE;
        }
    };
    let _ = io::stdout().write_all(LISTENING.as_bytes());
    let _ = io::stdout().flush();
    // The process that started it may end from here on.
    if let Ok(null) = fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    while serve(&listener).unwrap_or(true) {}
    ExitCode::SUCCESS
}

fn become_keeper(dir: &Path) -> io::Result<OwnedFd> {
    let refused = |what: &'static str| move |error| io::Error::other(format!("the kernel refuses {what}: {error}"));
    // Neither the terminal's signals nor those to the group of the process that started it.
    let _ = rustix::process::setsid();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    make().map_err(refused("user namespaces"))?;
    let mut stdout = io::stdout();
    stdout.write_all(&[MADE])?;
    stdout.flush()?;
    let mut told = [0];
    io::stdin().read_exact(&mut told)?;
    if told == [MAP_ONE] {
        map_one(uid, gid).map_err(refused("a user of the user namespace"))?;
    }
    unshare(UnshareFlags::NEWNS).map_err(refused("mount namespaces"))?;
    // What the machine mounts later is seen here, nothing the other way round.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let _ = fs::remove_file(dir.join("control"));
    wire::listen(dir)
}

/// Puts this process into a new user namespace, in which no user exists yet.
fn make() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)?;
    // Other processes open files of this one, which the change of the user forbids otherwise.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Makes the user that this process had the only one of its new user namespace: root.
fn map_one(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    if !fs::read_to_string("/proc/self/gid_map")?.is_empty() {
        // `newgidmap` worked, and `newuidmap` did not.
        return Ok(());
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Puts this process into a user namespace of its own in which its user is root, and alone.
pub(crate) fn enter_alone() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    make()?;
    map_one(uid, gid)
}

/// Answers one request. Whether the keeper goes on.
fn serve(listener: &OwnedFd) -> io::Result<bool> {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    rustix::event::poll(&mut waiting, None)?;
    let client = wire::accept(listener)?;
    wait(&client)?;
    match wire::receive::<Request>(&client)? {
        Some((Request::Namespaces, _)) => {
            let own = |kind: &str| fs::File::open(format!("/proc/self/ns/{kind}"));
            let (users, mounts) = (own("user")?, own("mnt")?);
            wire::send(&client, &(), &[users.as_fd(), mounts.as_fd()])?;
            Ok(true)
        }
        Some((Request::End, _)) => Ok(false),
        None => Ok(true),
    }
}

/// Waits until the other side has said something, or has gone.
fn wait(socket: &OwnedFd) -> io::Result<()> {
    let timeout = Timespec { tv_sec: ANSWER_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut waiting = [PollFd::new(socket, PollFlags::IN)];
    match rustix::event::poll(&mut waiting, Some(&timeout)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        polled => Ok(polled.map(drop)?),
    }
}

/// Separates this process from others in some way. The flag that makes `unshare` unsafe, `FILES`, is never used.
#[expect(deprecated, reason = "the successor is unsafe for the sake of a flag that is not used here")]
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}
