//! The parent of a pod's containers: one process with one thread, which waits for what comes first.
//!
//! It sets up what the containers share, listens, and then only reacts: to requests, to output of containers, and to
//! processes that end. It never waits for a container or a client: descriptors do not block, a client that does not read is
//! cut off, and output without a client is only written to the log.

mod containers;
mod files;
mod logs;
mod setup;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};

use crate::spec::{
    ContainerConfig, ContainerState, Event, FileContent, Message, PodConfig, PodDir, ProcessConfig, Reply, Request,
    Stage,
};
use crate::wire;
use containers::{Child, Container, Exec};
use setup::Namespaces;

pub(crate) use containers::{EXEC_FAILED, MISCONFIGURED, READY};
pub(crate) use logs::rotated;

/// How many clients may be connected.
const CLIENTS: usize = 16;
/// What a parent says when it listens; anything else is why it does not.
pub(crate) const LISTENING: &str = "listening";

/// What follows the directory of a parent that is the first process of its namespace.
const FIRST: &str = "first";

/// Runs a pod's parent: its argument is the pod's directory.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let (dir, is_first) = match arguments {
        [dir] => (dir, false),
        [dir, first] if first == FIRST => (dir, true),
        _ => return ExitCode::FAILURE,
    };
    let dir = PodDir(dir.into());
    let parent = match config(&dir) {
        Ok(config) if config.user_namespace && !is_first => match setup::start_first(&dir, FIRST) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Err(error),
        },
        Ok(config) => Parent::new(dir, &config),
        Err(error) => Err(error),
    };
    let said = parent.as_ref().map_or_else(ToString::to_string, |_| LISTENING.to_owned());
    let _ = rustix::io::write(rustix::stdio::stdout(), said.as_bytes());
    // The process that started it may end from here on.
    if let Ok(null) = fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    match parent {
        Ok(mut parent) => {
            parent.serve();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Keeps a process namespace that containers share, and reaps what they leave to it.
pub(crate) fn pause() -> ExitCode {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // Containers see this process, so it has nothing of the host.
    let said = setup::empty_root().map_or_else(|error| error.to_string(), |()| LISTENING.to_owned());
    let _ = rustix::io::write(rustix::stdio::stdout(), said.as_bytes());
    if said != LISTENING {
        return ExitCode::FAILURE;
    }
    loop {
        if rustix::process::wait(rustix::process::WaitOptions::empty()).is_err() {
            // Nothing to wait for: look again when something may have come.
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
}

fn config(dir: &PodDir) -> io::Result<PodConfig> {
    Ok(serde_json::from_slice(&fs::read(dir.config())?)?)
}

/// Tries everything that a pod needs of the kernel, and says what it refuses. With an argument it is the process that is
/// started for that in namespaces of its own.
pub(crate) fn probe(arguments: &[String]) -> ExitCode {
    match if arguments.is_empty() { setup::try_all() } else { setup::try_inside().map(|()| String::new()) } {
        Ok(missing) => {
            let _ = rustix::io::write(rustix::stdio::stdout(), missing.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = rustix::io::write(rustix::stdio::stdout(), error.to_string().as_bytes());
            ExitCode::FAILURE
        }
    }
}

struct Parent {
    dir: PodDir,
    namespaces: Namespaces,
    listener: OwnedFd,
    clients: BTreeMap<u64, OwnedFd>,
    next_client: u64,
    containers: Vec<Container>,
    /// How the last container of each name ended, for those that were started again.
    ended: BTreeMap<String, ContainerState>,
    execs: Vec<Exec>,
    done: bool,
}

/// What a descriptor that is ready belongs to.
#[derive(Debug, Clone, Copy)]
enum Source {
    Listener,
    Client(u64),
    /// The report of a process about its start.
    Report(usize),
    Output(usize, usize),
    Process(usize),
    ExecReport(usize),
    ExecProcess(usize),
}

impl Parent {
    fn new(dir: PodDir, config: &PodConfig) -> io::Result<Self> {
        let namespaces = Namespaces::enter(&dir, config)?;
        let listener = wire::listen(&dir.0)?;
        Ok(Self {
            dir,
            namespaces,
            listener,
            clients: BTreeMap::new(),
            next_client: 0,
            containers: Vec::new(),
            ended: BTreeMap::new(),
            execs: Vec::new(),
            done: false,
        })
    }

    fn serve(&mut self) {
        while !self.done {
            let ready = self.wait();
            for source in ready {
                match source {
                    Source::Listener => self.accept(),
                    Source::Client(id) => self.client(id),
                    Source::Report(at) => self.report(at),
                    Source::Output(at, stream) => self.output(at, stream),
                    Source::Process(at) => self.exited(at),
                    Source::ExecReport(at) => self.exec_report(at),
                    Source::ExecProcess(at) => self.exec_exited(at),
                }
            }
            // Only now: what is ready was named by its place.
            self.execs.retain(|exec| !exec.done);
            self.containers.retain(|container| !container.failed);
        }
        self.end_all();
    }

    /// Kills and reaps everything. The first process of a namespace does not end before all others in it were reaped, which
    /// commands and added containers are: they come first.
    fn end_all(&self) {
        for container in &self.containers {
            let _ = container.signal(rustix::process::Signal::KILL.as_raw());
        }
        for exec in &self.execs {
            exec.kill();
        }
        let (added, others): (Vec<_>, Vec<_>) = self.containers.iter().partition(|container| container.is_added());
        for container in added.into_iter().chain(others) {
            container.kill();
        }
    }

    /// Waits until something is ready. Processes come last, so that their output comes before their end.
    fn wait(&self) -> Vec<Source> {
        let mut sources = vec![(Source::Listener, self.listener.as_fd())];
        sources.extend(self.clients.iter().map(|(id, client)| (Source::Client(*id), client.as_fd())));
        for (at, container) in self.containers.iter().enumerate() {
            if let Some(report) = &container.report {
                sources.push((Source::Report(at), report.as_fd()));
            }
            for (stream, output) in container.outputs.iter().enumerate() {
                if let Some(output) = output {
                    sources.push((Source::Output(at, stream), output.as_fd()));
                }
            }
        }
        for (at, exec) in self.execs.iter().enumerate() {
            match &exec.report {
                Some(report) => sources.push((Source::ExecReport(at), report.as_fd())),
                None => sources.push((Source::ExecProcess(at), exec.child.pidfd.as_fd())),
            }
        }
        for (at, container) in self.containers.iter().enumerate() {
            // What a process reports comes before its end.
            if let Some(child) = container.child.as_ref().filter(|_| container.report.is_none()) {
                sources.push((Source::Process(at), child.pidfd.as_fd()));
            }
        }
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        if rustix::event::poll(&mut fds, None).is_err() {
            return Vec::new();
        }
        let ready = fds.iter().map(PollFd::revents);
        sources.iter().zip(ready).filter(|(_, flags)| !flags.is_empty()).map(|((source, _), _)| *source).collect()
    }

    fn accept(&mut self) {
        let Ok(client) = wire::accept(&self.listener) else { return };
        if self.clients.len() < CLIENTS {
            self.next_client += 1;
            self.clients.insert(self.next_client, client);
        }
    }

    fn client(&mut self, id: u64) {
        let Some(client) = self.clients.get(&id) else { return };
        match wire::receive::<(u64, Request)>(client) {
            Ok(Some(((number, request), files))) => self.request(id, number, request, files),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => _ = self.clients.remove(&id),
        }
    }

    fn request(&mut self, client: u64, number: u64, request: Request, mut files: Vec<OwnedFd>) {
        let failed = |stage, error: io::Error| Some(Reply::Failed { message: error.to_string(), stage });
        let mut file =
            || if files.is_empty() { Err(io::Error::other("a file is missing")) } else { Ok(files.remove(0)) };
        let reply = match request {
            Request::State => Some(Reply::State(self.state())),
            Request::Files { volume, keep } => {
                let written = file()
                    .and_then(wire::read_content::<Vec<FileContent>>)
                    .and_then(|content| files::write(&self.dir.memory_volume(&volume), content, &keep));
                written.map_or_else(|error| failed(Stage::Create, error), |()| Some(Reply::Done))
            }
            Request::Start => match file().and_then(wire::read_content::<ContainerConfig>) {
                Ok(config) => {
                    self.start(client, number, config).map_or_else(|error| failed(Stage::Create, error), |()| None)
                }
                Err(error) => failed(Stage::Create, error),
            },
            Request::Exec { container } => {
                let started = file()
                    .and_then(wire::read_content::<ProcessConfig>)
                    .and_then(|process| self.exec(client, number, &container, process, files));
                started.map_or_else(|error| failed(Stage::NotFound, error), |()| None)
            }
            Request::Signal { container, attempt, signal } => {
                let found = self.containers.iter().find(|one| one.name == container && one.attempt == attempt);
                match found.ok_or_else(not_running).and_then(|found| found.signal(signal)) {
                    Ok(()) => Some(Reply::Done),
                    Err(error) => failed(Stage::NotFound, error),
                }
            }
            Request::Attach { container } => {
                let found = self.containers.iter_mut().find(|one| one.name == container && one.child.is_some());
                match found.ok_or_else(not_running).and_then(|found| found.attach(files)) {
                    Ok(stdin) => {
                        let stdin: Vec<BorrowedFd<'_>> = stdin.iter().map(OwnedFd::as_fd).collect();
                        self.send(client, &Message::Reply(number, Reply::Done), &stdin);
                        None
                    }
                    Err(error) => failed(Stage::NotFound, error),
                }
            }
            Request::Socket { v6 } => match setup::socket(v6) {
                Ok(socket) => {
                    self.send(client, &Message::Reply(number, Reply::Done), &[socket.as_fd()]);
                    None
                }
                Err(error) => failed(Stage::Create, error),
            },
            Request::Shutdown => {
                self.done = true;
                Some(Reply::Done)
            }
        };
        if let Some(reply) = reply {
            self.send(client, &Message::Reply(number, reply), &[]);
        }
    }

    fn send(&mut self, client: u64, message: &Message, files: &[BorrowedFd<'_>]) {
        let sent = self.clients.get(&client).map(|socket| wire::send(socket, message, files));
        // A client that does not read comes again, and asks for the state.
        if matches!(sent, Some(Err(_))) {
            self.clients.remove(&client);
        }
    }

    fn tell(&mut self, event: Event) {
        let message = Message::Event(event);
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            self.send(client, &message, &[]);
        }
    }

    fn state(&self) -> Vec<ContainerState> {
        let started = self.containers.iter().filter(|container| container.report.is_none() && !container.failed);
        started.map(|container| container.state(self.ended.get(&container.name))).collect()
    }

    /// Writes down what runs, for a runtime that finds no parent to ask.
    fn save(&self) {
        let Ok(text) = serde_json::to_vec(&self.state()) else { return };
        let aside = self.dir.0.join("state.new");
        if fs::write(&aside, text).is_ok() {
            let _ = fs::rename(&aside, self.dir.state());
        }
    }

    fn start(&mut self, client: u64, number: u64, config: ContainerConfig) -> io::Result<()> {
        if self.containers.iter().any(|one| one.name == config.name && one.child.is_some()) {
            return Err(io::Error::other("the container runs already"));
        }
        let beside = match &config.beside {
            None => None,
            Some(target) => {
                let found = self.containers.iter().find(|one| one.name == *target).and_then(|one| one.child.as_ref());
                let missing = || io::Error::other(format!("unable to find target container {target:?}"));
                Some(found.ok_or_else(missing)?.pid)
            }
        };
        let container = Container::start(&mut self.namespaces, config, beside, (client, number))?;
        match self.containers.iter_mut().find(|one| one.name == container.name) {
            Some(place) => {
                let before = std::mem::replace(place, container);
                if !before.failed {
                    self.ended.insert(before.name.clone(), before.state(None));
                }
            }
            None => self.containers.push(container),
        }
        Ok(())
    }

    /// A container has started, or has said why it does not.
    fn report(&mut self, at: usize) {
        let Some(container) = self.containers.get_mut(at) else { return };
        let Some(report) = containers::read_report(&mut container.report, &mut container.said) else { return };
        let (client, number) = container.asked;
        let reply = match report {
            Ok(()) => {
                container.started = crate::spec::now();
                Reply::Started { at: container.started }
            }
            Err((stage, message)) => {
                // It is gone, and never ran.
                if let Some(child) = container.child.take() {
                    child.reap();
                }
                container.failed = true;
                Reply::Failed { message, stage }
            }
        };
        self.save();
        self.send(client, &Message::Reply(number, reply), &[]);
    }

    fn output(&mut self, at: usize, stream: usize) {
        if let Some(container) = self.containers.get_mut(at) {
            container.copy(stream);
        }
    }

    fn exited(&mut self, at: usize) {
        let Some(container) = self.containers.get_mut(at) else { return };
        if !container.finish() {
            return;
        }
        let state = self.containers[at].state(self.ended.get(&self.containers[at].name));
        self.save();
        self.tell(Event::Exited(state));
    }

    fn exec(
        &mut self,
        client: u64,
        number: u64,
        container: &str,
        process: ProcessConfig,
        streams: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let found = self.containers.iter().find(|one| one.name == container && one.report.is_none());
        let found = found.filter(|found| found.child.is_some()).ok_or_else(not_running)?;
        let exec = Exec::start(&mut self.namespaces, found, process, streams, (client, number))?;
        self.execs.push(exec);
        Ok(())
    }

    fn exec_report(&mut self, at: usize) {
        let Some(exec) = self.execs.get_mut(at) else { return };
        let Some(report) = containers::read_report(&mut exec.report, &mut exec.said) else { return };
        let (client, number) = exec.asked;
        let reply = match report {
            Ok(()) => Reply::Done,
            Err((stage, message)) => {
                exec.child.reap();
                exec.done = true;
                Reply::Failed { message, stage }
            }
        };
        self.send(client, &Message::Reply(number, reply), &[]);
    }

    fn exec_exited(&mut self, at: usize) {
        let Some(exec) = self.execs.get_mut(at) else { return };
        let Some(code) = exec.child.code() else { return };
        exec.done = true;
        let (client, request) = exec.asked;
        self.send(client, &Message::Event(Event::ExecExited { request, code }), &[]);
    }
}

fn not_running() -> io::Error {
    io::Error::other("the container does not run")
}

/// Whether a path is a directory of this pod that can be made.
fn make_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

impl Child {
    /// The exit code, once it has ended: 128 and the signal after a signal.
    fn code(&self) -> Option<i32> {
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG;
        let status = rustix::process::waitid(rustix::process::WaitId::PidFd(self.pidfd.as_fd()), options);
        let status = status.ok().flatten()?;
        status.exit_status().or_else(|| Some(128 + status.terminating_signal()?))
    }

    /// Waits for a process that is about to end.
    fn reap(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
        let options = rustix::process::WaitIdOptions::EXITED;
        let _ = rustix::process::waitid(rustix::process::WaitId::PidFd(self.pidfd.as_fd()), options);
    }
}
