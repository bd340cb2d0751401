//! Addresses and node ports of Services: each is held once, and comes back when its claim is lost.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Expect, Memory, Store as _, Value as Stored, Write};

use crate::client::{create, eventually, get, post, send, start};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(name: &str, mut spec: Value) -> Value {
    spec["ports"] = json!([{"port": 80}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

fn words(name: &str, address: &str, why: &str) -> String {
    format!(
        "Service \"{name}\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: {why}"
    )
}

#[tokio::test]
async fn the_address_of_the_server_is_not_given_out_again() {
    let server = start().await;
    let again = service("again", json!({"clusterIP": "10.96.0.1"}));
    let refused = post(&server, SERVICES, &again).await;
    let message = words("again", "10.96.0.1", "provided IP is already allocated");
    assert_eq!((refused.code, refused.message()), (422, message.as_str()));

    // Not even after its claim was deleted: it is put back.
    let path = format!("{ADDRESSES}/10.96.0.1");
    let before = get(&server, &path).await.body["metadata"]["uid"].clone();
    assert_eq!(send(&server, Method::DELETE, &path, &Value::Null).await.code, 200);
    let back =
        eventually(&server, &path, |answer| answer.code == 200 && answer.body["metadata"]["uid"] != before).await;
    assert_eq!(
        back["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );
    assert_eq!(post(&server, SERVICES, &again).await.code, 422);
}

#[tokio::test]
async fn the_ends_of_the_service_network_are_not_given_out() {
    let server = start().await;
    for address in ["10.96.0.0", "10.96.255.255", "10.97.0.1"] {
        let refused = post(&server, SERVICES, &service("s", json!({ "clusterIP": address }))).await;
        let message = words("s", address, "the provided network does not match the current range");
        assert_eq!((refused.code, refused.message()), (422, message.as_str()));
    }
}

#[tokio::test]
async fn addresses_and_ports_are_free_again_after_their_service() {
    let server = start().await;
    let spec = || json!({"type": "NodePort", "clusterIP": "10.96.0.9"});
    let mut first = service("a", spec());
    first["spec"]["ports"][0]["nodePort"] = 30001.into();
    create(&server, SERVICES, &first).await;
    first["metadata"]["name"] = "b".into();
    assert_eq!(post(&server, SERVICES, &first).await.code, 422);
    send(&server, Method::DELETE, &format!("{SERVICES}/a"), &Value::Null).await;
    assert_eq!(get(&server, &format!("{ADDRESSES}/10.96.0.9")).await.code, 404);
    create(&server, SERVICES, &first).await;
}

#[tokio::test]
async fn claims_are_repaired_at_the_start() {
    let store = Arc::new(Memory::new());
    let server = Server::builder().store(store.clone()).start().await.unwrap();
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.9"});
    let mut lost = service("lost", spec);
    lost["spec"]["ports"][0]["nodePort"] = 30001.into();
    create(&server, SERVICES, &lost).await;
    drop(server);
    let delete = |key: &str| Write::Delete { key: key.to_owned().into(), expect: Expect::Present, last: None };
    let leaked = Write::Put {
        key: "/registry/ranges/servicenodeports/30002".into(),
        expect: Expect::Absent,
        value: Stored::plain("default/gone"),
    };
    let writes = vec![
        delete("/registry/ipaddresses/10.96.0.9"),
        delete("/registry/ipaddresses/10.96.0.1"),
        delete("/registry/ranges/servicenodeports/30001"),
        leaked,
    ];
    store.txn(writes).await.unwrap();

    let server = Server::builder().store(store).start().await.unwrap();
    for (address, name) in [("10.96.0.9", "lost"), ("10.96.0.1", "kubernetes")] {
        let found = get(&server, &format!("{ADDRESSES}/{address}")).await;
        assert_eq!((found.code, &found.body["spec"]["parentRef"]["name"]), (200, &json!(name)));
    }
    let mut other = service("other", json!({"type": "NodePort"}));
    other["spec"]["ports"][0]["nodePort"] = 30001.into();
    let refused = post(&server, SERVICES, &other).await;
    assert!(refused.message().ends_with("provided port is already allocated"), "{}", refused.body);
    other["spec"]["ports"][0]["nodePort"] = 30002.into();
    create(&server, SERVICES, &other).await;
}

#[tokio::test]
async fn node_ports_are_given_out_to_the_last() {
    let store = Arc::new(Memory::new());
    let server = Server::builder().store(store.clone()).start().await.unwrap();
    let port = |port: u16| Write::Put {
        key: format!("/registry/ranges/servicenodeports/{port}").into(),
        expect: Expect::Absent,
        value: Stored::plain("default/other"),
    };
    store.txn((30000..=32767).filter(|number| *number != 30500).map(port).collect()).await.unwrap();
    let made = create(&server, SERVICES, &service("last", json!({"type": "NodePort"}))).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30500);
    let refused = post(&server, SERVICES, &service("late", json!({"type": "NodePort"}))).await;
    let message = "Internal error occurred: failed to allocate a nodePort: range is full";
    assert_eq!((refused.code, refused.message()), (500, message));
}
