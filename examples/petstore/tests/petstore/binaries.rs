//! The programs, started as a user starts them.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};
use windlass_petstore::{
    client::StoreClient,
    store::{Details, Species},
};

#[tokio::test]
async fn the_server_serves_where_it_says_and_stops_when_told() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_petstore-server"))
        .args(["--addr", "127.0.0.1:0"])
        .env("RUST_LOG", "info")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    let ready = log.next_line().await.unwrap().unwrap();
    let (_, addr) = ready.split_once("pet store ready addr=").unwrap();

    let client = StoreClient::connect_lazy(addr).unwrap();
    let thor = Details::new("Thor", Species::Canine, "2021-04-01".parse().unwrap()).unwrap();
    client.ensure(None, &thor, "key").await.unwrap();

    let pid = server.id().unwrap().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(killed.unwrap().success());
    assert!(server.wait().await.unwrap().success());
    let stopping = log.next_line().await.unwrap().unwrap();
    assert!(stopping.ends_with("pet store stopping"), "{stopping}");
}
