//! What is forgotten, and what is not.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;

use super::*;

/// A server with two objects, one of which cannot be read.
fn caches() -> Caches {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=") && !query.contains("sendInitialEvents") {
            futures::future::pending::<()>().await;
        }
        let (code, body) = if query.contains("watch=") {
            (422, serde_json::json!({"kind": "Status", "status": "Failure", "code": 422}))
        } else {
            let meta = |name| serde_json::json!({"namespace": "d", "name": name, "resourceVersion": "1"});
            (
                200,
                serde_json::json!({"metadata": {"resourceVersion": "5"}, "items": [
                    {"metadata": meta("good")}, {"metadata": meta("bad"), "data": 1},
                ]}),
            )
        };
        let body = Body::from(body.to_string().into_bytes());
        Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
    });
    Caches::new(kube::Client::new(service, "default"), CacheOptions::default())
}

#[tokio::test(start_paused = true)]
async fn watching_a_forgotten_kind_again_keeps_replicas_ready() {
    let caches = caches();
    caches.lister::<ConfigMap>();
    let ready = caches.synced_so_far();
    assert!(!ready(), "not listed");
    caches.forget::<ConfigMap>(&());
    assert!(ready(), "nobody waits for it");
    caches.lister::<ConfigMap>();
    assert!(ready(), "asked for later");
}

#[tokio::test(start_paused = true)]
async fn counts_never_go_down() {
    let caches = caches();
    caches.transform(&(), |_: &mut ConfigMap| panic!("a bug of the user's"));
    caches.start();
    let count = |caches: &Caches| (caches.decode_errors(), caches.panics());
    let expected = |n: u64| (vec![("configmaps/v1".to_owned(), n)], vec![("configmaps/v1".to_owned(), n)]);
    caches.lister::<ConfigMap>().wait_synced().await.unwrap();
    assert_eq!(count(&caches), expected(1));
    caches.forget::<ConfigMap>(&());
    assert_eq!(count(&caches), expected(1), "forgotten");
    caches.lister::<ConfigMap>().wait_synced().await.unwrap();
    assert_eq!(count(&caches), expected(2), "and again");
    caches.forget_in::<ConfigMap>(&(), &Scope::default());
    assert_eq!(count(&caches), expected(2));
    caches.stop().await;
}

/// A server that shows an object, and its deletion: at once to those who ask for it by name, later to others.
fn told_apart() -> Caches {
    let service = tower::service_fn(|request: http::Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        let object = |version: &str| {
            let metadata = serde_json::json!({"namespace": "d", "name": "a", "uid": "u", "resourceVersion": version});
            serde_json::json!({"metadata": metadata})
        };
        let end = serde_json::json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"},
        }}});
        let initial = [serde_json::json!({"type": "ADDED", "object": object("1")}), end];
        let deleted = serde_json::json!({"type": "DELETED", "object": object("9")});
        let after = if query.contains("fieldSelector") { Duration::ZERO } else { LATER };
        let later = futures::stream::once(async move {
            tokio::time::sleep(after).await;
            deleted
        });
        let events = if query.contains("watch=") {
            futures::stream::iter(initial).chain(later).chain(futures::stream::pending()).boxed()
        } else {
            let list = serde_json::json!({"metadata": {"resourceVersion": "5"}, "items": [object("1")]});
            futures::stream::iter([list]).boxed()
        };
        let lines = events.map(|event| Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{event}\n")))));
        Ok::<_, Infallible>(http::Response::new(StreamBody::new(lines)))
    });
    Caches::new(kube::Client::new(service, "default"), CacheOptions::default())
}

const LATER: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn reads_of_one_kind_do_not_wait_for_another() {
    let caches = told_apart();
    caches.start();
    let named = caches.lister_in::<ConfigMap>(&(), &Scope::default().fields("metadata.name=a"));
    let whole = caches.lister::<ConfigMap>();
    named.wait_synced().await.unwrap();
    whole.wait_synced().await.unwrap();
    let key = ObjectKey::new("d", "a");
    let told = async {
        while named.get(&key).is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LATER, told).await.expect("the deletion is told");
    assert!(whole.get(&key).is_some(), "the other watch does not know yet");

    let mut reflectors = caches.inner.find_known(&Kind::of::<ConfigMap>(&()));
    for _ in 0..2 {
        let known = Known::<ConfigMap>::new(Arc::clone(&reflectors));
        assert!(matches!(known.get(&key).await.unwrap(), Found::Told(None)), "in whatever order they were made");
        drop(known);
        Arc::get_mut(&mut reflectors).unwrap().all.reverse();
    }
    caches.wait_current(&(), &whole).await.unwrap();
    assert!(whole.is_empty(), "a list waits for what the other has told");
    caches.stop().await;
}
