//! Watches and lists of large objects: work is done once for all watchers, and holds up no other request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::body::Body;
use windlass_server::{Server, Service};

use crate::client::{create, get, get_with, send, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// An object of about a megabyte with as many values as fit, which is what takes long to decode.
fn large(name: &str) -> Value {
    let data: serde_json::Map<String, Value> = (0..40_000).map(|n| (format!("key-{n}"), json!("value-1"))).collect();
    json!({"metadata": {"name": name, "labels": {"size": "large"}}, "data": data})
}

async fn watch(service: Service, query: &str, accept: &str) -> Body {
    let request = Request::get(format!("{MAPS}?watch=true{query}")).header("accept", accept);
    let response = service.oneshot(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// The pieces of the next event, which all but protobuf end with a line.
async fn event(body: &mut Body) -> Vec<Bytes> {
    let mut pieces: Vec<Bytes> = Vec::new();
    while pieces.last().is_none_or(|last| last.last() != Some(&b'\n')) {
        pieces.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    pieces
}

fn parse(pieces: &[Bytes]) -> Value {
    serde_json::from_slice(&pieces.concat()).unwrap()
}

/// The clock is paused: what is shared is shared for a few seconds only.
#[tokio::test(start_paused = true)]
async fn watchers_share_the_bytes_of_large_objects() {
    let server = start().await;
    create(&server, MAPS, &large("l")).await;
    for accept in [TABLE, PROTOBUF, "application/json"] {
        let mut watches = Vec::new();
        for _ in 0..3 {
            watches.push(watch(server.service(), "&includeObject=Object", accept).await);
        }
        // The first event is the state, made once for all watches; the second a change.
        for round in 0..2 {
            let mut seen = Vec::new();
            for watch in &mut watches {
                let large = loop {
                    let piece = watch.frame().await.unwrap().unwrap().into_data().unwrap();
                    if piece.len() > 100_000 {
                        break piece;
                    }
                };
                seen.push(large.as_ptr());
            }
            assert!(seen.iter().all(|address| *address == seen[0]), "{accept} {round}: {seen:?}");
            let patch = json!({"metadata": {"annotations": {"round": format!("{accept}{round}")}}});
            assert_eq!(send(&server, Method::PATCH, &format!("{MAPS}/l"), &patch).await.code, 200);
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn large_rows_are_as_small_ones_are() {
    let server = start().await;
    create(&server, MAPS, &large("l")).await;
    let mut table = watch(server.service(), "", TABLE).await;
    let mut metadata = watch(server.service(), "", METADATA).await;
    let first = parse(&event(&mut table).await);
    assert_eq!(first["type"], "ADDED");
    assert_eq!(first["object"]["columnDefinitions"].as_array().map(Vec::len), Some(3));
    let cells = first["object"]["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..2], [json!("l"), json!(40_000)]);
    assert_eq!(parse(&event(&mut metadata).await)["object"]["kind"], "PartialObjectMetadata");

    let patch = json!({"data": {"key-1": null}});
    assert_eq!(send(&server, Method::PATCH, &format!("{MAPS}/l"), &patch).await.code, 200);
    let second = parse(&event(&mut table).await);
    assert_eq!((&second["type"], &second["object"]["columnDefinitions"]), (&json!("MODIFIED"), &Value::Null));
    assert_eq!(second["object"]["rows"][0]["cells"][1], 39_999);
    assert_eq!(second["object"]["rows"][0]["object"]["metadata"]["name"], "l");
    assert_eq!(parse(&event(&mut metadata).await)["object"]["metadata"]["name"], "l");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn large_objects_come_into_selections_and_leave_them() {
    let server = start().await;
    let mut by_label = watch(server.service(), "&labelSelector=size%3Dlarge", "application/json").await;
    let mut by_name = watch(server.service(), "&fieldSelector=metadata.name%3Dother", "application/json").await;
    create(&server, MAPS, &large("l")).await;
    let added = parse(&event(&mut by_label).await);
    assert_eq!((&added["type"], &added["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("l")));
    let patch = json!({"metadata": {"labels": {"size": "other"}}});
    let patched = send(&server, Method::PATCH, &format!("{MAPS}/l"), &patch).await;
    let left = parse(&event(&mut by_label).await);
    assert_eq!(left["type"], "DELETED");
    // As it was, but at the revision of the change.
    assert_eq!(left["object"]["metadata"]["labels"]["size"], "large");
    assert_eq!(left["object"]["metadata"]["resourceVersion"], patched.body["metadata"]["resourceVersion"]);
    create(&server, MAPS, &json!({"metadata": {"name": "other"}})).await;
    assert_eq!(parse(&event(&mut by_name).await)["object"]["metadata"]["name"], "other");
    server.stop().await.unwrap();
}

/// Many watchers of a large object, on a runtime with one thread: reads take somewhat longer than when nothing else
/// happens, but nothing like as long as a row does.
#[tokio::test]
async fn table_watches_of_large_objects_hold_up_no_request() {
    const WATCHES: usize = 30;
    const CHANGES: usize = 3;
    let server = Arc::new(start().await);
    create(&server, MAPS, &large("l")).await;
    create(&server, MAPS, &json!({"metadata": {"name": "bystander"}})).await;
    let read = async |server: &Server| {
        let started = Instant::now();
        assert_eq!(get(server, &format!("{MAPS}/bystander")).await.code, 200);
        tokio::task::yield_now().await;
        started.elapsed()
    };
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(read(&server).await);
    }
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(watch(server.service(), "&fieldSelector=metadata.name%3Dl", TABLE).await);
    }
    let watches: Vec<_> = watches
        .into_iter()
        .map(|mut body| {
            tokio::spawn(async move {
                // The state and every change.
                for _ in 0..=CHANGES {
                    event(&mut body).await;
                }
            })
        })
        .collect();
    let writer = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            let started = Instant::now();
            for change in 0..CHANGES {
                let patch = json!({"metadata": {"annotations": {"change": change.to_string()}}});
                let request =
                    Request::patch(format!("{MAPS}/l")).header("content-type", "application/merge-patch+json");
                let request = request.body(Full::<Bytes>::from(patch.to_string())).unwrap();
                assert_eq!(server.service().oneshot(request).await.unwrap().status(), 200);
            }
            started.elapsed() / CHANGES as u32
        }
    });
    let mut beside = Vec::new();
    while !watches.iter().all(tokio::task::JoinHandle::is_finished) {
        beside.push(read(&server).await);
    }
    let write = writer.await.unwrap();
    idle.sort();
    beside.sort();
    let (idle, slow) = (idle[idle.len() / 2], beside[beside.len() * 99 / 100]);
    // A write decodes and encodes the object, which is about what a row takes.
    assert!(write > idle * 20, "this means no harm: {write:?}, {idle:?}");
    assert!(slow < write.max(Duration::from_millis(20)), "{slow:?} beside {write:?}, {idle:?} alone");
    assert!(beside.len() > 20, "{}", beside.len());
    Arc::into_inner(server).unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_table_of_large_objects_is_sent_in_pieces() {
    let server = start().await;
    for name in ["a", "b", "c"] {
        create(&server, MAPS, &large(name)).await;
    }
    let request = Request::get(MAPS).header("accept", TABLE).body(Full::<Bytes>::default()).unwrap();
    let mut body = server.service().oneshot(request).await.unwrap().into_body();
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    assert!(pieces.len() >= 3, "{}", pieces.len());
    let table = parse(&pieces);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let names: Vec<&Value> = table["rows"].as_array().unwrap().iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(table["metadata"]["resourceVersion"].is_string());

    let none = get_with(&server, "/api/v1/namespaces/other/configmaps", &[("accept", TABLE)]).await;
    let none: Value = serde_json::from_slice(none.body()).unwrap();
    assert_eq!((&none["rows"], none["columnDefinitions"].as_array().map(Vec::len)), (&json!([]), Some(3)));
    server.stop().await.unwrap();
}
