// SPDX-License-Identifier: Apache-2.0

//! A small web server that says which pod answers. It prints a line for each request, and ends what it has begun before it
//! stops.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The first line and the headers of a request have at most so many bytes.
const MOST: usize = 16 << 10;
/// How long a client may take to send them.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(8080);
    let pod = std::env::var("HOSTNAME").unwrap_or_else(|_| "unknown".to_owned());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    println!("{pod} listens on {port}");
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, client) = accepted?;
                let pod = pod.clone();
                connections.spawn(async move {
                    let answered = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, client, &pod)).await;
                    if let Ok(Err(error)) = answered {
                        println!("{client} - {error}");
                    }
                });
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    connections.join_all().await;
    println!("{pod} stops");
    Ok(())
}

/// Answers one request and closes the connection.
async fn answer(mut stream: TcpStream, client: SocketAddr, pod: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes).await? {
            // A probe that only connects.
            0 => return Ok(()),
            read if head.len() + read <= MOST => head.extend_from_slice(&bytes[..read]),
            _ => return Ok(()),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let request = head.lines().next().unwrap_or_default();
    let own = stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let page = page(pod, own, request);
    let header = |name: &str| {
        let mut found = head.lines().filter_map(|line| line.split_once(':'));
        found.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\nx-pod: {pod}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let agent = header("user-agent").unwrap_or_else(|| "-".to_owned());
    // Probes come every second.
    if !agent.starts_with("kube-probe") {
        let from = header("x-forwarded-for").unwrap_or_else(|| client.ip().to_string());
        println!("{from} - \"{request}\" 200 {} \"{agent}\"", page.len());
    }
    Ok(())
}

fn page(pod: &str, address: IpAddr, request: &str) -> String {
    let request: String = request.chars().filter(|c| !"<>&".contains(*c)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Hello from {pod}</title>\
         <style>body{{font-family:sans-serif;margin:4rem auto;max-width:40rem}}td{{padding:.3rem 1rem}}</style></head>\n\
         <body><h1>Hello</h1><table>\n<tr><td>Pod</td><td>{pod}</td></tr>\n<tr><td>Address</td><td>{address}</td></tr>\n\
         <tr><td>Request</td><td>{request}</td></tr>\n</table><p>Load the page again, and another pod answers.</p></body></html>\n"
    )
}
