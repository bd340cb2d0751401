//! Webhooks, definitions of several versions.

use k8s_openapi::api::core::v1::ConfigMap;
use windlass::webhook::{Denied, Request, Validate, Warnings, Webhooks};
use windlass_testing::Env;

use crate::map;

struct NoData;

impl Validate<ConfigMap> for NoData {
    async fn validate_create(&self, map: &ConfigMap, _: &Request<ConfigMap>) -> Result<Warnings, Denied> {
        if map.data.is_some() { Err(Denied::new("no data here")) } else { Ok(Warnings::none()) }
    }
}

#[windlass_testing::test(bare)]
async fn webhooks_are_called_from_the_first_request_on(env: Env) {
    let start = async || {
        let webhooks = env.webhooks(Webhooks::new().validator::<ConfigMap>(NoData));
        env.run_ready(env.manager().webhooks(webhooks).build().expect("built")).await
    };
    let running = start().await;
    let mut full = map("full");
    full.data.get_or_insert_default().insert("a".into(), "b".into());
    let refused = env.client().create(&full).await.expect_err("refused").to_string();
    assert!(refused.contains("no data here"), "{refused}");
    env.client().create(&map("empty")).await.expect("created");
    // The next operator takes over from one that crashed.
    running.kill().await;
    start().await;
    let refused = env.client().create(&full).await.expect_err("refused").to_string();
    assert!(refused.contains("no data here"), "{refused}");
}
