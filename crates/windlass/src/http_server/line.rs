//! What is going on on one connection: which requests are there as a whole, which answers are not written
//! yet, and since when there has been silence.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

/// How long a connection may take to close once all its requests are answered.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// How long an answer may take to be read once the server stops.
pub(super) const WRITING: Duration = Duration::from_secs(5);
/// How much of an answer is handed over at once: what was is out of sight.
const PART: usize = 16 << 10;

/// One connection.
pub(super) struct Line {
    state: watch::Sender<State>,
    /// Told when a connection has answered everything.
    silence: Arc<Notify>,
}

#[derive(Clone, Copy)]
struct State {
    /// Requests that are there and not answered.
    open: usize,
    /// Answers that are not handed over as a whole.
    unwritten: usize,
    /// Whether the other end does not read as fast as this one writes.
    stalled: bool,
    /// When something was heard last, or answered.
    since: Instant,
}

impl State {
    fn is_written(&self) -> bool {
        self.unwritten == 0 && !self.stalled
    }
}

impl Line {
    pub(super) fn new(silence: Arc<Notify>) -> Self {
        let state = State { open: 0, unwritten: 0, stalled: false, since: Instant::now() };
        Self { state: watch::Sender::new(state), silence }
    }

    /// How silent it is, if there is no request to be answered. The least is the most silent: one that
    /// has nothing to write, or does not read what is written for it, and that for longest.
    pub(super) fn silence(&self) -> Option<(Reverse<bool>, Instant)> {
        let state = *self.state.borrow();
        let silent = state.is_written() || state.since + WRITING <= Instant::now();
        (state.open == 0).then_some((Reverse(silent), state.since))
    }

    /// A request that arrives: whose head is there.
    pub(super) fn request(self: &Arc<Self>, request: Request<hyper::body::Incoming>) -> (Request<Incoming>, Arrival) {
        self.heard();
        let arrival = Arrival { line: Arc::clone(self), open: Arc::default() };
        let arriving = Arriving { line: Arc::clone(self), open: Arc::clone(&arrival.open) };
        let body = |body| Incoming { arriving: Some(arriving), body }.checked();
        (request.map(body), arrival)
    }

    /// What is written to, with an eye on whether anybody reads.
    pub(super) fn watched<S>(self: &Arc<Self>, stream: S) -> Watched<S> {
        Watched { stream, line: Arc::clone(self) }
    }

    /// Waits until there has been no request for a moment, and what was answered is read, or could have been.
    pub(super) async fn quiet(&self) {
        let (mut state, began) = (self.state.subscribe(), Instant::now());
        // The sender is this line's own: it does not fail.
        while let Ok(since) = state.wait_for(|state| state.open == 0).await.map(|state| state.since) {
            let until = since.max(began) + WRITING;
            let written = state.wait_for(|state| state.open > 0 || state.is_written());
            match timeout_at(until, written).await {
                Err(_) => return,
                Ok(Ok(state)) if state.open > 0 => continue,
                Ok(_) => {}
            }
            if timeout(LINGER, state.changed()).await.is_err() {
                return;
            }
        }
    }

    fn heard(&self) {
        // Nothing waits for this.
        self.state.send_if_modified(|state| {
            state.since = Instant::now();
            false
        });
    }

    fn stalled(&self, stalled: bool) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.stalled, stalled) != stalled);
    }

    fn count(self: &Arc<Self>, which: fn(&mut State) -> &mut usize) -> Counted {
        self.state.send_modify(|state| *which(state) += 1);
        Counted { line: Arc::clone(self), which }
    }
}

/// Something that counts until this is dropped.
struct Counted {
    line: Arc<Line>,
    which: fn(&mut State) -> &mut usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.line.state.send_modify(|state| {
            *(self.which)(state) -= 1;
            state.since = Instant::now();
        });
        self.line.silence.notify_one();
    }
}

/// A request, from its head until its answer.
pub(super) struct Arrival {
    line: Arc<Line>,
    /// Once it is there as a whole.
    open: Arc<Mutex<Option<Counted>>>,
}

impl Arrival {
    /// The answer, which counts until it is written.
    pub(super) fn answer(self, answer: Response<Bytes>) -> Response<Outgoing> {
        let unwritten = self.line.count(|state| &mut state.unwritten);
        self.open.lock().take();
        answer.map(|left| Outgoing { left, _unwritten: unwritten })
    }
}

/// A body that is not there yet. The request counts when this is dropped: then it is there, or it
/// is not wanted.
struct Arriving {
    line: Arc<Line>,
    open: Arc<Mutex<Option<Counted>>>,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        *self.open.lock() = Some(self.line.count(|state| &mut state.open));
    }
}

/// The body of a request.
pub(crate) struct Incoming {
    arriving: Option<Arriving>,
    body: hyper::body::Incoming,
}

impl Incoming {
    fn checked(mut self) -> Self {
        if self.body.is_end_stream() {
            self.arriving = None;
        }
        self
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(arriving) = &self.arriving {
            arriving.line.heard();
        }
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.arriving = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer.
pub(super) struct Outgoing {
    left: Bytes,
    _unwritten: Counted,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.left.len().min(PART);
        let part = (part > 0).then(|| self.left.split_to(part));
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

/// A stream whose line knows whether it takes what is written.
pub(super) struct Watched<S> {
    stream: S,
    line: Arc<Line>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.line.stalled(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.line.stalled(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.line.stalled(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
