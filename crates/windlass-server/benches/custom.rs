//! What custom resources cost: `cargo bench -p windlass-server`, and `-- <word>` for the rows that contain a word.
//!
//! Requests go to the server as a tower service, in this process and with the memory engine, so that what is
//! measured is the server's own work; where a row says so, over HTTPS and with the durable engine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people at a terminal")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;
use windlass_server::Server;
use windlass_server::pki::Authority;
use windlass_store::{Durable, DurableOptions};

#[path = "../tests/it/big_crd.rs"]
mod big_crd;

use big_crd::{DEFINITIONS, OBJECTS, definition, platform};

const OBJECTS_EACH: usize = 5_000;
const WRITERS: usize = 16;
const ROUNDS: usize = 9;

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let selects = |row: &str| filter.as_ref().is_none_or(|filter| row.contains(&filter[..]));
    let runtime = Runtime::new().unwrap();
    if selects("big") {
        runtime.block_on(big());
    }
    if selects("small") {
        runtime.block_on(small());
    }
    if selects("hostile") {
        runtime.block_on(hostile());
        runtime.block_on(large());
    }
}

async fn send(server: &Server, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> (u16, Bytes) {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let body: Full<Bytes> = Full::from(body);
    let request = request.body(body).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    (code, response.into_body().collect().await.unwrap().to_bytes())
}

async fn post(server: &Server, path: &str, body: Vec<u8>) -> Duration {
    let started = Instant::now();
    let (code, answer) = send(server, Method::POST, path, "application/json", body).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
    started.elapsed()
}

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{name:<48} best {:>10.2?}   median {:>10.2?}   p99 {:>10.2?}", at(0), at(50), at(99));
}

/// A definition of more than a megabyte: until its objects can be created, and what creating one costs.
async fn big() {
    let crd = serde_json::to_vec(&definition()).unwrap();
    println!("big definition: {} KB", crd.len() / 1024);
    let (mut install, mut serve) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let server = Server::builder().start().await.unwrap();
        let body = serde_json::to_vec(&platform("first", 1)).unwrap();
        let installed = post(&server, DEFINITIONS, crd.clone()).await;
        let created = post(&server, OBJECTS, body).await;
        install.push(installed);
        serve.push(installed + created);
        server.stop().await.unwrap();
    }
    row("big: POST of the definition", install);
    row("big: the same over HTTPS, durable", over_https(&crd).await);
    row("big: POST of the definition and first create", serve);
    let server = Server::builder().start().await.unwrap();
    post(&server, DEFINITIONS, crd).await;
    let schema = {
        let snapshot = server.api().catalog.snapshot();
        Arc::clone(snapshot.find("big.example.com", "v1", "platforms").unwrap())
    };
    for (width, times) in [(1, 1_000), (2, 300), (4, 50)] {
        let size = serde_json::to_vec(&platform("x", width)).unwrap().len();
        let mut creates = Vec::new();
        for n in 0..times {
            let body = serde_json::to_vec(&platform(&format!("w{width}-{n}"), width)).unwrap();
            creates.push(post(&server, OBJECTS, body).await);
        }
        row(&format!("big: create of {} KB", size.div_ceil(1024)), creates);
        let object = platform("x", width);
        let validations = (0..times).map(|_| {
            let started = Instant::now();
            let mut errors = windlass_api::field::FieldErrors::default();
            schema.strategy().validate(&object, &mut errors);
            assert!(errors.is_empty(), "{errors:?}");
            started.elapsed()
        });
        row(&format!("big: of that, validation of {} KB", size.div_ceil(1024)), validations.collect());
    }
    server.stop().await.unwrap();
}

/// The POST of a definition as a client sees it: over HTTPS, on a connection that is there, to a server that has it on
/// disk when it answers.
async fn over_https(crd: &[u8]) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let store = Durable::open(dir.path(), DurableOptions::default()).unwrap().0;
        let server = Server::builder().store(Arc::new(store)).start().await.unwrap();
        let authority = Authority::generate().unwrap();
        let listener = server.listen("127.0.0.1:0".parse().unwrap(), &authority).await.unwrap();
        let client = client(&authority, listener.address()).await;
        client.request_text(Request::get("/version").body(Vec::new()).unwrap()).await.unwrap();
        let request = Request::post(DEFINITIONS).header("content-type", "application/json").body(crd.to_vec()).unwrap();
        let started = Instant::now();
        client.request_text(request).await.unwrap();
        times.push(started.elapsed());
        listener.stop().await;
        server.stop().await.unwrap();
    }
    times
}

async fn client(authority: &Authority, address: std::net::SocketAddr) -> Client {
    let identity = authority.client("admin", "system:masters").unwrap();
    let encode = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
    let file: Kubeconfig = serde_json::from_value(json!({
        "current-context": "b",
        "contexts": [{"name": "b", "context": {"cluster": "b", "user": "b"}}],
        "clusters": [{"name": "b", "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": encode(authority.certificate())}}],
        "users": [{"name": "b", "user": {
            "client-certificate-data": encode(&identity.certificate), "client-key-data": encode(&identity.key)}}],
    }))
    .unwrap();
    Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SETTINGS: &str = "/apis/small.example.com/v1/namespaces/default/settings";

/// Custom resources and ConfigMaps of the same size, against each other.
async fn small() {
    let schema = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}}}});
    let crd = json!({"metadata": {"name": "settings.small.example.com"}, "spec": {"group": "small.example.com",
        "scope": "Namespaced", "names": {"plural": "settings", "singular": "setting", "kind": "Setting"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let mut ratios: [Vec<f64>; 3] = Default::default();
    let mut rates = [[0.0; 2]; 3];
    for _ in 0..ROUNDS {
        let mut each = [[0.0; 2]; 3];
        for (kind, path) in [CONFIG_MAPS, SETTINGS].into_iter().enumerate() {
            let server = Arc::new(Server::builder().start().await.unwrap());
            post(&server, DEFINITIONS, serde_json::to_vec(&crd).unwrap()).await;
            for (phase, rate) in each.iter_mut().enumerate() {
                rate[kind] = throughput(&server, path, phase).await;
            }
            Arc::into_inner(server).unwrap().stop().await.unwrap();
        }
        for phase in 0..3 {
            ratios[phase].push(each[phase][1] / each[phase][0]);
            for kind in 0..2 {
                rates[phase][kind] += each[phase][kind] / ROUNDS as f64;
            }
        }
    }
    for (phase, name) in ["create", "merge patch", "apply"].into_iter().enumerate() {
        ratios[phase].sort_by(f64::total_cmp);
        let [maps, custom] = rates[phase];
        let ratio = ratios[phase][ROUNDS / 2];
        println!("small: {name:<12} ConfigMap {maps:>8.0}/s   custom {custom:>8.0}/s   ratio {ratio:.2}");
    }
}

fn object(path: &str, name: &str) -> Value {
    let data: serde_json::Map<String, Value> =
        (0..10).map(|n| (format!("key-{n}"), Value::from("x".repeat(85)))).collect();
    let (api_version, kind) =
        if path == CONFIG_MAPS { ("v1", "ConfigMap") } else { ("small.example.com/v1", "Setting") };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "data": data})
}

async fn throughput(server: &Arc<Server>, path: &'static str, phase: usize) -> f64 {
    let started = Instant::now();
    let tasks = (0..WRITERS).map(|writer| {
        let server = Arc::clone(server);
        tokio::spawn(async move {
            for n in (writer..OBJECTS_EACH).step_by(WRITERS) {
                let name = format!("o-{n}");
                let one = format!("{path}/{name}");
                let (code, answer) = match phase {
                    0 => {
                        let body = serde_json::to_vec(&object(path, &name)).unwrap();
                        send(&server, Method::POST, path, "application/json", body).await
                    }
                    1 => {
                        let body = serde_json::to_vec(&json!({"data": {"key-0": n.to_string()}})).unwrap();
                        send(&server, Method::PATCH, &one, "application/merge-patch+json", body).await
                    }
                    _ => {
                        let body = serde_json::to_vec(&object(path, &name)).unwrap();
                        let one = format!("{one}?fieldManager=bench&force=true");
                        send(&server, Method::PATCH, &one, "application/apply-patch+yaml", body).await
                    }
                };
                assert!(code < 300, "{}", String::from_utf8_lossy(&answer));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    OBJECTS_EACH as f64 / started.elapsed().as_secs_f64()
}

/// A policy that would run forever: how long it takes to be cut off, and how long others wait meanwhile.
async fn hostile() {
    let server = Arc::new(Server::builder().start().await.unwrap());
    let loops = (0..4).fold("true".to_owned(), |inner, n| format!("object.data.all(v{n}, {inner})"));
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"metadata": {"name": "trap"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": loops}]}});
    let binding = json!({"metadata": {"name": "trap"}, "spec": {"policyName": "trap", "validationActions": ["Deny"]}});
    post(&server, CONFIG_MAPS, serde_json::to_vec(&json!({"metadata": {"name": "bystander"}})).unwrap()).await;
    post(&server, policies, serde_json::to_vec(&policy).unwrap()).await;
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    post(&server, bindings, serde_json::to_vec(&binding).unwrap()).await;
    let data: serde_json::Map<String, Value> = (0..1_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let victim = serde_json::to_vec(&json!({"metadata": {"name": "victim"}, "data": data})).unwrap();
    let hostile = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            let mut times = Vec::new();
            for _ in 0..50 {
                let started = Instant::now();
                let (code, _) = send(&server, Method::POST, CONFIG_MAPS, "application/json", victim.clone()).await;
                assert_eq!(code, 422);
                times.push(started.elapsed());
            }
            times
        }
    });
    let reader = tokio::spawn(reads(Arc::clone(&server), |count| count == 2_000));
    row("hostile: a policy without end, until it is cut off", hostile.await.unwrap());
    row("hostile: reads meanwhile", reader.await.unwrap());
    Arc::into_inner(server).unwrap().stop().await.unwrap();
}

/// How long reads of a small object take, until there are enough.
async fn reads(server: Arc<Server>, done: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut waits = Vec::new();
    while !done(waits.len()) {
        let started = Instant::now();
        let bystander = format!("{CONFIG_MAPS}/bystander");
        send(&server, Method::GET, &bystander, "application/json", Vec::new()).await;
        waits.push(started.elapsed());
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    waits
}

/// Two writers of an object with 60,000 keyed items, and reads meanwhile.
async fn large() {
    let server = Arc::new(Server::builder().start().await.unwrap());
    post(&server, CONFIG_MAPS, serde_json::to_vec(&json!({"metadata": {"name": "bystander"}})).unwrap()).await;
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": item});
    let spec = json!({"type": "object", "properties": {"x": list}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let crd = json!({"metadata": {"name": "traps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "traps", "kind": "Trap"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    post(&server, DEFINITIONS, serde_json::to_vec(&crd).unwrap()).await;
    let writer = |name: &'static str| {
        let server = Arc::clone(&server);
        let items: Value = (0..60_000).map(|n| json!({"k": n.to_string()})).collect();
        let body =
            json!({"apiVersion": "example.com/v1", "kind": "Trap", "metadata": {"name": name}, "spec": {"x": items}});
        let body = serde_json::to_vec(&body).unwrap();
        tokio::spawn(async move {
            let mut times = Vec::new();
            for _ in 0..6 {
                let path = format!("/apis/example.com/v1/namespaces/default/traps/{name}?fieldManager=bench");
                let started = Instant::now();
                let (code, _) = send(&server, Method::PATCH, &path, "application/apply-patch+yaml", body.clone()).await;
                assert!(matches!(code, 200 | 201), "{code}");
                times.push(started.elapsed());
            }
            times
        })
    };
    let writers = [writer("a"), writer("b")];
    let waits = reads(Arc::clone(&server), |_| writers.iter().all(tokio::task::JoinHandle::is_finished)).await;
    let mut times = Vec::new();
    for writer in writers {
        times.extend(writer.await.unwrap());
    }
    row("hostile: apply of 60,000 items, two writers", times);
    row("hostile: reads meanwhile", waits);
    Arc::into_inner(server).unwrap().stop().await.unwrap();
}
