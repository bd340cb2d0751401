//! A million updates through one controller: does anything grow?
//!
//! The server is scripted, so that the updates come as fast as the informer reads them. Everything
//! behind the socket is real: decoding, cache, handlers, queue, reconciler.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use windlass::controller::from_key_fn;
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::{DATA, OBJECTS, megabytes, memory, runtime};

const UPDATES: usize = 1_000_000;
/// Updates after which memory is taken as the base line: every object changed a few times.
const WARM: usize = 100_000;
/// Events in one piece of the body.
const BATCH: usize = 64;

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Result {
    /// Memory after the first updates.
    pub(crate) base: usize,
    /// Memory after all of them.
    pub(crate) after: usize,
    updates_per_second: f64,
    reconciles: u64,
}

impl std::fmt::Display for Result {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (base, after) = (megabytes(self.base), megabytes(self.after));
        write!(f, "{UPDATES} updates: {base:.1} MB after {WARM}, {after:.1} MB after all; ")?;
        write!(f, "{:.0} updates/s, {} reconciles", self.updates_per_second, self.reconciles)
    }
}

pub(crate) fn run() {
    let runtime = runtime();
    runtime.block_on(async {
        let sent = Arc::new(AtomicU64::new(0));
        let client = scripted(&sent);
        let mut manager = Manager::builder(client).name("soak").check_permissions(false).build().unwrap();
        let lister = manager.lister::<ConfigMap>();
        let reconciled = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&reconciled);
        let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(ctx.get::<ConfigMap>(&key).await?.is_some());
                Ok(Outcome::Done)
            }
        });
        manager.add(Controller::<ConfigMap>::new("soak").concurrency(2).complete_keyed(reconciler)).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(manager.run_until(stop.clone()));
        lister.wait_synced().await.ok();
        let reached = async |version: usize| {
            while sent.load(Ordering::Relaxed) < version as u64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        reached(OBJECTS + WARM).await;
        let (base, began) = (memory("VmRSS:"), Instant::now());
        reached(OBJECTS + UPDATES).await;
        let took = began.elapsed();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let result = Result {
            base,
            after: memory("VmRSS:"),
            updates_per_second: (UPDATES - WARM) as f64 / took.as_secs_f64(),
            reconciles: reconciled.load(Ordering::Relaxed),
        };
        println!("{}", serde_json::to_string(&result).unwrap());
        stop.cancel();
        running.await.unwrap().unwrap();
    });
}

/// A server that lists the objects and then changes them, one after the other.
fn scripted(sent: &Arc<AtomicU64>) -> kube::Client {
    let sent = Arc::clone(sent);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert!(request.uri().query().is_some_and(|query| query.contains("watch=true")), "{}", request.uri());
        let sent = Arc::clone(&sent);
        async move {
            let payload = "x".repeat(DATA);
            let pieces = (0..(OBJECTS + UPDATES).div_ceil(BATCH)).map(move |piece| {
                let mut text = String::with_capacity(BATCH * (DATA + 400));
                for n in piece * BATCH..((piece + 1) * BATCH).min(OBJECTS + UPDATES) {
                    event(&mut text, n, &payload);
                    if n + 1 == OBJECTS {
                        bookmark(&mut text, OBJECTS);
                    }
                }
                sent.store(((piece + 1) * BATCH) as u64, Ordering::Relaxed);
                Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text)))
            });
            // Yields now and then, so that reading does not starve everything else.
            let body = futures::stream::iter(pieces).then(async |piece| {
                tokio::task::yield_now().await;
                piece
            });
            Ok::<_, Infallible>(http::Response::new(StreamBody::new(body.chain(futures::stream::pending()).boxed())))
        }
    });
    kube::Client::new(service, "default")
}

fn event(text: &mut String, n: usize, payload: &str) {
    let (kind, name, version) = (if n < OBJECTS { "ADDED" } else { "MODIFIED" }, n % OBJECTS, n + 1);
    let _ = writeln!(
        text,
        r#"{{"type":"{kind}","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"settings-{name:05}","namespace":"default","uid":"00000000-0000-4000-8000-0000000{name:05}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"bench"}}}},"data":{{"payload":"{payload}"}}}}}}"#
    );
}

fn bookmark(text: &mut String, version: usize) {
    let _ = writeln!(
        text,
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
    );
}
