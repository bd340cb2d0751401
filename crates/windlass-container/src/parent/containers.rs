//! The processes of a pod: containers, and commands that are run in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::pty::OpenptFlags;

use super::logs::Log;
use super::setup::Namespaces;
use crate::cgroup::oom_kills;
use crate::spec::{ContainerConfig, ContainerState, ExitState, INIT, InitConfig, ProcessConfig, Stage, now};
use crate::wire;

/// How much is read from a stream before others have their turn.
const CHUNK: usize = 64 << 10;
/// How much of a report is kept.
const REPORT: usize = 64 << 10;

/// A process that this one has started and not waited for.
pub(super) struct Child {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
}

/// A container, from its start until another of its name is started.
pub(super) struct Container {
    pub(super) name: String,
    pub(super) attempt: i32,
    id: String,
    image: String,
    config: ContainerConfig,
    /// None when it has ended.
    pub(super) child: Option<Child>,
    /// Says how the start went: nothing until it ends if it went well.
    pub(super) report: Option<OwnedFd>,
    pub(super) said: Vec<u8>,
    /// The request that asked for it.
    pub(super) asked: (u64, u64),
    /// What it writes: standard output and error, or its terminal.
    pub(super) outputs: [Option<OwnedFd>; 2],
    /// What it reads, or its terminal.
    input: Option<OwnedFd>,
    attached: Vec<[Option<OwnedFd>; 2]>,
    log: Log,
    pub(super) started: i64,
    exit: Option<ExitState>,
    /// It never ran.
    pub(super) failed: bool,
    /// Keeps the image from being deleted.
    image_files: Option<File>,
}

/// A command that is run in a container.
pub(super) struct Exec {
    pub(super) child: Child,
    pub(super) report: Option<OwnedFd>,
    pub(super) said: Vec<u8>,
    pub(super) asked: (u64, u64),
    pub(super) done: bool,
}

/// Three standard streams for a process.
type Streams = [OwnedFd; 3];

impl Container {
    /// Starts a container, among the processes of another one if `beside` has one of them.
    pub(super) fn start(
        namespaces: &mut Namespaces,
        config: ContainerConfig,
        beside: Option<i32>,
        asked: (u64, u64),
    ) -> io::Result<Self> {
        let image_files = windlass_image::store::hold(&config.root.lower).map_err(io::Error::other)?;
        let log = Log::open(&config.log, config.log_limit, config.log_files)?;
        let (streams, outputs, input) = if config.process.terminal { terminal()? } else { pipes(config.stdin)? };
        let (root, process) = (config.root.clone(), config.process.clone());
        let init = InitConfig::Container { isolation: config.isolation, root, process };
        let (child, report) = spawn(namespaces, &init, streams, beside)?;
        Ok(Self {
            name: config.name.clone(),
            attempt: config.attempt,
            id: config.id.clone(),
            image: config.image.clone(),
            config,
            child: Some(child),
            report: Some(report),
            said: Vec::new(),
            asked,
            outputs,
            input,
            attached: Vec::new(),
            log,
            started: 0,
            exit: None,
            failed: false,
            image_files: Some(image_files),
        })
    }

    pub(super) fn state(&self, last: Option<&ContainerState>) -> ContainerState {
        ContainerState {
            name: self.name.clone(),
            attempt: self.attempt,
            id: self.id.clone(),
            image: self.image.clone(),
            started: self.started,
            exit: self.exit.clone(),
            last: last.cloned().map(Box::new),
        }
    }

    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let child = self.child.as_ref().ok_or_else(super::not_running)?;
        let signal = Signal::from_named_raw(signal).ok_or_else(|| io::Error::other("there is no such signal"))?;
        Ok(rustix::process::pidfd_send_signal(&child.pidfd, signal)?)
    }

    /// Whether it is among the processes of another container.
    pub(super) fn is_added(&self) -> bool {
        self.config.beside.is_some()
    }

    pub(super) fn kill(&self) {
        if let Some(child) = &self.child {
            child.reap();
        }
    }

    /// Copies what the container has written. False when there is nothing more now.
    pub(super) fn copy(&mut self, stream: usize) -> bool {
        let Some(output) = &self.outputs[stream] else { return false };
        let mut buffer = vec![0; CHUNK];
        let read = match rustix::io::read(output, &mut buffer[..]) {
            Ok(0) => {
                self.outputs[stream] = None;
                return false;
            }
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return false,
            // A terminal that no process has open any more.
            Err(_) => {
                self.outputs[stream] = None;
                return false;
            }
        };
        let bytes = &buffer[..read];
        self.log.take(stream, bytes);
        self.attached.retain(|streams| match &streams[stream] {
            // A client that does not read what it attached to is cut off.
            Some(to) => matches!(rustix::io::write(to, bytes), Ok(written) if written == read),
            None => true,
        });
        true
    }

    /// Copies to more streams. Returns what the container reads.
    pub(super) fn attach(&mut self, streams: Vec<OwnedFd>) -> io::Result<Option<OwnedFd>> {
        let mut streams = streams.into_iter();
        let both = [streams.next(), streams.next()];
        for stream in both.iter().flatten() {
            rustix::fs::fcntl_setfl(stream, OFlags::NONBLOCK)?;
        }
        self.attached.push(both);
        if self.config.stdin_once && !self.config.process.terminal {
            // The client has the only end: when it closes it, the container reads no more.
            return Ok(self.input.take());
        }
        self.input.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Takes note of its end, if it has come.
    pub(super) fn finish(&mut self) -> bool {
        let Some(code) = self.child.as_ref().and_then(Child::code) else { return false };
        for stream in 0..2 {
            while self.copy(stream) {}
        }
        self.log.finish();
        (self.outputs, self.input) = ([None, None], None);
        self.attached.clear();
        (self.child, self.image_files) = (None, None);
        let oom = self.config.oom.as_deref().is_some_and(|file| oom_kills(file) > 0);
        self.exit = Some(ExitState { code, oom, at: now() });
        true
    }
}

impl Exec {
    pub(super) fn start(
        namespaces: &mut Namespaces,
        container: &Container,
        process: ProcessConfig,
        streams: Vec<OwnedFd>,
        asked: (u64, u64),
    ) -> io::Result<Self> {
        // As the container's own process, but for its command.
        let ProcessConfig { arguments, terminal, .. } = process;
        let process = ProcessConfig { arguments, terminal, ..container.config.process.clone() };
        let pid = container.child.as_ref().map_or(0, |child| child.pid);
        let root = container.config.root.target.clone();
        let isolation = container.config.isolation;
        let root = if isolation == crate::spec::Isolation::None { container.config.root.upper.clone() } else { root };
        let mut streams = streams.into_iter();
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let streams = if process.terminal {
            let terminal = streams.next().ok_or_else(|| io::Error::other("a terminal is missing"))?;
            [terminal.try_clone()?, terminal.try_clone()?, terminal]
        } else {
            let mut next = || streams.next().map_or_else(null, Ok);
            [next()?, next()?, next()?]
        };
        let init = InitConfig::Exec { isolation, container: pid, root, process };
        let (child, report) = spawn(namespaces, &init, streams, Some(pid))?;
        Ok(Self { child, report: Some(report), said: Vec::new(), asked, done: false })
    }

    pub(super) fn kill(&self) {
        self.child.reap();
    }
}

/// What a process reported: `None` until it has said everything.
pub(super) fn read_report(report: &mut Option<OwnedFd>, said: &mut Vec<u8>) -> Option<Result<(), (Stage, String)>> {
    let fd = report.as_ref()?;
    let mut buffer = [0; 4096];
    match rustix::io::read(fd, &mut buffer[..]) {
        Ok(0) => {}
        Ok(read) if said.len() < REPORT => {
            said.extend_from_slice(&buffer[..read]);
            return None;
        }
        Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
        Err(_) => {}
    }
    *report = None;
    let text = String::from_utf8_lossy(said).into_owned();
    Some(match text.strip_prefix(READY) {
        Some("") => Ok(()),
        Some(message) => Err(match message.strip_prefix(EXEC_FAILED) {
            Some(message) => (Stage::Start, message.to_owned()),
            None => match message.strip_prefix(MISCONFIGURED) {
                Some(message) => (Stage::Config, message.to_owned()),
                None => (Stage::Create, message.to_owned()),
            },
        }),
        None => Err((Stage::Create, "the container's process ended before it had begun".to_owned())),
    })
}

/// What a process says first: from then on it has the report open itself.
pub(crate) const READY: &str = "+";
/// What the report begins with when everything but the program was there.
pub(crate) const EXEC_FAILED: &str = "!";
/// What the report begins with when what is asked for contradicts itself.
pub(crate) const MISCONFIGURED: &str = "?";

/// Starts a process that becomes a container's. It opens what it needs by the descriptors of this process, so that nothing
/// is inherited.
fn spawn(
    namespaces: &mut Namespaces,
    init: &InitConfig,
    streams: Streams,
    beside: Option<i32>,
) -> io::Result<(Child, OwnedFd)> {
    let config = wire::content(init)?;
    let (report, reporter) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let own = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let [stdin, stdout, stderr] = streams;
    let mut command = Command::new("/proc/self/exe");
    command.arg(INIT).arg(own(&config)).arg(own(&reporter)).env_clear().current_dir("/");
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    let spawned = namespaces.spawn(&mut command, beside);
    // Its streams are open in it alone from here on.
    drop(command);
    let spawned = spawned?;
    let pid = spawned.id().cast_signed();
    let known = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
    let pidfd = rustix::process::pidfd_open(known, PidfdFlags::empty())?;
    let child = Child { pid, pidfd };
    // It has to open the report before this process closes it.
    let mut reading = [
        rustix::event::PollFd::new(&report, rustix::event::PollFlags::IN),
        rustix::event::PollFd::new(&child.pidfd, rustix::event::PollFlags::IN),
    ];
    while rustix::event::poll(&mut reading, None) == Err(rustix::io::Errno::INTR) {}
    let opened = !reading[0].revents().is_empty();
    drop((config, reporter));
    if !opened {
        child.reap();
        return Err(io::Error::other("a process of the pod ended before it had begun"));
    }
    rustix::fs::fcntl_setfl(&report, OFlags::NONBLOCK)?;
    Ok((child, report))
}

fn pipes(stdin: bool) -> io::Result<(Streams, [Option<OwnedFd>; 2], Option<OwnedFd>)> {
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (out, out_writer) = rustix::pipe::pipe_with(flags)?;
    let (err, err_writer) = rustix::pipe::pipe_with(flags)?;
    for read in [&out, &err] {
        rustix::fs::fcntl_setfl(read, OFlags::NONBLOCK)?;
    }
    let (input, input_writer) = if stdin {
        let (reader, writer) = rustix::pipe::pipe_with(flags)?;
        (reader, Some(writer))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    Ok(([input, out_writer, err_writer], [Some(out), Some(err)], input_writer))
}

fn terminal() -> io::Result<(Streams, [Option<OwnedFd>; 2], Option<OwnedFd>)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let slave =
        rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&master, OFlags::NONBLOCK)?;
    let input = master.try_clone()?;
    Ok(([slave.try_clone()?, slave.try_clone()?, slave], [Some(master), None], Some(input)))
}
