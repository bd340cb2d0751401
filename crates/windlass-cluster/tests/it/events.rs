//! Events go an hour after they were last written. The clock is paused: it jumps to the next timer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use serde_json::json;
use tokio::time::Instant;
use windlass_cluster::Cluster;

use crate::objects::{create, merge, namespaced, until_within};

#[tokio::test(start_paused = true)]
async fn events_expire_an_hour_after_their_last_write() {
    let cluster = Cluster::start().await.unwrap();
    let events: Api<Event> = namespaced(&cluster.client(), "default");
    let event = |name: &str| {
        json!({
            "metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "Tested", "message": "m", "type": "Normal", "source": {"component": "test"},
        })
    };
    let began = Instant::now();
    create(&events, event("once")).await;
    create(&events, event("again")).await;
    let mut half = tokio::time::interval(Duration::from_secs(1800));
    half.tick().await;
    half.tick().await;
    merge(&events, "again", json!({"count": 2})).await;
    let day = Duration::from_secs(24 * 3600);
    until_within(&events, "once", day, |event| event.is_none()).await;
    let minutes = began.elapsed().as_secs() / 60;
    assert!((60..=70).contains(&minutes), "{minutes}");
    assert!(events.get_opt("again").await.unwrap().is_some());
    until_within(&events, "again", day, |event| event.is_none()).await;
    let minutes = began.elapsed().as_secs() / 60;
    assert!((90..=100).contains(&minutes), "{minutes}");
    cluster.stop().await.unwrap();
}
