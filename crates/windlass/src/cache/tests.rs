//! What is forgotten, and what is not.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;

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
async fn who_asks_anew_for_what_was_forgotten_does_not_make_anybody_unready() {
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
