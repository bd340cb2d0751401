//! A stock `kube` client, with no socket in between and over TLS.

mod access;
mod apply;
mod custom;
mod discovery;
mod list;
mod objects;
mod subresources;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Client, Config};
use serde_json::json;
use windlass_server::Server;
use windlass_server::pki::Authority;
use windlass_store::{Memory, Store};

/// Puts the same test to a client inside the process and to one that comes over TLS, each with a server of its own.
async fn everywhere(test: impl AsyncFn(Client)) {
    let server = Server::builder().start().await.unwrap();
    test(Client::new(server.service(), "default")).await;
    server.stop().await.unwrap();

    let server = Server::builder().start().await.unwrap();
    let authority = Authority::generate().unwrap();
    let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
    let config = config(&authority, &listener.address().to_string(), "admin", "system:masters").await;
    test(Client::try_from(config).unwrap()).await;
    listener.stop().await;
    server.stop().await.unwrap();
}

/// A server in this process and the store below it.
async fn server_and_store() -> (Server, Client, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let server = Server::builder().store(Arc::clone(&store)).start().await.unwrap();
    let client = Client::new(server.service(), "default");
    (server, client, store)
}

/// What a client with a certificate of `authority` needs to reach `address`.
async fn config(authority: &Authority, address: &str, user: &str, group: &str) -> Config {
    let identity = authority.client(user, group).unwrap();
    let file: Kubeconfig = serde_json::from_value(json!({
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": STANDARD.encode(authority.certificate()),
        }}],
        "users": [{"name": "it", "user": {
            "client-certificate-data": STANDARD.encode(identity.certificate),
            "client-key-data": STANDARD.encode(identity.key),
        }}],
    }))
    .unwrap();
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()
}

/// A ConfigMap with one entry and a label.
fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap { data: Some(BTreeMap::from([("a".into(), "1".into())])), ..ConfigMap::default() };
    map.metadata.name = Some(name.into());
    map.metadata.labels = Some(BTreeMap::from([("app".into(), name.into())]));
    map
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}]},
    }))
    .unwrap()
}

/// What the server said was wrong.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

/// Checks how a request was refused.
#[track_caller]
fn check_refused<T: std::fmt::Debug>(result: kube::Result<T>, code: u16, reason: &str) {
    let status = refused(result);
    assert_eq!((status.code, status.reason.as_str()), (code, reason), "{}", status.message);
}
