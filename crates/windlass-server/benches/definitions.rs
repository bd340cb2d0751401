//! The memory that CustomResourceDefinitions take: `cargo bench -p windlass-server --bench definitions`, and `-- COUNT` for
//! another number than 736, which is how many 31 projects have together.
//!
//! Each definition has a schema of about 70 kB, 500 fields with descriptions, as controller-gen makes them. An object of
//! each is created, listed and applied, and then every document about the definitions is read. The server keeps all in
//! memory, so that what is stored counts as well: twice, until history is compacted.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;
use windlass_server::Server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn main() {
    let count = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(736);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(count));
}

async fn measure(count: usize) {
    let server = Server::builder().history(Duration::from_secs(1)).start().await.unwrap();
    let before = resident();
    println!("an empty server: {before} MB resident");
    let mut bytes = 0;
    let started = Instant::now();
    for index in 0..count {
        let crd = definition(index).to_string();
        bytes += crd.len();
        send(&server, Method::POST, DEFINITIONS, crd.into()).await;
    }
    println!("{count} definitions of {} kB on average, in {:.1?}", bytes / count / 1000, started.elapsed());
    // History is compacted after the interval: one for it to begin, one for it to end.
    tokio::time::sleep(Duration::from_secs(3)).await;
    report("installed", before, &server);
    let started = Instant::now();
    for index in 0..count {
        let path = format!("/apis/group{index}.example.com/v1/namespaces/default/things{index}");
        let object = json!({"apiVersion": format!("group{index}.example.com/v1"), "kind": format!("Thing{index}"),
            "metadata": {"name": "one"}, "spec": {"part0": {"field0": "value"}}});
        send(&server, Method::POST, &path, object.to_string().into()).await;
    }
    println!("one object of each, in {:.1?}", started.elapsed());
    report("with one object of each", before, &server);
    let index: Value = serde_json::from_slice(&send(&server, Method::GET, "/openapi/v3", Bytes::new()).await).unwrap();
    for path in index["paths"].as_object().unwrap().values() {
        send(&server, Method::GET, path["serverRelativeURL"].as_str().unwrap(), Bytes::new()).await;
    }
    report("after every document of OpenAPI version 3", before, &server);
    let document = send(&server, Method::GET, "/openapi/v2", Bytes::new()).await;
    println!("the document of OpenAPI version 2 has {} MB", document.len() / 1_000_000);
    drop(document);
    report("after it", before, &server);
    for _ in 0..2 {
        server.api().schemas.sweep();
        server.api().catalog.snapshot().documents().sweep();
    }
    report("unused for a while", before, &server);
    server.stop().await.unwrap();
}

fn report(what: &str, before: usize, server: &Server) {
    let (now, kept) = (resident(), server.api().schemas.count());
    println!("{what}: {} MB more than empty, {kept} schemas compiled", now.saturating_sub(before));
}

/// What the process has in memory, in megabytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1000
}

async fn send(server: &Server, method: Method, path: &str, body: Bytes) -> Bytes {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(code.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    body
}

fn definition(index: usize) -> Value {
    let (plural, kind, group) =
        (format!("things{index}"), format!("Thing{index}"), format!("group{index}.example.com"));
    let parts = (0..20).map(|part| (format!("part{part}"), part_of(part, index)));
    let spec = json!({"type": "object", "properties": parts.collect::<Map<_, _>>()});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {
        "observedGeneration": {"type": "integer", "format": "int64"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}})
}

fn part_of(part: usize, index: usize) -> Value {
    let field = |field: usize| {
        let description = format!(
            "Field {field} of part {part} of kind {index}. It is described at about the length that is usual in \
             definitions, which is one sentence or two."
        );
        let schema = match field % 4 {
            0 => json!({"type": "string", "maxLength": 253, "description": description}),
            1 => json!({"type": "integer", "format": "int32", "minimum": 0, "description": description}),
            2 => json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description}),
            _ => json!({"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "value": {"type": "string"}}}, "description": description}),
        };
        (format!("field{field}"), schema)
    };
    json!({"type": "object", "description": format!("Part {part}."), "properties": (0..18).map(field).collect::<Map<_, _>>()})
}
