//! `pods/resize`: what may change, and what not.

use http::Method;
use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, get, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"cpu": cpu, "memory": memory})
}

async fn resize(server: &Server, name: &str, change: impl FnOnce(&mut Value)) -> (u16, String) {
    let mut pod = get(server, &format!("{PODS}/{name}")).await.body;
    change(&mut pod["spec"]);
    let answer = send(server, Method::PUT, &format!("{PODS}/{name}/resize"), &pod).await;
    (answer.code, answer.message().to_owned())
}

#[tokio::test]
async fn a_resize_changes_cpu_and_memory_within_the_class() {
    let server = start().await;
    let requests = json!({"requests": amounts("1", "1Gi")});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "a", "image": "i", "resources": requests}, {"name": "b", "image": "i"}],
        "initContainers": [{"name": "i", "image": "i"}],
    }});
    create(&server, PODS, &pod).await;
    let invalid = |errors: &str| (422, format!("Pod \"p\" is invalid: {errors}"));

    let done = resize(&server, "p", |spec| spec["containers"][0]["resources"]["requests"]["cpu"] = json!("2")).await;
    assert_eq!(done, (200, String::new()));
    let now = get(&server, &format!("{PODS}/p")).await.body;
    assert_eq!(now["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");

    let class = resize(&server, "p", |spec| {
        let both = json!({"requests": amounts("1", "1Gi"), "limits": amounts("1", "1Gi")});
        for container in spec["containers"].as_array_mut().unwrap() {
            container["resources"] = both.clone();
        }
        spec["initContainers"][0]["resources"] = both;
    })
    .await;
    let words = "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing";
    assert_eq!(class, invalid(words));

    let removed = resize(&server, "p", |spec| {
        spec["containers"][0]["resources"]["requests"].as_object_mut().unwrap().remove("memory");
    })
    .await;
    let words = "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed";
    assert_eq!(removed, invalid(words));

    let renamed = resize(&server, "p", |spec| spec["containers"][1]["name"] = json!("c")).await;
    let words = "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize";
    assert_eq!(renamed, invalid(words));

    let more = resize(&server, "p", |spec| {
        spec["initContainers"].as_array_mut().unwrap().push(json!({"name": "j", "image": "i"}));
    })
    .await;
    assert_eq!(more, invalid("spec.initContainers: Forbidden: initContainers may not be added or removed on resize"));

    let other = resize(&server, "p", |spec| {
        spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] = json!("1Gi");
    })
    .await;
    assert_eq!(other, invalid("spec: Forbidden: only cpu and memory resources are mutable"));

    // What is no business of a resize is left as it was.
    let image = resize(&server, "p", |spec| spec["containers"][0]["image"] = json!("other")).await;
    assert_eq!(image, (200, String::new()));
    assert_eq!(get(&server, &format!("{PODS}/p")).await.body["spec"]["containers"][0]["image"], "i");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn pods_that_cannot_be_resized_say_so() {
    let server = start().await;
    let windows = json!({"metadata": {"name": "w"}, "spec": {
        "os": {"name": "windows"}, "containers": [{"name": "a", "image": "i"}],
    }});
    create(&server, PODS, &windows).await;
    let refused = resize(&server, "w", |_| ()).await;
    assert_eq!(refused, (422, "Pod \"w\" is invalid: []: Forbidden: windows pods cannot be resized".into()));

    let limits = json!({"limits": amounts("1", "1Gi")});
    let whole = json!({"metadata": {"name": "whole"}, "spec": {
        "resources": limits, "containers": [{"name": "a", "image": "i"}],
    }});
    create(&server, PODS, &whole).await;
    let removed = resize(&server, "whole", |spec| {
        spec.as_object_mut().unwrap().remove("resources");
    })
    .await;
    assert!(removed.1.contains("spec.resources: Forbidden: pod-level resources cannot be removed"), "{removed:?}");

    let status = json!({"status": {"containerStatuses": [{
        "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}},
    }]}});
    assert_eq!(send(&server, Method::PATCH, &format!("{PODS}/whole/status"), &status).await.code, 200);
    let unsupported = resize(&server, "whole", |_| ()).await;
    let words = "Pod \"whole\" is invalid: spec: Forbidden: Pod running on node without support for resize";
    assert_eq!(unsupported, (422, words.into()));
    server.stop().await.unwrap();
}
