//! The streams of processes that clients talk to.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A pipe or a terminal that this process has open.
#[derive(Debug, Clone)]
pub(super) struct Stream(Arc<AsyncFd<OwnedFd>>);

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        rustix::fs::fcntl_setfl(&fd, OFlags::NONBLOCK)?;
        Ok(Self(Arc::new(watched(fd)?)))
    }

    /// Sets the size of a terminal.
    pub(super) fn resize(&self, columns: u16, rows: u16) {
        set_size(self.0.get_ref(), columns, rows);
    }
}

fn set_size(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = rustix::termios::Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    let _ = rustix::termios::tcsetwinsize(terminal, size);
}

/// A file whose readiness is waited for.
#[expect(deprecated, reason = "unsound for types that lie about their descriptor only, which OwnedFd does not")]
pub(super) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

/// A pipe: what is read here is written there.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// A terminal: the side of a program that shows it, and that of programs on it.
pub(super) fn terminal(size: Option<(u16, u16)>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let shown = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&shown)?;
    rustix::pty::unlockpt(&shown)?;
    let used = rustix::pty::ioctl_tiocgptpeer(&shown, flags)?;
    if let Some((columns, rows)) = size {
        set_size(&shown, columns, rows);
    }
    Ok((shown, used))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let result = guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), buffer.initialize_unfilled())?));
            match result {
                Ok(Ok(read)) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                // A terminal that no program has open any more.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            match guard.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
