//! Packets over a socket, each with the files that go along.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How many bytes a packet may have. What may be larger goes along as a file.
const PACKET: usize = 1 << 17;
/// How many files go along with a packet.
const FILES: usize = 8;
/// How many bytes a file may have that goes along.
const CONTENT: u64 = 256 << 20;

/// Where a pod's parent listens: through the directory's descriptor, because names of sockets are short.
fn address(dir: &OwnedFd) -> io::Result<SocketAddrUnix> {
    use std::os::fd::AsRawFd as _;
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/control", dir.as_raw_fd()))?)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)
}

pub(crate) fn listen(dir: &Path) -> io::Result<OwnedFd> {
    let (socket, dir) = (socket()?, open_dir(dir)?);
    rustix::net::bind(&socket, &address(&dir)?)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

pub(crate) fn connect(dir: &Path) -> io::Result<OwnedFd> {
    let (socket, dir) = (socket()?, open_dir(dir)?);
    rustix::net::connect(&socket, &address(&dir)?)?;
    Ok(socket)
}

pub(crate) fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Sends a packet; an error of kind `WouldBlock` if there is no room.
pub(crate) fn send<T: Serialize>(socket: impl AsFd, value: &T, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() > PACKET {
        return Err(io::Error::other("a packet is too large"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many files"));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a packet; `None` at the end, and an error of kind `WouldBlock` if there is none.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, files)))
}

/// A value in a file in memory.
pub(crate) fn content<T: Serialize>(value: &T) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("windlass", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// The value in a file.
pub(crate) fn read_content<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::from(file).take(CONTENT).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
