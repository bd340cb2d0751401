//! Controllers that panic again and again show in the server's `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::client::Body;
use windlass::controller::from_fn;
use windlass::{Controller, Outcome};

use super::*;

/// The status and the text of an answer.
async fn get(client: &kube::Client, path: &str) -> (u16, String) {
    let answer = client.send(Request::get(path).body(Body::empty()).expect("a request")).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.expect("a body");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

async fn until(client: &kube::Client, path: &str, status: u16) -> String {
    let asked = async {
        loop {
            let (found, text) = get(client, path).await;
            if found == status {
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap_or_else(|_| panic!("{path} is never {status}"))
}

#[tokio::test]
async fn readyz_shows_a_controller_that_panics_and_its_recovery() {
    let server = Server::builder().start().await.expect("a server");
    let client = kube::Client::new(server.service(), "default");
    let mut manager = Manager::builder(client.clone()).build().expect("a manager");
    let broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&broken);
    let reconciler = from_fn(move |map: Arc<ConfigMap>, _ctx| {
        let panics = switch.load(Ordering::Relaxed) && map.metadata.name.as_deref() == Some("poison");
        async move {
            assert!(!panics, "not a total order\nsecond line");
            Ok(Outcome::Done)
        }
    });
    manager.add(Controller::<ConfigMap>::new("settings-controller").complete(reconciler)).expect("added");
    let running = Running::run(manager, client.clone(), &server);
    let (status, text) = get(&client, "/readyz?verbose").await;
    assert_eq!(status, 200);
    assert!(text.contains("[+]controller/settings ok\n") && text.contains("[+]controller-manager ok\n"), "{text}");

    let mut poison = ConfigMap::default();
    poison.metadata.name = Some("poison".to_owned());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let poison = maps.create(&PostParams::default(), &poison).await.expect("created");
    let text = until(&client, "/readyz", 500).await;
    assert!(text.contains("[-]controller/settings failed: reason withheld\n"), "{text}");
    assert!(text.ends_with("readyz check failed\n") && !text.contains("poison"), "{text}");
    let (status, text) = get(&client, "/readyz/controller/settings").await;
    assert_eq!(status, 500);
    assert!(text.starts_with("internal server error: default/poison panicked "), "{text}");
    assert!(text.ends_with("times in a row: not a total order\n"), "{text}");
    assert_eq!(get(&client, "/readyz?exclude=controller/settings").await.0, 200);
    assert_eq!(get(&client, "/livez").await.0, 200, "the process need not be restarted");
    assert_eq!(get(&client, "/livez/controller/settings").await.0, 404);

    broken.store(false, Ordering::Relaxed);
    // A change brings the next attempt forward.
    maps.replace("poison", &PostParams::default(), &ConfigMap { immutable: Some(true), ..poison })
        .await
        .expect("changed");
    until(&client, "/readyz", 200).await;
    assert_eq!(get(&client, "/readyz/controller/settings").await, (200, "ok".to_owned()));
    running.stop().await;
    server.stop().await.expect("stopped");
}

#[test]
fn every_controller_has_a_name() {
    for one in BuiltIn::ALL {
        assert!(!one.name().is_empty(), "{one:?} has no name in BuiltIn::NAMES");
    }
}
