//! A netlink socket: requests, and the kernel's answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::message::{ACK, DUMP, HEADER, Message, REQUEST};

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// The kernel answers at once; this keeps a bug from blocking for ever.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel writes dumps in pieces of at most 32 KiB.
const BUFFER: usize = 64 << 10;
/// A whole transaction is sent at once.
const SEND_BUFFER: usize = 32 << 20;

/// A request that the kernel refused, or that did not reach it.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
#[non_exhaustive]
pub struct NetlinkError {
    /// What was asked for.
    pub what: String,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

impl NetlinkError {
    pub(crate) fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: source.into() }
    }

    /// Whether the kernel answered with this error.
    pub(crate) fn is(&self, errno: Errno) -> bool {
        self.source.raw_os_error() == Some(errno.raw_os_error())
    }
}

/// A socket in the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The socket, and the number of the last request. One request is under way at a time.
    inner: Mutex<(OwnedFd, u32)>,
}

/// An answer: its type and what follows its header.
pub(crate) type Reply = (u16, Vec<u8>);

impl Socket {
    /// A socket of a netlink subsystem; `None` is that of links, addresses and routes.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        // Refused without the right to: large transactions then fail, small ones do not.
        let _ = sockopt::set_socket_send_buffer_size_force(&fd, SEND_BUFFER);
        Ok(Self { inner: Mutex::new((fd, 0)) })
    }

    /// Sends a request and waits until it is carried out.
    pub(crate) fn call(&self, what: &str, message: Message) -> Result<(), NetlinkError> {
        self.ask(what, message).map(drop)
    }

    /// Sends a request and returns what it asks for.
    pub(crate) fn ask(&self, what: &str, mut message: Message) -> Result<Vec<Reply>, NetlinkError> {
        message.flag(REQUEST | ACK);
        self.exchange(vec![message]).map_err(|error| NetlinkError::new(what, error))
    }

    /// Sends a request for a list and returns its items.
    pub(crate) fn dump(&self, what: &str, mut message: Message) -> Result<Vec<Reply>, NetlinkError> {
        message.flag(REQUEST | DUMP);
        self.exchange(vec![message]).map_err(|error| NetlinkError::new(what, error))
    }

    /// Sends several messages at once: all are carried out, or none.
    pub(crate) fn batch(&self, what: &str, messages: Vec<Message>) -> Result<(), NetlinkError> {
        self.exchange(messages).map(drop).map_err(|error| NetlinkError::new(what, error))
    }

    /// Sends messages and reads answers up to that for the last message which asks for one.
    fn exchange(&self, messages: Vec<Message>) -> io::Result<Vec<Reply>> {
        let mut inner = self.inner.lock();
        let (fd, sequence) = &mut *inner;
        let first = sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(messages.iter().map(Message::len).sum());
        let mut awaited = first;
        for message in messages {
            *sequence = sequence.wrapping_add(1);
            let message = message.finish(*sequence);
            let flags = u16::from_ne_bytes([message[6], message[7]]);
            if flags & ACK != 0 || flags & DUMP == DUMP {
                awaited = *sequence;
            }
            bytes.extend(message);
        }
        let sent = rustix::net::send(&*fd, &bytes, SendFlags::empty())?;
        debug_assert_eq!(sent, bytes.len(), "netlink messages are sent as a whole");
        let mut replies = Vec::new();
        let mut failure = None;
        let mut buffer = vec![0; BUFFER];
        loop {
            let (length, _) = rustix::net::recv(&*fd, &mut *buffer, RecvFlags::empty())?;
            let mut rest = &buffer[..length];
            while let Some(message) = next(&mut rest) {
                // An answer to a request before, which was given up.
                if message.sequence.wrapping_sub(first) > sequence.wrapping_sub(first) {
                    continue;
                }
                match message.kind {
                    ERROR => {
                        let code = message.body.get(0..4).map_or([0; 4], |code| [code[0], code[1], code[2], code[3]]);
                        let code = i32::from_ne_bytes(code);
                        if code != 0 {
                            failure.get_or_insert(io::Error::from_raw_os_error(-code));
                        }
                        // The first message of a batch is refused: nothing else is looked at.
                        if message.sequence == awaited || (code != 0 && message.sequence == first) {
                            return failure.map_or(Ok(replies), Err);
                        }
                    }
                    DONE => return failure.map_or(Ok(replies), Err),
                    kind => replies.push((kind, message.body.to_vec())),
                }
            }
        }
    }
}

struct Received<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The next message, if it is all there.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Received<'a>> {
    let number = |at: usize| Some(u32::from_ne_bytes(rest.get(at..at + 4)?.try_into().ok()?));
    let length = number(0)? as usize;
    let (kind, sequence) = (u16::from_ne_bytes(rest.get(4..6)?.try_into().ok()?), number(8)?);
    let body = rest.get(HEADER..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(Received { kind, sequence, body })
}
