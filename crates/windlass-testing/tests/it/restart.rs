//! The API server restarts.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use windlass::ObjectKey;
use windlass::rbac::Rules;
use windlass_testing::{Env, Fault, Requests};

use crate::faults::{is_marked, marking};
use crate::{Pet, pet, toys};

fn version(object: &impl kube::ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).expect("a resource version")
}

#[windlass_testing::test(paused)]
async fn operators_and_controllers_go_on_after_a_restart(env: Env) {
    env.install::<Pet>().await;
    env.run_ready(toys(&env)).await;
    let thor = env.client().create(&pet("thor", 1)).await.expect("created");
    let toy = |name: &str| ObjectKey::new("default", format!("{name}-toy-0"));
    env.wait_until::<ConfigMap>(&toy("thor"), |_| true).await;

    env.restart_server().await;
    let odin = env.client().create(&pet("odin", 1)).await.expect("created");
    assert!(version(&odin) > version(&thor), "resource versions go on");
    env.wait_until::<ConfigMap>(&toy("odin"), |_| true).await;
    // The garbage collector runs again.
    env.client().delete::<Pet>(&ObjectKey::of(&thor)).await.expect("deleted");
    env.wait_gone::<ConfigMap>(&toy("thor")).await;
}

#[windlass_testing::test(paused, bare)]
async fn a_restart_breaks_connections(env: Env) {
    let maps: Api<ConfigMap> = Api::default_namespaced(env.kube());
    env.run_ready(marking(&env)).await;
    is_marked(&env, "a").await;
    let fault = env.fail(Requests::of::<ConfigMap>().verbs(["list"])).times(1).with(Fault::timeout());
    let under_way = tokio::spawn({
        let maps = maps.clone();
        async move { maps.list(&ListParams::default()).await }
    });
    fault.hit(1).await;
    let watches = env.fail(Requests::watches_of::<ConfigMap>()).with(Fault::delay(std::time::Duration::ZERO));
    let all = ListParams::default();
    let ((), meanwhile) = futures::join!(env.restart_server(), maps.list(&all));
    let refused = meanwhile.expect_err("refused").to_string();
    assert!(refused.contains("connection refused"), "{refused}");
    assert!(under_way.await.expect("joined").is_err(), "the request under way failed");
    watches.hit(1).await;
    is_marked(&env, "b").await;
}

#[windlass_testing::test(paused, bare)]
async fn accounts_and_their_tokens_survive_a_restart(env: Env) {
    let mut rules = Rules::default();
    rules.allow(Some("default"), "", ["configmaps"], ["get"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(env.kube_as("reader", &rules).await);
    env.restart_server().await;
    assert!(maps.get_opt("a").await.expect("allowed").is_none());
    assert!(maps.list(&ListParams::default()).await.is_err(), "not allowed");
}
