//! Programs on the host that stand for those in containers.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use futures::future::FutureExt as _;
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use windlass_node::runtime::{Connection, ExecOptions, RuntimeError, Session};

use crate::objects::ExecLocal;

/// Starts a command. It is killed when what talks to it goes away.
pub(super) fn start(local: &ExecLocal, options: &ExecOptions) -> Result<Session, RuntimeError> {
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(RuntimeError::Start("there is no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    command.envs(local.envs.iter().map(|variable| (&variable.name, &variable.value)));
    if !local.work_dir.is_empty() {
        command.current_dir(&local.work_dir);
    }
    if let Some(context) = &local.security_context {
        if let Some(group) = context.run_as_group {
            command.gid(group);
        }
        if let Some(user) = context.run_as_user {
            command.uid(user);
        }
    }
    let failed = |error: io::Error| RuntimeError::Start(format!("cannot run {program:?}: {error}"));
    if options.terminal {
        return on_terminal(command, options).map_err(failed);
    }
    command.stdin(if options.stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    Ok(Session {
        stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
        stdout: child.stdout.take().map(|stdout| Box::new(stdout) as _),
        stderr: child.stderr.take().map(|stderr| Box::new(stderr) as _),
        resize: None,
        exit: exit(child).boxed(),
    })
}

async fn exit(mut child: Child) -> Result<i32, RuntimeError> {
    use std::os::unix::process::ExitStatusExt as _;
    let status = child.wait().await.map_err(|error| RuntimeError::NotFound(error.to_string()))?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Runs a command on a terminal. It is not the command's controlling terminal: a shell has no job control.
fn on_terminal(mut command: Command, options: &ExecOptions) -> io::Result<Session> {
    let controller = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let name = rustix::pty::ptsname(&controller, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal: OwnedFd = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty())?;
    if let Some((columns, rows)) = options.size {
        let _ = rustix::termios::tcsetwinsize(&controller, winsize(columns, rows));
    }
    command.stdin(Stdio::from(terminal.try_clone()?));
    command.stdout(Stdio::from(terminal.try_clone()?));
    command.stderr(Stdio::from(terminal));
    let child = command.spawn()?;
    // Its copies of the terminal go, so that reading ends with the program.
    drop(command);
    let nonblocking = rustix::fs::fcntl_getfl(&controller)? | OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&controller, nonblocking)?;
    let reader = pipe::Receiver::from_file_unchecked(File::from(controller.try_clone()?))?;
    let writer = pipe::Sender::from_file_unchecked(File::from(controller.try_clone()?))?;
    let (resize, mut sizes) = mpsc::channel::<(u16, u16)>(4);
    let exit = async move {
        let sized = async {
            while let Some((columns, rows)) = sizes.recv().await {
                let _ = rustix::termios::tcsetwinsize(&controller, winsize(columns, rows));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            exit = exit(child) => exit,
            () = sized => Ok(0),
        }
    };
    Ok(Session {
        stdin: options.stdin.then(|| Box::new(writer) as _),
        stdout: Some(Box::new(reader)),
        stderr: None,
        resize: Some(resize),
        exit: exit.boxed(),
    })
}

/// A program's standard output and input as a connection.
pub(super) fn connect(command: &[String]) -> Result<Box<dyn Connection>, RuntimeError> {
    let failed = |error: String| RuntimeError::Start(format!("cannot run {:?}: {error}", command.first()));
    let (program, arguments) = command.split_first().ok_or_else(|| failed("it is empty".to_owned()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let (stdout, stdin) = child.stdout.take().zip(child.stdin.take()).ok_or_else(|| failed("no pipes".to_owned()))?;
    Ok(Box::new(tokio::io::join(Output { stdout, _child: child }, stdin)))
}

/// What a program writes. It is killed with this.
struct Output {
    stdout: ChildStdout,
    _child: Child,
}

impl AsyncRead for Output {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buffer)
    }
}
