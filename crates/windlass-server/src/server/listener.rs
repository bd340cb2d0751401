//! A socket: takes connections and hands each to a task of its own.
//!
//! Connections that cannot be taken, because there are too many or because there are no more files, are refused
//! without a line in the log for each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection;
use super::connections::{Connections, Ending, Place};
use crate::api::Api;
use crate::authn::{ClientCertificate, Peer};
use crate::pki::ClientAuthorities;
use crate::{identity_lease, kubernetes_service};

/// How long a stop waits for requests that are under way.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may be silent before the system asks whether it is there, as upstream's `tcpKeepAliveListener`.
const KEEP_ALIVE: Duration = Duration::from_secs(180);
/// How long accepting pauses after it has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How often failures to accept are logged at most.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A socket that the server listens on.
#[must_use]
pub struct Listener {
    pub(super) address: SocketAddr,
    pub(super) api: Arc<Api>,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
    pub(super) keeper: JoinHandle<()>,
}

impl Listener {
    /// The address, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connections, ends watches and lets other requests finish, for a moment.
    pub async fn stop(self) {
        self.stop.cancel();
        self.api.catalog.end_watches();
        // The tasks only end by their own will or by a panic, which has been reported.
        let _ = self.keeper.await;
        let _ = self.task.await;
    }
}

pub(super) struct Accept {
    pub(super) api: Arc<Api>,
    pub(super) acceptor: TlsAcceptor,
    pub(super) clients: Arc<ClientAuthorities>,
    pub(super) connections: Arc<Connections>,
    pub(super) stop: CancellationToken,
    /// Whether this is the socket that others are told of.
    pub(super) is_first: bool,
}

impl Accept {
    /// A function of its own, so that all of this is compiled here and not into each crate that listens.
    pub(super) fn spawn(self, listener: TcpListener) -> (JoinHandle<()>, JoinHandle<()>) {
        let (api, stop, is_first) = (Arc::clone(&self.api), self.stop.clone(), self.is_first);
        let keeper = tokio::spawn(async move {
            let lease = async {
                if is_first {
                    identity_lease::keep(Arc::clone(&api), stop.clone()).await;
                }
            };
            tokio::join!(kubernetes_service::keep(Arc::clone(&api), stop.clone()), lease);
        });
        (tokio::spawn(self.run(listener)), keeper)
    }

    async fn run(self, listener: TcpListener) {
        let tasks = TaskTracker::new();
        let mut log = Sparse::default();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match self.connections.enter(peer.ip()) {
                    Some(place) => {
                        let (api, clients) = (Arc::clone(&self.api), Arc::clone(&self.clients));
                        tasks.spawn(serve(api, self.acceptor.clone(), clients, stream, place));
                    }
                    None => {
                        if let Some(refused) = log.count(Instant::now()) {
                            let limit = self.connections.limit();
                            tracing::warn!(refused, limit, "connections are refused: all others are in use");
                        }
                    }
                },
                // Out of files and the like. Connections that do nothing make room.
                Err(error) => {
                    self.connections.make_room();
                    if let Some(failed) = log.count(Instant::now()) {
                        tracing::warn!(failed, %error, "connections cannot be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        tasks.close();
        self.connections.end_all(Ending::Drain);
        if tokio::time::timeout(DRAIN_TIMEOUT, tasks.wait()).await.is_err() {
            self.connections.end_all(Ending::Close);
            tasks.wait().await;
        }
    }
}

/// Serves one connection.
async fn serve(api: Arc<Api>, acceptor: TlsAcceptor, clients: Arc<ClientAuthorities>, stream: TcpStream, place: Place) {
    // Small answers should not wait for more to come.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE));
    let stream = tokio::select! {
        stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => stream,
        _ = place.connection.ending() => return,
    };
    let Ok(Ok(stream)) = stream else { return };
    let session = stream.get_ref().1;
    // The handshake has verified none of them, and that of a session that is resumed was another one.
    let peer = session.peer_certificates().map(|chain| {
        let certificate = ClientCertificate::check(&clients, chain, api.now());
        Peer::Certified(Arc::new(certificate))
    });
    place.connection.established(session.alpn_protocol() == Some(b"h2"));
    connection::serve(api, peer, stream, place).await;
}

/// Says how often something happened, not more often than now and then.
#[derive(Debug, Default)]
struct Sparse {
    said: Option<Instant>,
    count: u64,
}

impl Sparse {
    /// Counts. Returns how often it happened since this was last said, if it is time to say so.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.said.is_some_and(|said| now.duration_since(said) < LOG_EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_now_and_then() {
        let start = Instant::now();
        let mut log = Sparse::default();
        let said: Vec<Option<u64>> = (0..1_001).map(|n| log.count(start + Duration::from_millis(20 * n))).collect();
        let said: Vec<(usize, u64)> = said.into_iter().enumerate().filter_map(|(at, said)| Some((at, said?))).collect();
        assert_eq!(said, [(0, 1), (500, 500), (1_000, 500)]);
    }
}
