// SPDX-License-Identifier: Apache-2.0

//! The pet store as a process: it stops when it is told to, and what it has answered survives `kill -9`.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use petstore::service::client::{Change, StoreClient};
use petstore::service::inventory::{Details, Species};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

struct Server {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    addr: String,
    client: StoreClient,
}

impl Server {
    /// Starts the program, and waits until it serves.
    async fn start(directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_petstore-server"))
            .args(["--addr", "127.0.0.1:0", "--data-dir"])
            .arg(directory)
            .env("RUST_LOG", "info")
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = log.next_line().await.unwrap().unwrap();
        let (_, addr) = ready.split_once("addr=").unwrap_or_else(|| panic!("{ready}"));
        Self { client: StoreClient::connect_lazy(addr).unwrap(), addr: addr.to_owned(), child, log }
    }

    /// Ends it with no chance to tidy up.
    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn pet(name: &str) -> Details {
    Details::new(name, Species::Canine, "2021-04-01".parse().unwrap()).unwrap()
}

#[tokio::test]
async fn pets_survive_kill_9_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    for round in 1..=5 {
        let server = Server::start(directory.path()).await;
        // Everything that was ever answered is there, unchanged.
        for number in 0..answered.load(Ordering::Relaxed) {
            let name = format!("pet {number}");
            let kept = server.client.ensure(None, &pet(&name), &name).await.unwrap();
            assert!(
                server.client.ensure(Some(&kept.id), &pet(&name), &name).await.unwrap().change == Change::Unchanged
            );
        }
        let (client, counter) = (server.client.clone(), Arc::clone(&answered));
        let adding = tokio::spawn(async move {
            loop {
                let name = format!("pet {}", counter.load(Ordering::Relaxed));
                if client.ensure(None, &pet(&name), &name).await.is_err() {
                    return;
                }
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        while answered.load(Ordering::Relaxed) < round * 10 {
            tokio::task::yield_now().await;
        }
        server.kill().await;
        adding.await.unwrap();
    }
    let server = Server::start(directory.path()).await;
    let listed = list(&server).await;
    let answered = answered.load(Ordering::Relaxed);
    // An addition that was under way may be there or not; none is there twice.
    assert!((answered..=answered + 1).contains(&listed.len()), "{answered} answered: {listed:?}");
    let mut names: Vec<&str> = listed.iter().filter_map(|line| line.split_once("canine ")).map(|line| line.1).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), listed.len());
}

/// What `petstore-client` prints.
async fn list(server: &Server) -> Vec<String> {
    let mut client = Command::new(env!("CARGO_BIN_EXE_petstore-client"));
    let output = client.args(["--petstore-addr", &server.addr]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_store_stops_when_it_is_told_to_and_goes_on_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path()).await;
    let first = server.client.ensure(None, &pet("Thor"), "key").await.unwrap();
    let killed = Command::new("kill").args(["-TERM", &server.child.id().unwrap().to_string()]).status().await;
    assert!(killed.unwrap().success());
    assert!(server.child.wait().await.unwrap().success());
    let stopping = server.log.next_line().await.unwrap().unwrap();
    assert!(stopping.ends_with("pet store stopping"), "{stopping}");

    let server = Server::start(directory.path()).await;
    assert_eq!(list(&server).await, [format!("{} canine   2021-04-01 Thor", first.id)]);
    let again = server.client.ensure(Some(&first.id), &pet("Thor"), "key").await.unwrap();
    assert_eq!((again.id, again.change), (first.id, Change::Unchanged));
}
