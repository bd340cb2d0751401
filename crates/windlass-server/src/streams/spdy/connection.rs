//! One SPDY connection: what arrives goes to its stream, and what streams send goes out in order.

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::{CANCEL, Decoder, Encoder, Event, Headers, INVALID_STREAM, PIECE, REFUSED_STREAM};

/// How many streams a client may have open. A connection that is forwarded takes two.
const STREAMS: usize = 2_048;
/// How many pieces of a stream may wait to be read.
const WAITING: usize = 8;

/// A stream that the client has opened. It has to be accepted or refused.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) headers: Headers,
    /// What the client sends; ends when it has sent everything or gave the stream up.
    pub(crate) inbox: mpsc::Receiver<Bytes>,
}

impl Stream {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Something to send.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Reply(u32),
    Data { id: u32, bytes: Bytes, fin: bool },
    Reset { id: u32, status: u32 },
    Ping(u32),
    GoAway(u32),
}

/// Where streams put what they send.
#[derive(Debug, Clone)]
pub(crate) struct Outlet(mpsc::Sender<Outgoing>);

impl Outlet {
    /// Sends something, if the connection is still there.
    pub(crate) async fn send(&self, outgoing: Outgoing) -> bool {
        self.0.send(outgoing).await.is_ok()
    }

    pub(crate) async fn data(&self, id: u32, bytes: Bytes, fin: bool) -> bool {
        self.send(Outgoing::Data { id, bytes, fin }).await
    }
}

/// The two halves of a connection, each to be polled until it ends.
pub(crate) struct Connection<R, W> {
    pub(crate) reading: Reading<R>,
    pub(crate) writing: Writing<W>,
    /// The streams that the client opens.
    pub(crate) streams: mpsc::Receiver<Stream>,
    pub(crate) outlet: Outlet,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<R, W> {
    pub(crate) fn new(reader: R, writer: W) -> Self {
        let (opened, streams) = mpsc::channel(WAITING);
        let (outlet, outbox) = mpsc::channel(WAITING);
        let outlet = Outlet(outlet);
        let reading = Reading {
            stream: reader,
            buffer: BytesMut::new(),
            decoder: Decoder::default(),
            inboxes: HashMap::new(),
            opened,
            outlet: outlet.clone(),
        };
        let writing = Writing { stream: writer, encoder: Encoder::default(), outbox };
        Self { reading, writing, streams, outlet }
    }
}

/// See [`Connection`].
pub(crate) struct Reading<R> {
    stream: R,
    buffer: BytesMut,
    decoder: Decoder,
    inboxes: HashMap<u32, mpsc::Sender<Bytes>>,
    opened: mpsc::Sender<Stream>,
    outlet: Outlet,
}

impl<R: AsyncRead + Unpin> Reading<R> {
    /// Takes what arrives until the client closes the connection.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        loop {
            loop {
                let next = self.decoder.next(&mut self.buffer);
                let next = next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let Some(event) = next else { break };
                self.take(event).await;
            }
            self.buffer.reserve(PIECE);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Open { id, headers, fin } => {
                self.inboxes.retain(|_, inbox| !inbox.is_closed());
                if self.inboxes.len() >= STREAMS {
                    self.outlet.send(Outgoing::Reset { id, status: REFUSED_STREAM }).await;
                    return;
                }
                let (sender, inbox) = mpsc::channel(WAITING);
                if !fin {
                    self.inboxes.insert(id, sender);
                }
                // It is not taken if the session is about to end.
                let _ = self.opened.send(Stream { id, headers, inbox }).await;
            }
            Event::Data { id, bytes, fin } => {
                let Some(inbox) = self.inboxes.get(&id) else {
                    // An empty end of a stream that has been dealt with is no mistake.
                    if !bytes.is_empty() {
                        self.outlet.send(Outgoing::Reset { id, status: INVALID_STREAM }).await;
                    }
                    return;
                };
                // What is not read is dropped; the rest of the connection goes on.
                let is_read = bytes.is_empty() || inbox.send(bytes).await.is_ok();
                if fin || !is_read {
                    self.inboxes.remove(&id);
                }
                if !is_read && !fin {
                    self.outlet.send(Outgoing::Reset { id, status: CANCEL }).await;
                }
            }
            Event::Reset { id } => {
                self.inboxes.remove(&id);
            }
            // The client's own have odd numbers; others are answers.
            Event::Ping { id } if id % 2 == 1 => {
                self.outlet.send(Outgoing::Ping(id)).await;
            }
            Event::Ping { .. } | Event::GoAway | Event::Ignored => {}
        }
    }
}

/// See [`Connection`].
pub(crate) struct Writing<W> {
    stream: W,
    encoder: Encoder,
    outbox: mpsc::Receiver<Outgoing>,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    /// Sends what there is to send until no [`Outlet`] is left or the client is gone.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        while let Some(outgoing) = self.outbox.recv().await {
            self.write(outgoing).await?;
            while let Ok(outgoing) = self.outbox.try_recv() {
                self.write(outgoing).await?;
            }
            self.stream.flush().await?;
        }
        Ok(())
    }

    /// Sends what is left, and that nothing follows.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.outbox.close();
        self.run().await?;
        self.write(Outgoing::GoAway(0)).await?;
        self.stream.shutdown().await
    }

    async fn write(&mut self, outgoing: Outgoing) -> io::Result<()> {
        let mut frame = BytesMut::with_capacity(32);
        match outgoing {
            Outgoing::Reply(id) => self.encoder.reply(id, &mut frame),
            Outgoing::Reset { id, status } => Encoder::reset(id, status, &mut frame),
            Outgoing::Ping(id) => Encoder::ping(id, &mut frame),
            Outgoing::GoAway(last) => Encoder::go_away(last, &mut frame),
            Outgoing::Data { id, bytes, fin } => {
                Encoder::data(id, bytes.len(), fin, &mut frame);
                return self.stream.write_all_buf(&mut frame.chain(bytes)).await;
            }
        }
        self.stream.write_all(&frame).await
    }
}
