//! One contender: sync, settle, reconcile. Prints what it measured as JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use windlass::controller::{SourceContext, from_key_fn};
use windlass::{Context, Controller, Manager, ObjectKey, Outcome};

use crate::{OBJECTS, memory, runtime};

/// What one contender measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Result {
    pub(crate) sync_seconds: f64,
    pub(crate) before: usize,
    pub(crate) settled: usize,
    pub(crate) peak: usize,
    pub(crate) noop_per_second: f64,
    pub(crate) read_per_second: f64,
}

/// What the reconciler does: nothing more, or again at once, or read and again at once.
const REST: u8 = 0;
const SPIN: u8 = 1;
const READ: u8 = 2;

/// How long reconciles are counted.
const COUNTED: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Mode {
    mode: AtomicU8,
    count: AtomicU64,
}

impl Mode {
    /// Sets the reconciler going and counts.
    async fn rate(&self, mode: u8, start: impl AsyncFnOnce()) -> f64 {
        self.mode.store(mode, Ordering::Relaxed);
        start().await;
        // Let every key get going first.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (from, began) = (self.count.load(Ordering::Relaxed), Instant::now());
        tokio::time::sleep(COUNTED).await;
        let done = self.count.load(Ordering::Relaxed) - from;
        let rate = done as f64 / began.elapsed().as_secs_f64();
        self.mode.store(REST, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        rate
    }
}

pub(crate) fn run(name: &str) {
    let runtime = runtime();
    let result = runtime.block_on(async {
        let client = client().await;
        match name {
            "windlass" => run_windlass(client).await,
            _ => run_kube(client).await,
        }
    });
    println!("{}", serde_json::to_string(&result).unwrap());
    // Whatever still runs has nothing to say.
    std::process::exit(0);
}

async fn client() -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(std::env::var("BENCH_KUBECONFIG").unwrap()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn run_windlass(client: kube::Client) -> Result {
    let before = memory("VmRSS:");
    let mode = Arc::new(Mode::default());
    let (wake, woken) = tokio::sync::broadcast::channel::<()>(4);
    drop(woken);
    let began = Instant::now();
    let mut manager = Manager::builder(client).name("bench").build().unwrap();
    let lister = manager.lister::<ConfigMap>();
    let controller = Controller::<ConfigMap>::new("bench").concurrency(2);
    // As an event does: the key is put in the queue again while it is worked on.
    let (shared, again) = (Arc::clone(&mode), controller.enqueuer());
    let reconciler = from_key_fn(move |key: ObjectKey, ctx: Context| {
        let (mode, again) = (Arc::clone(&shared), again.clone());
        async move {
            mode.count.fetch_add(1, Ordering::Relaxed);
            match mode.mode.load(Ordering::Relaxed) {
                REST => return Ok(Outcome::Done),
                SPIN => {}
                _ => {
                    let map = ctx.get::<ConfigMap>(&key).await?;
                    assert!(map.is_some());
                }
            }
            again.enqueue(key);
            Ok(Outcome::Done)
        }
    });
    let waking = wake.clone();
    let everything = move |ctx: SourceContext| {
        let all = ctx.lister::<ConfigMap>();
        signals(waking.subscribe()).flat_map(move |()| futures::stream::iter(all.keys()))
    };
    manager.add(controller.source(everything).complete_keyed(reconciler)).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    synced(async || lister.is_synced()).await;
    let sync_seconds = began.elapsed().as_secs_f64();
    assert_eq!(lister.len(), OBJECTS);
    let (settled, peak) = settle(&mode).await;
    let start = async || drop(wake.send(()));
    let noop_per_second = mode.rate(SPIN, start).await;
    let read_per_second = mode.rate(READ, start).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    Result { sync_seconds, before, settled, peak, noop_per_second, read_per_second }
}

async fn run_kube(client: kube::Client) -> Result {
    let before = memory("VmRSS:");
    let mode = Arc::new(Mode::default());
    let (wake, woken) = tokio::sync::broadcast::channel::<()>(4);
    let began = Instant::now();
    let controller = kube::runtime::Controller::new(kube::Api::<ConfigMap>::all(client), watcher::Config::default());
    let store = controller.store();
    let reconcile = |_: Arc<ConfigMap>, mode: Arc<Mode>| async move {
        mode.count.fetch_add(1, Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>(match mode.mode.load(Ordering::Relaxed) {
            REST => Action::await_change(),
            _ => Action::requeue(Duration::ZERO),
        })
    };
    let running = controller
        .reconcile_all_on(signals(woken))
        .run(reconcile, |_, _, _| Action::await_change(), Arc::clone(&mode))
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(running);
    synced(async || store.len() == OBJECTS).await;
    let sync_seconds = began.elapsed().as_secs_f64();
    let (settled, peak) = settle(&mode).await;
    // Its reconciler is handed the object: every reconcile reads.
    let read_per_second = mode.rate(READ, async || drop(wake.send(()))).await;
    running.abort();
    Result { sync_seconds, before, settled, peak, noop_per_second: read_per_second, read_per_second }
}

/// The events of a channel, until it closes.
fn signals(receiver: tokio::sync::broadcast::Receiver<()>) -> impl futures::Stream<Item = ()> + Send {
    futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.ok().map(|()| ((), receiver)) })
}

/// Polls often: what is waited for takes fractions of a second.
async fn synced(done: impl AsyncFn() -> bool) {
    while !done().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until every object was reconciled once and memory had time to settle; settled and peak
/// memory.
async fn settle(mode: &Mode) -> (usize, usize) {
    synced(async || mode.count.load(Ordering::Relaxed) >= OBJECTS as u64).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    (memory("VmRSS:"), memory("VmHWM:"))
}
