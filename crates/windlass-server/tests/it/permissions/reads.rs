//! Reads, watches and deletes of collections: which verb counts, and which name.

use super::{Ask, Checker, WIDGETS, config_map, widget};
use crate::client::create;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCHED: &str = "/api/v1/watch/namespaces/default/configmaps";

fn cannot(verb: &str, name: &str) -> String {
    let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    format!(
        "configmaps{named} is forbidden: User \"USER\" cannot {verb} resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    )
}

#[tokio::test]
async fn a_list_of_one_name_takes_rights_on_that_name() {
    let mut checker = Checker::start().await;
    for (verb, query) in [("list", ""), ("watch", "watch=1&")] {
        let rights = format!("{verb} configmaps:one");
        let path = |selector: &str| format!("{CONFIG_MAPS}?{query}fieldSelector={selector}");
        checker.answers(&[&rights], Ask::get(&path("metadata.name=one")), 200).await;
        checker.answers(&[&rights], Ask::get(&path("metadata.name%3D%3Done,metadata.namespace%3Ddefault")), 200).await;
        checker.refuses(&[&rights], Ask::get(&path("metadata.name=two")), &cannot(verb, "two")).await;
        checker.refuses(&[&rights], Ask::get(&path("metadata.name!=one")), &cannot(verb, "")).await;
        checker.refuses(&[&rights], Ask::get(&path("metadata.name=%2E%2E")), &cannot(verb, "")).await;
        checker.refuses(&[&rights], Ask::get(&format!("{CONFIG_MAPS}?{query}")), &cannot(verb, "")).await;
    }
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_takes_the_right_to_watch() {
    let mut checker = Checker::start().await;
    create(&checker.server, CONFIG_MAPS, &config_map("one")).await;
    create(&checker.server, WIDGETS, &widget("one")).await;
    let watch = format!("{CONFIG_MAPS}?watch=true");
    checker.refuses(&["list,get configmaps"], Ask::get(&watch), &cannot("watch", "")).await;
    checker.answers(&["watch configmaps"], Ask::get(&watch), 200).await;
    checker.refuses(&["watch configmaps"], Ask::get(CONFIG_MAPS), &cannot("list", "")).await;
    checker.refuses(&["list configmaps"], Ask::get(WATCHED), &cannot("watch", "")).await;
    checker.answers(&["watch configmaps"], Ask::get(WATCHED), 200).await;
    // A watch that the path asks for has the name in the path, and no other.
    let one = format!("{WATCHED}/one");
    checker.answers(&["watch configmaps:one"], Ask::get(&one), 200).await;
    let selected = format!("{WATCHED}?fieldSelector=metadata.name=one");
    checker.refuses(&["watch configmaps:one"], Ask::get(&selected), &cannot("watch", "")).await;
    // What the path says is no other verb with another method.
    checker.refuses(&["create configmaps"], Ask::post(WATCHED, config_map("x")), &cannot("watch", "")).await;
    checker.answers(&["watch,create configmaps"], Ask::post(WATCHED, config_map("x")), 405).await;
    checker.refuses(&["delete configmaps"], Ask::delete(&one), &cannot("watch", "one")).await;
    checker.answers(&["watch,delete configmaps"], Ask::delete(&one), 405).await;
    // An object is read, not watched, whatever the query says.
    for (resource, path) in [("configmaps", CONFIG_MAPS), ("widgets.example.com", WIDGETS)] {
        let one = format!("{path}/one?watch=true&resourceVersion=0");
        checker.answers(&[&format!("get {resource}")], Ask::get(&one), 200).await;
        checker.answers(&[&format!("watch {resource}")], Ask::get(&one), 403).await;
    }
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn deleting_a_collection_takes_its_own_verb_and_all_names() {
    let mut checker = Checker::start().await;
    create(&checker.server, CONFIG_MAPS, &config_map("one")).await;
    let selected = format!("{CONFIG_MAPS}?fieldSelector=metadata.name=one");
    for path in [CONFIG_MAPS, &selected] {
        checker.refuses(&["delete,list configmaps"], Ask::delete(path), &cannot("deletecollection", "")).await;
        let named = ["deletecollection configmaps:one"];
        checker.refuses(&named, Ask::delete(path), &cannot("deletecollection", "")).await;
    }
    let one = format!("{CONFIG_MAPS}/one");
    checker.refuses(&["deletecollection configmaps"], Ask::delete(&one), &cannot("delete", "one")).await;
    checker.answers(&["deletecollection configmaps"], Ask::delete(&selected), 200).await;
    checker.answers(&["delete configmaps:one"], Ask::delete(&one), 404).await;
    checker.answers(&["deletecollection widgets.example.com"], Ask::delete(WIDGETS), 200).await;
    checker.answers(&["delete widgets.example.com"], Ask::delete(WIDGETS), 403).await;
    checker.server.stop().await.unwrap();
}

#[tokio::test]
async fn paths_that_are_no_resource_take_rights_on_the_path() {
    let mut checker = Checker::start().await;
    let why = "forbidden: User \"USER\" cannot get path \"/metrics\"";
    checker.refuses(&["get configmaps"], Ask::get("/metrics"), why).await;
    checker.refuses(&["post /metrics"], Ask::get("/metrics"), why).await;
    checker.answers(&["get /metrics"], Ask::get("/metrics"), 200).await;
    checker.answers(&["get /metr*"], Ask::get("/metrics"), 200).await;
    // The path counts as it is meant, not as it is written.
    checker.refuses(&["get /%6Detrics"], Ask::get("/%6Detrics"), why).await;
    checker.answers(&["get /metrics"], Ask::get("/%6Detrics"), 200).await;
    // Everybody may ask what they may do, and not what others may.
    let group = "/apis/authorization.k8s.io/v1";
    let spec = serde_json::json!({"spec": {"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    checker.answers(&[], Ask::post(&format!("{group}/selfsubjectaccessreviews"), spec.clone()), 201).await;
    checker.answers(&[], Ask::post(&format!("{group}/subjectaccessreviews"), spec.clone()), 403).await;
    let rights = ["create subjectaccessreviews.authorization.k8s.io"];
    checker.answers(&rights, Ask::post(&format!("{group}/subjectaccessreviews"), spec), 201).await;
    checker.server.stop().await.unwrap();
}
