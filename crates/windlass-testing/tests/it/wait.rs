//! Waits for objects.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PostParams};
use serde_json::{Value, json};
use windlass::ObjectKey;
use windlass_testing::{ConditionStatus, Env};

use crate::{failure, map};

fn deployment() -> Deployment {
    let deployment = json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    });
    serde_json::from_value(deployment).expect("a deployment")
}

#[windlass_testing::test(paused, bare)]
async fn a_wait_returns_what_it_waited_for(env: Env) {
    let key = ObjectKey::new("default", "a");
    let filled = async || {
        let found = env.wait_until::<ConfigMap>(&key, |map| map.data.is_some()).await;
        found.data.as_ref().expect("filled")["seen"].clone()
    };
    let fill = async || {
        env.client().create(&map("a")).await.expect("created");
        let fill = |map: &mut ConfigMap| _ = map.data.get_or_insert_default().insert("seen".into(), "yes".into());
        env.client().modify(&key, fill).await.expect("changed");
    };
    let (seen, ()) = futures::join!(filled(), fill());
    assert_eq!(seen, "yes");
    let ((), deleted) = futures::join!(env.wait_gone::<ConfigMap>(&key), env.client().delete::<ConfigMap>(&key));
    assert!(deleted.expect("deleted"));
}

#[windlass_testing::test(paused, bare)]
async fn an_object_missing_from_the_cache_is_not_yet_gone(env: Env) {
    env.wait_gone::<ConfigMap>(&ObjectKey::new("default", "a")).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(env.kube());
    for round in 0..20 {
        maps.create(&PostParams::default(), &map("a")).await.expect("created");
        let gone = std::cell::Cell::new(false);
        let wait = async {
            env.wait_gone::<ConfigMap>(&ObjectKey::new("default", "a")).await;
            gone.set(true);
        };
        let delete = async {
            tokio::task::yield_now().await;
            assert!(!gone.get(), "round {round}");
            maps.delete("a", &DeleteParams::default()).await.expect("deleted");
        };
        futures::join!(wait, delete);
    }
}

#[windlass_testing::test(paused, bare)]
async fn conditions_are_waited_for(env: Env) {
    let key = ObjectKey::of(&env.client().create(&deployment()).await.expect("created"));
    let write = async |status: &str| {
        let conditions = json!([{ "type": "Available", "status": status }]);
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        env.client().patch_status::<Deployment>(&key, &patch).await.expect("patched");
    };
    write("Unknown").await;
    env.wait_for_condition::<Deployment>(&key, "Available", ConditionStatus::Unknown).await;
    let available = async |status: bool| {
        let found = env.wait_for_condition::<Deployment>(&key, "Available", status).await;
        found.status.as_ref().and_then(|status| status.conditions.clone()).expect("conditions")[0].status.clone()
    };
    assert_eq!(futures::join!(available(true), write("True")).0, "True");
    assert_eq!(futures::join!(available(false), write("False")).0, "False");
}

#[test]
fn a_wait_that_times_out_shows_the_object() {
    let said = failure(async |env: Env| {
        env.client().create(&map("a")).await.expect("created");
        env.wait_until::<ConfigMap>(&ObjectKey::new("default", "a"), |map| map.data.is_some()).await;
    });
    let start = "timed out waiting for ConfigMap default/a to exist and fulfil the condition (at ";
    assert!(said.starts_with(start) && said.contains("wait.rs:"), "{said}");
    let (_, object) = said.split_once("; ConfigMap default/a is ").expect("the object");
    let object: Value = serde_json::from_str(object).expect("JSON");
    assert_eq!((&object["metadata"]["name"], &object["metadata"]["managedFields"]), (&json!("a"), &Value::Null));

    let said = failure(async |env: Env| {
        env.client().create(&map("a")).await.expect("created");
        env.wait_gone::<ConfigMap>(&ObjectKey::new("default", "a")).await;
    });
    assert!(said.starts_with("timed out waiting for ConfigMap default/a to be gone (at "), "{said}");
    let said = failure(async |env: Env| {
        env.wait_for_condition::<Deployment>(&ObjectKey::new("default", "web"), "Available", true).await;
    });
    let start = "timed out waiting for the condition Available of Deployment default/web to be True (at ";
    assert!(said.starts_with(start) && said.ends_with("; Deployment default/web does not exist"), "{said}");
    let said = failure(async |env: Env| {
        env.wait_until::<crate::Pet>(&ObjectKey::new("default", "thor"), |_| true).await;
    });
    assert!(said.ends_with("; objects of kind Pet cannot be listed; is the kind installed?"), "{said}");
}
