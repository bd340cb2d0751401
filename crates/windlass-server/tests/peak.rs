//! What answers and bodies take at their peak. Nothing else runs in this process, so that its memory tells.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower::ServiceExt as _;
use windlass_server::Server;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A line of `/proc/self/status`, in bytes.
fn memory(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find(|found| found.starts_with(line)).unwrap();
    found.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Forgets the highest memory so far. `false` where the kernel has no such thing.
fn reset_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

async fn send(server: &Server, method: Method, path: &str, accept: &str, body: String) -> (u16, usize) {
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let request = request.header("content-type", "application/json").body(Full::<bytes::Bytes>::from(body)).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let (mut body, mut length) = (response.into_body(), 0);
    // The client takes each piece and lets go of it.
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().data_ref().map_or(0, bytes::Bytes::len);
    }
    (code, length)
}

/// By how much memory grows at most for an answer, and how long that is.
async fn growth(server: &Server, path: &str, accept: &str) -> (usize, usize) {
    assert!(reset_peak());
    let before = memory("VmRSS:");
    let (code, length) = send(server, Method::GET, path, accept, String::new()).await;
    assert_eq!(code, 200);
    (memory("VmHWM:").saturating_sub(before), length)
}

#[test]
fn a_list_takes_no_more_than_three_times_the_answer() {
    if !reset_peak() {
        eprintln!("SKIPPED: this kernel does not tell the peak of a process's memory");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::builder().start().await.unwrap();
        let data: serde_json::Map<_, _> = (0..150).map(|key| (format!("key-{key:03}"), "value".into())).collect();
        for index in 0..2_500 {
            let map = json!({"metadata": {"name": format!("map-{index:05}")}, "data": data}).to_string();
            assert_eq!(send(&server, Method::POST, CONFIG_MAPS, "application/json", map).await.0, 201);
        }
        for (path, accept) in [
            ("", "application/vnd.kubernetes.protobuf"),
            ("", "application/yaml"),
            ("?pretty=true", "application/json"),
        ] {
            let (grown, length) = growth(&server, &format!("{CONFIG_MAPS}{path}"), accept).await;
            assert!(length > 5_000_000, "{accept}: {length}");
            assert!(grown < 3 * length, "{accept}: {grown} bytes for {length}");
        }
        server.stop().await.unwrap();
    });
}
