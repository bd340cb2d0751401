«header»//! Tests of «kind» objects.

use windlass::ObjectKey;
use windlass_testing::Env;

use «types»;

#[windlass_testing::test]
async fn becomes_ready_and_goes(env: Env) {
    crate::start(&env).await;
%% if namespaced
    let key = ObjectKey::new("default", "sample");
%% else
    let key = ObjectKey::cluster("sample");
%% endif
    let «'mut ' if namespaced else ''»sample = «type»::new("sample", «spec»::default());
%% if namespaced
    sample.metadata.namespace = Some("default".into());
%% endif
    env.client().create(&sample).await.expect("the sample is valid");
    env.wait_for_condition::<«type»>(&key, "Ready", true).await;

    env.client().delete::<«type»>(&key).await.expect("it may be deleted");
    env.wait_gone::<«type»>(&key).await;
}
