//! What becomes of the objects of a definition that is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass_server::Server;
use windlass_store::{Entry, Event, Memory, Range, Revision, Snapshot, Store, StoreError, Txn, TxnResult};

use crate::client::{create, get, send};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lamps.example.com";
const LAMPS: &str = "/apis/example.com/v1/namespaces/default/lamps";

/// A store that counts how often a task looks at all that lies below a prefix.
struct Counting {
    store: Memory,
    prefix: &'static str,
    looks: AtomicUsize,
}

impl Counting {
    fn new(prefix: &'static str) -> Arc<Self> {
        Arc::new(Self { store: Memory::new(), prefix, looks: AtomicUsize::new(0) })
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }
}

impl Store for Counting {
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult, StoreError>> {
        self.store.txn(txn)
    }

    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.store.get(key)
    }

    fn range(&self, range: Range, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        if range.start == self.prefix.as_bytes() {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
        self.store.range(range, at, limit)
    }

    fn count(&self, range: Range) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.store.count(range)
    }

    fn events(&self, after: Revision, limit: usize) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>> {
        self.store.events(after, limit)
    }

    fn revision(&self) -> watch::Receiver<Revision> {
        self.store.revision()
    }

    fn compacted(&self) -> Revision {
        self.store.compacted()
    }

    fn takes_writes(&self) -> Result<(), StoreError> {
        self.store.takes_writes()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.compact(revision)
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}

async fn define(server: &Server) {
    let crd = json!({"metadata": {"name": "lamps.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(server, DEFINITIONS, &crd).await;
}

async fn make(server: &Server, name: &str, finalizers: &[&str]) {
    let metadata = json!({"name": name, "finalizers": finalizers});
    create(server, LAMPS, &json!({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": metadata})).await;
}

async fn let_go(server: &Server, path: &str) {
    let answer = send(server, Method::PATCH, path, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
}

async fn delete(server: &Server) {
    assert_eq!(send(server, Method::DELETE, DEFINITION, &Value::Null).await.code, 200);
}

/// Whether the definition says that its objects are being deleted.
fn is_waiting(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| conditions.iter().any(|c| c["reason"] == "InstanceDeletionInProgress"))
}

/// Asks for something until it is as it should be.
async fn until(server: &Server, path: &str, done: impl Fn(u16, &Value) -> bool) {
    let wait = async {
        loop {
            let answer = get(server, path).await;
            if done(answer.code, &answer.body) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.unwrap();
}

#[tokio::test]
async fn objects_with_finalizers_are_not_scanned_on_every_write() {
    let store = Counting::new("/registry/example.com/lamps/");
    let server = Server::builder().store(Arc::clone(&store) as Arc<dyn Store>).start().await.unwrap();
    define(&server).await;
    make(&server, "a", &["example.com/f"]).await;
    make(&server, "b", &["example.com/f"]).await;
    make(&server, "c", &[]).await;
    delete(&server).await;
    until(&server, DEFINITION, |_, crd| is_waiting(crd)).await;
    let looks = store.looks();
    assert!(looks > 0, "the cleanup looks at all objects at least once");
    for i in 0..50 {
        let map = json!({"metadata": {"name": format!("m{i}")}});
        create(&server, "/api/v1/namespaces/default/configmaps", &map).await;
        tokio::task::yield_now().await;
    }
    let_go(&server, &format!("{LAMPS}/a")).await;
    until(&server, &format!("{LAMPS}/a"), |code, _| code == 404).await;
    assert_eq!(store.looks(), looks);
    assert_eq!(get(&server, &format!("{LAMPS}/b")).await.code, 200);
    let_go(&server, &format!("{LAMPS}/b")).await;
    until(&server, DEFINITION, |code, _| code == 404).await;
    assert_eq!(store.looks(), looks + 1);
    server.stop().await.unwrap();
}

/// A definition may be forced to go before its objects do, and come back.
#[tokio::test]
async fn a_cleanup_ends_with_its_definition() {
    let server = crate::client::start().await;
    define(&server).await;
    make(&server, "a", &["example.com/f"]).await;
    delete(&server).await;
    until(&server, DEFINITION, |_, crd| is_waiting(crd)).await;
    let_go(&server, DEFINITION).await;
    until(&server, DEFINITION, |code, _| code == 404).await;
    define(&server).await;
    make(&server, "b", &[]).await;
    // The object of the first is still there, and marked; the second is deleted on its own account.
    assert!(get(&server, &format!("{LAMPS}/a")).await.body["metadata"]["deletionTimestamp"].is_string());
    let touched =
        send(&server, Method::PATCH, &format!("{LAMPS}/b"), &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(touched.code, 200);
    let_go(&server, &format!("{LAMPS}/a")).await;
    assert_eq!(get(&server, &format!("{LAMPS}/b")).await.code, 200);
    make(&server, "c", &["example.com/f"]).await;
    delete(&server).await;
    until(&server, DEFINITION, |_, crd| is_waiting(crd)).await;
    let_go(&server, &format!("{LAMPS}/c")).await;
    until(&server, DEFINITION, |code, _| code == 404).await;
    server.stop().await.unwrap();
}

/// A client that sees a plain object gone may rely on the others being marked, as with upstream.
#[tokio::test]
async fn objects_with_finalizers_are_marked_before_others_go() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let server = Server::builder().store(Arc::clone(&store)).start().await.unwrap();
    define(&server).await;
    for i in 0..70 {
        make(&server, &format!("a{i}"), &[]).await;
    }
    make(&server, "z", &["example.com/f"]).await;
    let before = *store.revision().borrow();
    delete(&server).await;
    until(&server, &format!("{LAMPS}/a0"), |code, _| code == 404).await;
    let events = store.events(before, 1000).await.unwrap();
    let of_lamps = events.iter().find(|event| event.key.starts_with(b"/registry/example.com/lamps/")).unwrap();
    assert_eq!((&of_lamps.key[..], of_lamps.deleted), (&b"/registry/example.com/lamps/default/z"[..], false));
    server.stop().await.unwrap();
}
