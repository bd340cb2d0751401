//! History that goes by age: pages of old lists expire, and the rest can still be read.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, eventually, get};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn add(server: &Server, name: &str) {
    create(server, CONFIG_MAPS, &json!({"metadata": {"name": name}})).await;
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn old_pages_expire_with_a_token_for_the_rest() {
    let server = Server::builder().history(Duration::from_millis(20)).start().await.unwrap();
    for name in ["a", "b", "c"] {
        add(&server, name).await;
    }
    let first = get(&server, &format!("{CONFIG_MAPS}?limit=1")).await.body;
    assert_eq!(names(&first), ["a"]);
    let (token, revision) =
        (first["metadata"]["continue"].as_str().unwrap(), first["metadata"]["resourceVersion"].as_str().unwrap());
    add(&server, "bb").await;

    let next = format!("{CONFIG_MAPS}?limit=1&continue={token}");
    let expired = eventually(&server, &next, |answer| answer.code == 410).await;
    assert_eq!(expired["reason"], "Expired");
    assert!(expired["message"].as_str().unwrap().starts_with("The provided continue parameter is too old to display"));
    // What follows is of another moment than the first page.
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = get(&server, &format!("{CONFIG_MAPS}?continue={token}")).await.body;
    assert_eq!(names(&rest), ["b", "bb", "c"]);

    let exact = format!("{CONFIG_MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let expired = get(&server, &exact).await;
    assert_eq!((expired.code, expired.message()), (410, "The resourceVersion for the provided list is too old."));
}

#[tokio::test]
async fn history_is_kept_by_volume_alone_if_asked_to() {
    let server = Server::builder().history(Duration::ZERO).start().await.unwrap();
    add(&server, "a").await;
    let revision = get(&server, CONFIG_MAPS).await.body["metadata"]["resourceVersion"].clone();
    add(&server, "b").await;
    let revision = revision.as_str().unwrap();
    let exact = get(&server, &format!("{CONFIG_MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")).await;
    assert_eq!(names(&exact.body), ["a"]);
}
