//! Many writers of one object: each gets what it asked for, however many there are.

use std::sync::Arc;

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;
use windlass_store::{Durable, DurableOptions};

use crate::client::{apply, create, get, send, send_patch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server whose writes take time, so that others come in between.
async fn start() -> (Server, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Durable::open(directory.path().join("store"), DurableOptions::default()).unwrap();
    (Server::builder().store(Arc::new(store)).start().await.unwrap(), directory)
}

#[tokio::test]
async fn concurrent_applies_create_once_and_then_change() {
    let (server, _directory) = start().await;
    for round in 0..10 {
        let path = |n: usize| format!("{MAPS}/m{round}?fieldManager=m{n}");
        let body = |n: usize| {
            let (metadata, data) = (json!({"name": format!("m{round}")}), json!({format!("k{n}"): "v"}));
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        };
        let server = &server;
        let answers = join_all((0..8).map(|n| async move { apply(server, &path(n), &body(n)).await })).await;
        let codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
        assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1, "{codes:?}");
        assert_eq!(codes.iter().filter(|code| **code == 200).count(), 7, "{codes:?}");
        let stored = get(server, &format!("{MAPS}/m{round}")).await.body;
        assert_eq!(stored["data"].as_object().unwrap().len(), 8, "{stored}");
        assert_eq!(stored["metadata"]["managedFields"].as_array().unwrap().len(), 8);
    }
}

#[tokio::test]
async fn concurrent_puts_create_once_and_then_replace() {
    let (server, _directory) = start().await;
    let path = "/api/v1/namespaces/default/endpoints/e";
    let body = json!({"metadata": {"name": "e"}});
    let answers = join_all((0..8).map(|_| send(&server, Method::PUT, path, &body))).await;
    let codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
    assert!(codes.iter().all(|code| [200, 201].contains(code)), "{codes:?}");
}

#[tokio::test]
async fn patches_and_unconditional_updates_never_conflict() {
    let (server, _directory) = start().await;
    create(&server, MAPS, &json!({"metadata": {"name": "m"}, "data": {}})).await;
    let (server, path) = (&server, format!("{MAPS}/m"));
    let patch = async |n: usize| {
        let body = json!({"data": {format!("k{n}"): "v"}});
        let types = ["application/merge-patch+json", "application/strategic-merge-patch+json"];
        send_patch(server, &path, types[n % 2], &body).await
    };
    let replace = async || send(server, Method::PUT, &format!("{path}2"), &json!({"metadata": {"name": "m2"}})).await;
    create(server, MAPS, &json!({"metadata": {"name": "m2"}})).await;
    let patched = join_all((0..300).map(patch));
    let touched = join_all((0..100).map(|n| {
        let body = json!({"metadata": {"labels": {"n": n.to_string()}}});
        async move { send(server, Method::PATCH, &format!("{MAPS}/m2"), &body).await }
    }));
    let replaced = join_all((0..50).map(|_| replace()));
    let (patched, touched, replaced) = futures::join!(patched, touched, replaced);
    for answer in patched.iter().chain(&touched).chain(&replaced) {
        assert_eq!(answer.code, 200, "{}", answer.body);
    }
    let stored: Value = get(server, &path).await.body;
    assert_eq!(stored["data"].as_object().unwrap().len(), 300);
}

/// An object that comes and goes between the look and the write.
#[tokio::test]
async fn applies_and_puts_beside_deletions_never_find_that_it_exists() {
    let (server, _directory) = start().await;
    let server = &server;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}});
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let applying = join_all((0..8).map(|n| {
        let (path, body) = (format!("{MAPS}/m?fieldManager=m{n}"), &body);
        async move {
            for _ in 0..30 {
                let answer = apply(server, &path, body).await;
                assert!(matches!(answer.code, 200 | 201), "{}", answer.body);
            }
        }
    }));
    let putting = join_all((0..4).map(|_| async {
        for _ in 0..30 {
            let path = format!("{endpoints}/e");
            let answer = send(server, Method::PUT, &path, &json!({"metadata": {"name": "e"}})).await;
            assert!(matches!(answer.code, 200 | 201), "{}", answer.body);
        }
    }));
    let deleting = join_all([format!("{MAPS}/m"), format!("{endpoints}/e")].map(|path| async move {
        for _ in 0..150 {
            send(server, Method::DELETE, &path, &Value::Null).await;
        }
    }));
    futures::join!(applying, putting, deleting);
}

/// What is charged is let go of before anybody waits for a turn.
#[tokio::test]
async fn writers_that_are_charged_do_not_wait_for_each_other() {
    let (server, _directory) = start().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"services.nodeports": "10"}}});
    create(&server, "/api/v1/namespaces/default/resourcequotas", &quota).await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    create(&server, services, &service).await;
    let (server, path) = (&server, format!("{services}/s"));
    for round in 0..10 {
        let kind = if round % 2 == 0 { "NodePort" } else { "ClusterIP" };
        let patches = (0..8).map(|n| {
            let body = json!({"metadata": {"labels": {format!("l{n}"): round.to_string()}}, "spec": {"type": kind}});
            let path = &path;
            async move { send(server, Method::PATCH, path, &body).await }
        });
        for answer in join_all(patches).await {
            assert_eq!(answer.code, 200, "{}", answer.body);
        }
    }
}
