//! Forwarding in userspace: the ways between the machine and a cluster's namespace.
//!
//! A [`Forwarder`] accepts connections on a listener in one network namespace and connects them with sockets of another.
//! Pods reach the API server through one, programs of the user reach Services through others, and connections that leave the
//! cluster go through one as well. Inside the cluster the kernel forwards; nothing there goes through this module.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Connections of one listener at the same time.
const MOST_CONNECTIONS: usize = 4096;
/// How much is read at once: two of these for each connection.
const BUFFER: usize = 64 << 10;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Clients of a UDP port at the same time.
const MOST_CLIENTS: usize = 1024;
/// How long a UDP client is remembered after its last datagram.
const UDP_IDLE: Duration = Duration::from_secs(60);
/// The largest datagram.
const DATAGRAM: usize = 65_535;

/// Forwards connections until it is dropped, and then cuts those that it has.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

impl Forwarder {
    /// Forwards each connection of a listener to what a function connects it with, given the client's connection.
    pub fn tcp<F, Fut>(listener: TcpListener, connect: F) -> io::Result<Self>
    where
        F: Fn(&TcpStream) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        let address = listener.local_addr()?;
        let task = AbortOnDropHandle::new(tokio::spawn(accept(listener, connect)));
        Ok(Self { address, _task: task })
    }

    /// Forwards datagrams of a socket: each client has a socket of its own, which a function makes and connects.
    pub fn udp<F, Fut>(socket: UdpSocket, connect: F) -> io::Result<Self>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<UdpSocket>> + Send + 'static,
    {
        let address = socket.local_addr()?;
        let task = AbortOnDropHandle::new(tokio::spawn(relay(Arc::new(socket), connect)));
        Ok(Self { address, _task: task })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept<F, Fut>(listener: TcpListener, connect: F)
where
    F: Fn(&TcpStream) -> Fut,
    Fut: Future<Output = io::Result<TcpStream>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                // Too many open files, or a client that is gone already.
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let connecting = connect(&client);
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = splice(client, connecting).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}

async fn splice(mut client: TcpStream, connect: impl Future<Output = io::Result<TcpStream>>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut server = tokio::time::timeout(CONNECT_TIMEOUT, connect).await??;
    copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER).await.map(drop)
}

async fn relay<F, Fut>(socket: Arc<UdpSocket>, connect: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = io::Result<UdpSocket>>,
{
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut replies: JoinSet<SocketAddr> = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            Some(ended) = replies.join_next() => {
                if let Ok(client) = ended {
                    clients.remove(&client);
                }
                continue;
            }
        };
        let Ok((length, client)) = received else {
            tokio::task::yield_now().await;
            continue;
        };
        let server = match clients.get(&client) {
            Some(server) => Arc::clone(server),
            None if clients.len() >= MOST_CLIENTS => continue,
            None => match connect().await {
                Ok(server) => {
                    let server = Arc::new(server);
                    clients.insert(client, Arc::clone(&server));
                    let (socket, from) = (Arc::clone(&socket), Arc::clone(&server));
                    replies.spawn(async move {
                        answer(&socket, &from, client).await;
                        client
                    });
                    server
                }
                Err(error) => {
                    tracing::debug!(%error, "a datagram could not be forwarded");
                    continue;
                }
            },
        };
        // Datagrams may be lost.
        let _ = server.send(&buffer[..length]).await;
    }
}

/// Sends what a server answers to its client, until it falls silent.
async fn answer(socket: &UdpSocket, server: &UdpSocket, client: SocketAddr) {
    let mut buffer = vec![0; DATAGRAM];
    while let Ok(Ok(length)) = tokio::time::timeout(UDP_IDLE, server.recv(&mut buffer)).await {
        let _ = socket.send_to(&buffer[..length], client).await;
    }
}

/// Keeps a set of forwarders as it is wanted: those that are the same go on.
#[derive(Debug)]
pub struct Forwarders<K> {
    running: HashMap<K, Forwarder>,
}

impl<K> Default for Forwarders<K> {
    fn default() -> Self {
        Self { running: HashMap::new() }
    }
}

impl<K: std::hash::Hash + Eq + Clone> Forwarders<K> {
    /// Stops what is not wanted any more and starts what is new. What could not be started.
    pub async fn set<Fut>(
        &mut self,
        wanted: impl IntoIterator<Item = K>,
        start: impl Fn(K) -> Fut,
    ) -> Vec<(K, io::Error)>
    where
        Fut: Future<Output = io::Result<Forwarder>>,
    {
        let wanted: std::collections::HashSet<K> = wanted.into_iter().collect();
        self.running.retain(|key, _| wanted.contains(key));
        let mut failures = Vec::new();
        for key in wanted {
            if self.running.contains_key(&key) {
                continue;
            }
            match start(key.clone()).await {
                Ok(forwarder) => {
                    self.running.insert(key, forwarder);
                }
                Err(error) => failures.push((key, error)),
            }
        }
        failures
    }

    /// Where one of them listens.
    pub fn address(&self, key: &K) -> Option<SocketAddr> {
        self.running.get(key).map(Forwarder::address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// Answers with what it got, and its own name.
    async fn echo(name: &'static str) -> (SocketAddr, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
        let address = listener.local_addr().expect("bound");
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut text = String::new();
                let _ = stream.read_to_string(&mut text).await;
                let _ = stream.write_all(format!("{name}:{text}").as_bytes()).await;
            }
        });
        (address, AbortOnDropHandle::new(task))
    }

    async fn ask(address: SocketAddr) -> io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn connections_are_forwarded_with_half_closes() {
        let (server, _task) = echo("one").await;
        let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
        let forwarder = Forwarder::tcp(listener, move |_| TcpStream::connect(server)).expect("a forwarder");
        let address = forwarder.address();
        assert_eq!(ask(address).await.expect("an answer"), "one:hello");
        drop(forwarder);
    }

    #[tokio::test]
    async fn a_server_that_is_gone_cuts_the_connection() {
        let closed = TcpListener::bind(LOOPBACK).await.expect("a listener").local_addr().expect("bound");
        let listener = TcpListener::bind(LOOPBACK).await.expect("a listener");
        let forwarder = Forwarder::tcp(listener, move |_| TcpStream::connect(closed)).expect("a forwarder");
        // Cut before or after the text is sent.
        assert_ne!(ask(forwarder.address()).await.unwrap_or_default(), "one:hello");
    }

    #[tokio::test]
    async fn datagrams_are_forwarded_for_each_client() {
        let server = UdpSocket::bind(LOOPBACK).await.expect("a socket");
        let to = server.local_addr().expect("bound");
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut buffer = [0; 100];
            while let Ok((length, client)) = server.recv_from(&mut buffer).await {
                let _ = server.send_to(&buffer[..length], client).await;
            }
        }));
        let socket = UdpSocket::bind(LOOPBACK).await.expect("a socket");
        let connect = move || async move {
            let socket = UdpSocket::bind(LOOPBACK).await?;
            socket.connect(to).await?;
            Ok(socket)
        };
        let forwarder = Forwarder::udp(socket, connect).expect("a forwarder");
        for text in ["one", "two"] {
            let client = UdpSocket::bind(LOOPBACK).await.expect("a socket");
            client.connect(forwarder.address()).await.expect("connected");
            client.send(text.as_bytes()).await.expect("sent");
            let mut buffer = [0; 100];
            let length = client.recv(&mut buffer).await.expect("an answer");
            assert_eq!(&buffer[..length], text.as_bytes());
        }
        drop((forwarder, serving));
    }

    #[tokio::test]
    async fn forwarders_that_stay_wanted_go_on() {
        let (server, _task) = echo("one").await;
        let start = |_: u8| async move {
            let listener = TcpListener::bind(LOOPBACK).await?;
            Forwarder::tcp(listener, move |_| TcpStream::connect(server))
        };
        let mut forwarders = Forwarders::default();
        assert!(forwarders.set([1, 2], start).await.is_empty());
        let one = forwarders.address(&1).expect("it runs");
        let refused = |_: u8| async { Err(io::Error::other("refused")) };
        assert_eq!(forwarders.set([1, 3], refused).await.len(), 1);
        assert_eq!((forwarders.address(&1), forwarders.address(&2)), (Some(one), None));
        assert_eq!(ask(one).await.expect("an answer"), "one:hello");
    }
}
