//! `port-forward`: connections of a client to ports of a pod.
//!
//! Over SPDY a client opens two streams for each connection, `data` and `error`, with the same request id; see
//! `portforward/httpstream.go` of upstream's `cri-streaming`. Over the channels of a WebSocket there is one connection for
//! each port in the query, on two channels; see `portforward/websocket.go`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::future::Either;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::channels::Channels;
use super::command::{LINGER, STREAMS_TIMEOUT};
use super::spdy::{CANCEL, Outgoing, Outlet, PROTOCOL_ERROR, Stream};
use super::upgrade::Subprotocol;
use super::{Connection, PodStreams, PodTarget, channels, spdy, tunnel, websocket};

/// The only version of the protocol over SPDY.
pub(crate) const VERSION: &str = "portforward.k8s.io";
/// How much is passed on at once.
const PIECE: usize = 64 << 10;
/// How many requests may wait for their second stream.
const INCOMPLETE: usize = 128;

/// The ports of one pod.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) streams: Arc<dyn PodStreams>,
    pub(crate) pod: PodTarget,
}

impl Ports {
    /// Connects to a port; why not, in upstream's words.
    async fn connect(&self, port: u16) -> Result<Box<dyn Connection>, String> {
        let connected = self.streams.port(&self.pod, port).await;
        let PodTarget { name, namespace, uid, .. } = &self.pod;
        connected.map_err(|error| format!("error forwarding port {port} to pod {name}_{namespace}, uid {uid}: {error}"))
    }
}

/// Serves a client whose SPDY connection is carried by the messages of a WebSocket.
pub(crate) async fn over_tunnel(stream: impl AsyncRead + AsyncWrite + Unpin + Send, ports: Ports) {
    let (inner, carrying) = tunnel::open(stream);
    // Both end when one does.
    tokio::join!(over_spdy(inner, ports), async {
        let _ = carrying.await;
    });
}

/// Serves a client over the streams of a SPDY connection, until it closes the connection.
pub(crate) async fn over_spdy(stream: impl AsyncRead + AsyncWrite + Unpin + Send, ports: Ports) {
    let (reader, writer) = tokio::io::split(stream);
    let spdy::Connection { reading, mut writing, streams, outlet } = spdy::Connection::new(reader, writer);
    tokio::select! {
        _ = reading.run() => {}
        _ = writing.run() => {}
        () = forward_all(streams, outlet, &ports) => {}
    }
}

/// A request that has one of its two streams.
struct Half {
    stream: Stream,
    is_error: bool,
    until: Instant,
}

async fn forward_all(mut streams: mpsc::Receiver<Stream>, outlet: Outlet, ports: &Ports) {
    let mut halves: HashMap<String, Half> = HashMap::new();
    let mut connections = FuturesUnordered::new();
    loop {
        let expires = halves.values().map(|half| half.until).min();
        let expire = async {
            match expires {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // All are cancel-safe.
        let stream = tokio::select! {
            stream = streams.recv() => match stream {
                Some(stream) => stream,
                // The connection ends, and with it this future.
                None => std::future::pending().await,
            },
            Some(()) = connections.next() => continue,
            () = expire => {
                let now = Instant::now();
                for (request, half) in halves.extract_if(|_, half| half.until <= now) {
                    if half.is_error {
                        let why = format!("(request={request}) timed out waiting for streams");
                        outlet.data(half.stream.id, why.into(), true).await;
                    } else {
                        outlet.send(Outgoing::Reset { id: half.stream.id, status: CANCEL }).await;
                    }
                }
                continue;
            }
        };
        let Some((port, is_error)) = asked(&stream).filter(|_| halves.len() < INCOMPLETE) else {
            outlet.send(Outgoing::Reset { id: stream.id, status: PROTOCOL_ERROR }).await;
            continue;
        };
        outlet.send(Outgoing::Reply(stream.id)).await;
        let request = match stream.header("requestid") {
            // Clients from before there were request ids open the error stream first.
            "" => (stream.id - if is_error { 0 } else { 2.min(stream.id) }).to_string(),
            request => request.to_owned(),
        };
        match halves.remove(&request) {
            None => {
                let until = Instant::now() + STREAMS_TIMEOUT;
                halves.insert(request, Half { stream, is_error, until });
            }
            Some(first) if first.is_error == is_error => {
                outlet.send(Outgoing::Reset { id: stream.id, status: PROTOCOL_ERROR }).await;
                halves.insert(request, first);
            }
            Some(first) => {
                let (data, error) = if is_error { (first.stream, stream) } else { (stream, first.stream) };
                connections.push(forward(data, error.id, port, outlet.clone(), ports));
            }
        }
    }
}

/// The port that a stream is for, and whether it is the one for errors.
fn asked(stream: &Stream) -> Option<(u16, bool)> {
    let port = stream.header("port").parse().ok().filter(|port| *port > 0)?;
    match stream.header("streamtype") {
        "error" => Some((port, true)),
        "data" => Some((port, false)),
        _ => None,
    }
}

/// One connection of a client.
async fn forward(data: Stream, error: u32, port: u16, outlet: Outlet, ports: &Ports) {
    let Stream { id, inbox, .. } = data;
    let connection = match ports.connect(port).await {
        Ok(connection) => connection,
        Err(why) => {
            outlet.data(error, why.into(), true).await;
            outlet.send(Outgoing::Reset { id, status: CANCEL }).await;
            return;
        }
    };
    match pass_on(id, inbox, connection, &outlet).await {
        Ok(()) => outlet.data(error, Bytes::new(), true).await,
        Err(why) => {
            let PodTarget { name, namespace, uid, .. } = &ports.pod;
            let why = format!("error forwarding port {port} to pod {name}_{namespace}, uid {uid}: {why}");
            outlet.data(error, why.into(), true).await;
            outlet.send(Outgoing::Reset { id, status: CANCEL }).await
        }
    };
}

/// Both directions of a connection, until its end.
async fn pass_on(
    id: u32,
    mut inbox: mpsc::Receiver<Bytes>,
    connection: impl AsyncRead + AsyncWrite,
    outlet: &Outlet,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(connection);
    let up = async {
        while let Some(bytes) = inbox.recv().await {
            writer.write_all(&bytes).await?;
        }
        writer.shutdown().await
    };
    let down = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            let read = reader.read_buf(&mut buffer).await?;
            if !outlet.data(id, buffer.split().freeze(), read == 0).await || read == 0 {
                return io::Result::Ok(());
            }
        }
    };
    // A client that has sent everything still gets the answer. Once the pod has ended, so has the connection: kubectl takes
    // no more of it, and the older ones close it only when the error stream ends.
    let (up, down) = (std::pin::pin!(up), std::pin::pin!(down));
    match futures::future::select(up, down).await {
        Either::Left((Err(error), _)) | Either::Right((Err(error), _)) => Err(error),
        Either::Left((Ok(()), down)) => down.await,
        Either::Right((Ok(()), _)) => Ok(()),
    }
}

/// Serves a client over the channels of a WebSocket, with one connection to each of these ports.
pub(crate) async fn over_websocket(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    protocol: Subprotocol,
    numbers: &[u16],
    ports: Ports,
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = websocket::Reader::new(reader);
    let (channels, mut outbox) = Channels::new(protocol.base64);
    let mut inboxes = Vec::new();
    let mut connections = FuturesUnordered::new();
    for (at, port) in numbers.iter().enumerate() {
        let (sender, inbox) = mpsc::channel(8);
        let number = at as u8 * 2;
        inboxes.push((number, Some(sender)));
        connections.push(forward_channel(*port, number, inbox, channels.clone(), &ports));
    }
    let session = async { while connections.next().await.is_some() {} };
    tokio::select! {
        _ = channels::read(&mut reader, &channels, protocol, &mut inboxes) => return,
        _ = channels::write(&mut writer, &mut outbox) => return,
        () = session => {}
    }
    drop(connections);
    outbox.close();
    let rest = async {
        channels::write(&mut writer, &mut outbox).await?;
        websocket::write(&mut writer, &websocket::close()).await?;
        writer.shutdown().await
    };
    let drain = async { while let Ok(Some(_)) = reader.next().await {} };
    let _ = tokio::time::timeout(LINGER, async { tokio::join!(rest, drain) }).await;
}

/// One connection, on the channel `number` and, for what goes wrong, the one after it.
async fn forward_channel(port: u16, number: u8, mut inbox: mpsc::Receiver<Bytes>, channels: Channels, ports: &Ports) {
    for channel in [number, number + 1] {
        channels.send(channel, &port.to_le_bytes()).await;
    }
    let connection = match ports.connect(port).await {
        Ok(connection) => connection,
        Err(why) => {
            channels.send(number + 1, why.as_bytes()).await;
            return;
        }
    };
    let (mut reader, mut writer) = tokio::io::split(connection);
    let up = async {
        while let Some(bytes) = inbox.recv().await {
            writer.write_all(&bytes).await?;
        }
        writer.shutdown().await
    };
    let down = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            let read = reader.read_buf(&mut buffer).await?;
            if read == 0 || !channels.send(number, &buffer.split()).await {
                return io::Result::Ok(());
            }
        }
    };
    // The client has no way to say that it sends no more, so the pod's end decides.
    let result = tokio::select! {
        down = down => down,
        Err(error) = up => Err(error),
    };
    if let Err(why) = result {
        let PodTarget { name, namespace, uid, .. } = &ports.pod;
        let why = format!("error forwarding port {port} to pod {name}_{namespace}, uid {uid}: {why}");
        channels.send(number + 1, why.as_bytes()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection of a client that keeps its own side open: `inbox`, and what the client receives.
    async fn connected(
        pod: impl AsyncFnOnce(tokio::io::DuplexStream),
        sends: &[&'static str],
        ends: bool,
    ) -> Vec<spdy::Event> {
        let (ours, mut client) = tokio::io::duplex(PIECE);
        let (reader, writer) = tokio::io::split(ours);
        let spdy::Connection { mut writing, outlet, reading, .. } = spdy::Connection::new(reader, writer);
        drop(reading);
        let (sender, inbox) = mpsc::channel(8);
        for bytes in sends {
            sender.send(Bytes::from(*bytes)).await.expect("room");
        }
        let open = (!ends).then_some(sender);
        let (near, far) = tokio::io::duplex(PIECE);
        let passing = async {
            pass_on(1, inbox, near, &outlet).await.expect("no error");
            drop(outlet);
        };
        tokio::join!(passing, pod(far), async { writing.run().await.expect("a client") });
        drop((writing, open));
        let mut received = BytesMut::new();
        while client.read_buf(&mut received).await.expect("bytes") > 0 {}
        let mut decoder = spdy::Decoder::default();
        std::iter::from_fn(|| decoder.next(&mut received).expect("frames")).collect()
    }

    #[tokio::test]
    async fn a_connection_ends_when_the_pod_ends() {
        let pod = async |mut port: tokio::io::DuplexStream| {
            port.write_all(b"pong").await.expect("an open pipe");
            port.shutdown().await.expect("an open pipe");
            let mut rest = Vec::new();
            port.read_to_end(&mut rest).await.expect("an open pipe");
        };
        let received = connected(pod, &[], false).await;
        let data = |bytes: &'static str, fin| spdy::Event::Data { id: 1, bytes: bytes.into(), fin };
        assert_eq!(received, [data("pong", false), data("", true)]);
    }

    #[tokio::test]
    async fn a_client_that_has_sent_all_is_answered() {
        let pod = async |mut port: tokio::io::DuplexStream| {
            let mut asked = String::new();
            port.read_to_string(&mut asked).await.expect("an open pipe");
            port.write_all(asked.to_uppercase().as_bytes()).await.expect("an open pipe");
        };
        let received = connected(pod, &["pi", "ng"], true).await;
        let data = |bytes: &'static str, fin| spdy::Event::Data { id: 1, bytes: bytes.into(), fin };
        assert_eq!(received, [data("PING", false), data("", true)]);
    }
}
