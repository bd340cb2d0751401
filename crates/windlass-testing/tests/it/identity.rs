//! Clients and managers with the permissions of a role.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use windlass::manager::ManagerError;
use windlass::rbac::Rules;
use windlass::{CachedClient, ObjectKey};
use windlass_testing::Env;

use crate::{Pet, map, pet, toys_of};

async fn is_forbidden(client: &CachedClient) -> bool {
    let read = client.live().get::<ConfigMap>(&ObjectKey::new("default", "a")).await;
    read.is_err_and(|error| error.status().is_some_and(|status| status.code == 403))
}

#[windlass_testing::test(paused, bare)]
async fn permissions_are_exactly_those_asked_for_last(env: Env) {
    let mut rules = Rules::default();
    rules.allow(Some("default"), "", ["configmaps"], ["create", "get"]);
    let client = env.client_as("limited", &rules).await;
    client.create(&map("a")).await.expect("allowed");
    assert!(!is_forbidden(&client).await);
    assert!(client.delete::<ConfigMap>(&ObjectKey::new("default", "a")).await.is_err(), "not allowed");
    let other = env.client_as("other", &Rules::default()).await;
    assert!(is_forbidden(&other).await);
    assert!(!is_forbidden(&client).await, "another account has its own permissions");

    env.client_as("limited", &Rules::default()).await;
    assert!(is_forbidden(&client).await, "the permissions were replaced");
}

#[windlass_testing::test(paused, bare)]
async fn a_manager_runs_with_the_rules_that_it_asks_for(env: Env) {
    env.install::<Pet>().await;
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("operators".into());
    env.client().create(&namespace).await.expect("created");
    let account = "operators/toys";
    let refused = env.run(toys_of(env.manager_as(account, &Rules::default()).await)).ended().await;
    let Err(ManagerError::Forbidden { missing }) = refused else { panic!("{refused:?}") };
    assert!(!missing.is_empty());

    let rules = toys_of(env.manager()).rules();
    env.run_ready(toys_of(env.manager_as(account, &rules).await)).await;
    let thor = env.client().create(&pet("thor", 1)).await.expect("created");
    env.wait_until::<ConfigMap>(&ObjectKey::new("default", "thor-toy-0"), |_| true).await;
    env.wait_for_event(&thor, "Played").await;
}

#[test]
fn rules_for_a_namespace_that_does_not_exist_are_refused() {
    let said = crate::failure(async |env: Env| {
        let mut rules = Rules::default();
        rules.allow(Some("nowhere"), "", ["configmaps"], ["get"]);
        env.client_as("limited", &rules).await;
    });
    assert!(said.starts_with("the account default/limited cannot be made: ") && said.contains("nowhere"), "{said}");
}
