//! A server in this process, and the state that each case starts from.
//!
//! Cases do not depend on each other: what one has changed is put back in the store, so a case that is replayed alone sees what
//! it saw the first time.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use windlass_server::dialer::{Dialer, Dialing};
use windlass_server::{Server, Service};
use windlass_store::{Entry, Event, Expect, Memory, Range, Store, Write};

use crate::kinds::{Material, NAMESPACE};
use crate::request::{Act, Sent};

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a stream is asked for more before it is dropped.
const POLLS: usize = 12;
/// How many revisions are kept.
const HISTORY: u64 = 2_000;

/// No connection leaves the process.
struct Refuse;

impl Dialer for Refuse {
    fn dial(&self, _: std::net::SocketAddr) -> Option<Dialing> {
        Some(std::future::ready(Err(std::io::ErrorKind::ConnectionRefused.into())).boxed())
    }
}

/// What a request was answered with.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
    pub(crate) took: Duration,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(2_000)]).into_owned()
    }
}

/// Why there is no answer.
pub(crate) enum Silence {
    /// No client could send the request.
    Unsendable,
    Panicked,
    TooSlow,
}

/// A server.
pub(crate) struct World {
    _server: Server,
    service: Service,
    store: Arc<dyn Store>,
    baseline: HashMap<Bytes, Entry>,
    /// Up to where changes have been put back.
    settled: u64,
}

impl World {
    pub(crate) async fn start(material: &Material) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let server = Server::builder().store(Arc::clone(&store)).start().await?;
        server.set_dialer(Refuse);
        let service = server.service();
        let mut world = Self { _server: server, service, store, baseline: HashMap::new(), settled: 0 };
        world.create("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}})).await?;
        for definition in &material.definitions {
            world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await?;
        }
        for kind in material.kinds.iter().filter(|kind| kind.prefix.contains("fuzz.example.com")) {
            world.wait_for(&kind.collection()).await?;
        }
        // What waits for itself: the first repairs, conditions of the definitions.
        let mut before = 0;
        while before != world.revision() {
            before = world.revision();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let snapshot = world.store.range(Range::prefix(""), None, 0).await?;
        world.settled = snapshot.revision;
        world.baseline = snapshot.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Ok(world)
    }

    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let answer = self.send(&Sent::json(Act::Create, Method::POST, path, object)).await.ok().context("no answer")?;
        anyhow::ensure!(answer.code == 201, "{path}: {} {}", answer.code, answer.text());
        Ok(())
    }

    async fn wait_for(&self, path: &str) -> Result<()> {
        for _ in 0..1_000 {
            if self.get(path, None).await.is_some_and(|answer| answer.code == 200) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("{path} is not served")
    }

    /// Reads something, in the form that was asked for.
    pub(crate) async fn get(&self, path: &str, accept: Option<&str>) -> Option<Answer> {
        let mut sent = Sent::new(Act::Get, Method::GET, path);
        if let Some(accept) = accept {
            sent.header("accept", accept);
        }
        self.send(&sent).await.ok()
    }

    pub(crate) async fn send(&self, sent: &Sent) -> Result<Answer, Silence> {
        let Some(request) = sent.build::<Full<Bytes>>() else { return Err(Silence::Unsendable) };
        let streams = sent.act == Act::Connect
            || ["watch", "follow", "/log", "exec", "attach", "portforward"].iter().any(|word| sent.uri.contains(word));
        let started = Instant::now();
        let answered = AssertUnwindSafe(answer(self.service.clone(), request, streams)).catch_unwind();
        match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Ok(mut answer)) => {
                answer.took = started.elapsed();
                Ok(answer)
            }
            Ok(Err(_)) => Err(Silence::Panicked),
            Err(_) => Err(Silence::TooSlow),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        *self.store.revision().borrow()
    }

    /// What has changed since a revision.
    pub(crate) async fn changes(&self, after: u64) -> Vec<Arc<Event>> {
        self.store.events(after, 0).await.unwrap_or_default()
    }

    /// Puts back what a case has changed.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        for _ in 0..100 {
            let changes = self.changes(self.settled).await;
            if changes.is_empty() {
                return Ok(());
            }
            let keys: BTreeSet<Bytes> = changes.iter().map(|event| event.key.clone()).collect();
            let (mut admission, mut definitions) = (false, false);
            for key in keys {
                admission |= key.starts_with(b"/registry/validating") || key.starts_with(b"/registry/mutating");
                definitions |= key.starts_with(b"/registry/apiextensions.k8s.io/")
                    || key.starts_with(b"/registry/apiregistration.k8s.io/");
                let now = self.store.get(&key).await?;
                let write = match (self.baseline.get(&key), now) {
                    (None, Some(_)) => Write::Delete { key: key.clone(), expect: Expect::Any, last: None },
                    (Some(before), now) if now.as_ref().is_none_or(|now| !same(&now.value, &before.value)) => {
                        Write::Put { key: key.clone(), expect: Expect::Any, value: again(&before.value) }
                    }
                    _ => continue,
                };
                self.store.txn(vec![write]).await?;
            }
            self.settled = changes.last().map_or(self.settled, |event| event.revision);
            if admission {
                // What configures admission takes effect when it is written through the API.
                let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
                let dummy = json!({"metadata": {"name": "settle"}, "spec": {"policyName": "none", "validationActions": ["Deny"]}});
                self.create(path, &dummy).await?;
                let _ = self.send(&Sent::new(Act::Delete, Method::DELETE, format!("{path}/settle"))).await;
                self.settled = self.revision();
            }
            if definitions {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        bail!("the cluster does not come to rest: something writes without end")
    }

    /// Forgets history that no case reads any more.
    pub(crate) async fn compact(&self) -> Result<()> {
        let revision = self.revision();
        if revision > self.store.compacted() + 2 * HISTORY {
            self.store.compact(revision - HISTORY).await?;
        }
        Ok(())
    }
}

/// Where the text of the resourceVersion is.
fn version_at(bytes: &[u8]) -> Option<(usize, usize)> {
    let field = b"\"resourceVersion\":\"";
    let at = bytes.windows(field.len()).position(|window| window == field)? + field.len();
    let end = at + bytes[at..].iter().position(|byte| *byte == b'"')?;
    Some((at, end))
}

/// Whether two objects differ in their resourceVersion at most.
fn same(one: &[u8], other: &[u8]) -> bool {
    match (version_at(one), version_at(other)) {
        (Some((a, b)), Some((c, d))) => one[..a] == other[..c] && one[b..] == other[d..],
        _ => one == other,
    }
}

/// An object as it is written once more.
fn again(bytes: &Bytes) -> windlass_store::Value {
    match version_at(bytes) {
        Some((at, end)) => windlass_store::Value::splice([&bytes[..at], &bytes[end..]].concat(), at),
        None => windlass_store::Value::plain(bytes.clone()),
    }
}

async fn answer(service: Service, request: Request<Full<Bytes>>, streams: bool) -> Answer {
    let response = match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let code = response.status().as_u16();
    let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    if streams && (code == 101 || code == 200) {
        let mut polls = 0;
        loop {
            match body.frame().now_or_never() {
                Some(Some(Ok(frame))) => bytes.extend(frame.into_data().unwrap_or_default()),
                Some(_) => break,
                None => {
                    polls += 1;
                    if polls > POLLS {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
    } else {
        let Ok(all) = body.collect().await;
        bytes = all.to_bytes().into();
    }
    Answer { code, content_type, body: bytes.into(), took: Duration::ZERO }
}
