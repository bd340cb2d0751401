//! The sockets around the [zone](super::zone), and forwarding to other servers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::message::{self, Code, Malformed, Name, Query, Response};
use super::zone::{Answer, Zone};
use crate::controller::Services;

/// Requests that are passed on at the same time; more are refused, and clients ask again.
const MOST_FORWARDED: usize = 512;
/// Connections at the same time.
const MOST_CONNECTIONS: usize = 256;
/// How long another server may take.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest message.
const LARGEST: usize = 65_535;

/// Answers questions about a cluster.
#[derive(Debug, Clone)]
pub struct DnsServer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    services: Services,
    zone: Zone,
    upstream: Vec<SocketAddr>,
    forwarded: Semaphore,
}

impl DnsServer {
    /// A server that answers from these Services, and asks other servers about everything else; it refuses that if there are
    /// none.
    pub fn new(services: Services, zone: Zone, upstream: Vec<SocketAddr>) -> Self {
        let forwarded = Semaphore::new(MOST_FORWARDED);
        Self { shared: Arc::new(Shared { services, zone, upstream, forwarded }) }
    }

    /// Serves on these sockets until the token is cancelled.
    pub async fn serve(&self, udp: UdpSocket, tcp: TcpListener, shutdown: CancellationToken) {
        let serving = async {
            tokio::join!(self.serve_udp(Arc::new(udp)), self.serve_tcp(tcp));
        };
        shutdown.run_until_cancelled(serving).await;
    }

    async fn serve_udp(&self, socket: Arc<UdpSocket>) {
        let mut forwarding = JoinSet::new();
        let mut buffer = vec![0; LARGEST];
        loop {
            let (length, client) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // An earlier answer could not be delivered. Others can.
                Err(error) => {
                    tracing::debug!(%error, "a datagram could not be received");
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            while forwarding.try_join_next().is_some() {}
            match self.shared.answer(&buffer[..length]) {
                Outcome::Ignore => {}
                Outcome::Answer(query, response) => {
                    send(&socket, &response.write(&query, query.udp_size), client).await;
                }
                Outcome::Error(bytes) => send(&socket, &bytes, client).await,
                Outcome::Forward(query, start, name) => {
                    if forwarding.len() >= MOST_FORWARDED {
                        continue;
                    }
                    let (shared, socket, asked) =
                        (Arc::clone(&self.shared), Arc::clone(&socket), buffer[..length].to_vec());
                    forwarding.spawn(async move {
                        let limit = query.udp_size;
                        let bytes = shared.forward(&query, &asked, start, name, limit, false).await;
                        send(&socket, &bytes, client).await;
                    });
                }
            }
        }
    }

    async fn serve_tcp(&self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() || connections.len() >= MOST_CONNECTIONS {
                if connections.len() >= MOST_CONNECTIONS {
                    connections.join_next().await;
                }
            }
            match listener.accept().await {
                Ok((stream, _)) => {
                    let shared = Arc::clone(&self.shared);
                    connections.spawn(async move {
                        // The client is gone, or sends nothing any more.
                        let _ = shared.serve_connection(stream).await;
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

async fn send(socket: &UdpSocket, bytes: &[u8], client: SocketAddr) {
    if let Err(error) = socket.send_to(bytes, client).await {
        tracing::debug!(%error, %client, "an answer could not be sent");
    }
}

/// What follows from a request.
enum Outcome {
    Ignore,
    Error(Vec<u8>),
    Answer(Query, Response),
    /// Another server is asked: about the same name, or about what it is an alias of.
    Forward(Query, Response, Option<Name>),
}

impl Shared {
    fn answer(&self, bytes: &[u8]) -> Outcome {
        let query = match Query::parse(bytes) {
            Ok(query) => query,
            Err(Malformed::Ignore) => return Outcome::Ignore,
            Err(Malformed::Answer(id)) => return Outcome::Error(message::error(id, Code::FormatError)),
        };
        if !query.is_plain() {
            return Outcome::Answer(query, Response::empty(Code::NotImplemented));
        }
        let recursion_available = !self.upstream.is_empty();
        match self.services.read(|directory| self.zone.answer(directory, &query)) {
            Answer::Known(mut response) => {
                response.recursion_available = recursion_available;
                // Clients take the first address, so each of them is first for some.
                fastrand::shuffle(&mut response.answers[..]);
                response.answers.sort_by_key(|record| record.data.kind() != message::Type::CNAME);
                Outcome::Answer(query, response)
            }
            Answer::Alias(response, _) if !recursion_available => Outcome::Answer(query, response),
            Answer::Alias(mut response, target) => {
                response.recursion_available = true;
                Outcome::Forward(query, response, Some(target))
            }
            Answer::Elsewhere if !recursion_available => Outcome::Answer(query, Response::empty(Code::Refused)),
            Answer::Elsewhere => Outcome::Forward(query, Response::empty(Code::NoError), None),
        }
    }

    async fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = usize::from(tokio::time::timeout(IDLE_TIMEOUT, stream.read_u16()).await??);
            let mut bytes = vec![0; length];
            tokio::time::timeout(IDLE_TIMEOUT, stream.read_exact(&mut bytes)).await??;
            let answer = match self.answer(&bytes) {
                Outcome::Ignore => return Ok(()),
                Outcome::Error(bytes) => bytes,
                Outcome::Answer(query, response) => response.write(&query, LARGEST),
                Outcome::Forward(query, start, name) => self.forward(&query, &bytes, start, name, LARGEST, true).await,
            };
            let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
            tokio::time::timeout(IDLE_TIMEOUT, stream.write_all(&framed)).await??;
        }
    }

    /// Asks other servers, one after the other.
    async fn forward(
        &self,
        query: &Query,
        asked: &[u8],
        mut start: Response,
        alias: Option<Name>,
        limit: usize,
        tcp: bool,
    ) -> Vec<u8> {
        let Ok(_permit) = self.forwarded.acquire().await else {
            return Response::empty(Code::ServerFailure).write(query, limit);
        };
        // The number is ours, so that a process which knows the client's cannot answer in the server's place.
        let id = fastrand::u16(..);
        let mut request = match &alias {
            Some(name) => message::question(id, name, query.kind),
            None => asked.to_vec(),
        };
        request[..2].copy_from_slice(&id.to_be_bytes());
        for server in &self.upstream {
            let answered = tokio::time::timeout(FORWARD_TIMEOUT, ask(*server, &request, tcp)).await;
            let mut bytes = match answered {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => {
                    tracing::debug!(%error, %server, "a name server does not answer");
                    continue;
                }
                Err(_) => continue,
            };
            if alias.is_none() {
                bytes[..2].copy_from_slice(&query.id.to_be_bytes());
                return bytes;
            }
            let found = message::read_answer(&bytes).map(|(_, _, addresses)| addresses).unwrap_or_default();
            for address in found {
                let data = match address {
                    std::net::IpAddr::V4(address) => message::Data::A(address),
                    std::net::IpAddr::V6(address) => message::Data::Aaaa(address),
                };
                let name = alias.clone().unwrap_or_else(|| query.name.clone());
                start.answers.push(message::Record { name, ttl: 5, data });
            }
            return start.write(query, limit);
        }
        let mut failure = Response::empty(Code::ServerFailure);
        failure.recursion_available = true;
        failure.write(query, limit)
    }
}

/// Asks a server from this process's own namespace.
async fn ask(server: SocketAddr, request: &[u8], tcp: bool) -> io::Result<Vec<u8>> {
    if tcp {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&[&(request.len() as u16).to_be_bytes()[..], request].concat()).await?;
        let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut bytes).await?;
        return check(request, bytes);
    }
    let any: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(request).await?;
    let mut buffer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Other processes may send datagrams as well.
        if let Ok(bytes) = check(request, buffer[..length].to_vec()) {
            return Ok(bytes);
        }
    }
}

/// Whether an answer is one to this request.
fn check(request: &[u8], bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let is_answer = bytes.len() >= 12 && bytes[..2] == request[..2] && bytes[2] & 0x80 != 0;
    if is_answer { Ok(bytes) } else { Err(io::Error::other("the answer is to another question")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::{Type, question, read_answer};
    use super::*;
    use crate::services::{Service, ServiceName};

    const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    fn services(pods: u8) -> Services {
        let service = serde_json::from_value(json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}));
        let endpoints: Vec<_> = (0..pods).map(|pod| json!({"addresses": [format!("10.244.0.{pod}")]})).collect();
        let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]});
        let slice = serde_json::from_value(slice).expect("a slice");
        let services = Services::default();
        let name = ServiceName::new("default", "web");
        services.set(&name, Some(Service::new(&service.expect("a service"), [&slice])));
        let alias = json!({"spec": {"type": "ExternalName", "externalName": "x.other.domain"}});
        let alias = serde_json::from_value(alias).expect("a service");
        services.set(&ServiceName::new("default", "alias"), Some(Service::new(&alias, [])));
        services
    }

    /// A server on loopback: its UDP and its TCP address.
    async fn start(
        domain: &str,
        services: Services,
        upstream: Vec<SocketAddr>,
        stop: &CancellationToken,
    ) -> (SocketAddr, SocketAddr) {
        let udp = UdpSocket::bind(LOOPBACK).await.expect("a socket");
        let tcp = TcpListener::bind(LOOPBACK).await.expect("a socket");
        let addresses = (udp.local_addr().expect("bound"), tcp.local_addr().expect("bound"));
        let server = DnsServer::new(services, Zone::new(domain).expect("a name"), upstream);
        let stop = stop.clone();
        tokio::spawn(async move { server.serve(udp, tcp, stop).await });
        addresses
    }

    async fn answer(server: SocketAddr, name: &str, tcp: bool) -> (Vec<u8>, u8, usize) {
        let request = question(77, &Name::parse(name).expect("a name"), Type::A);
        let bytes = ask(server, &request, tcp).await.expect("an answer");
        let (id, code, addresses) = read_answer(&bytes).expect("an answer");
        assert_eq!(id, 77);
        (bytes, code, addresses.len())
    }

    #[tokio::test]
    async fn answers_come_over_udp_and_tcp() {
        let stop = CancellationToken::new();
        let (udp, tcp) = start("cluster.local", services(100), Vec::new(), &stop).await;
        let (bytes, code, count) = answer(udp, "web.default.svc.cluster.local", false).await;
        assert_eq!((bytes[2] & 2, code, count), (2, 0, 0), "truncated");
        let (_, code, count) = answer(tcp, "web.default.svc.cluster.local", true).await;
        assert_eq!((code, count), (0, 100));
        assert_eq!(answer(udp, "other.default.svc.cluster.local", false).await.1, 3);
        assert_eq!(answer(udp, "example.com", false).await.1, 5, "refused: there is nobody to ask");
        stop.cancel();
    }

    #[tokio::test]
    async fn other_names_are_forwarded() {
        let stop = CancellationToken::new();
        let (upstream, upstream_tcp) = start("other.domain", services(3), Vec::new(), &stop).await;
        let (udp, _) = start("cluster.local", services(1), vec![upstream], &stop).await;
        assert_eq!(answer(udp, "web.default.svc.other.domain", false).await.2, 3);
        // An alias is resolved by the server that knows: here, that there is nothing.
        assert_eq!(answer(udp, "alias.default.svc.cluster.local", false).await.1, 0);
        let (_, tcp) = start("cluster.local", services(1), vec![upstream_tcp], &stop).await;
        assert_eq!(answer(tcp, "web.default.svc.other.domain", true).await.2, 3);
        stop.cancel();
    }
}
