use std::sync::Arc;

use windlass::Context;
use windlass::k8s_openapi::api::core::v1::ConfigMap;

async fn shared(map: Arc<ConfigMap>, ctx: Context) {
    let _ = ctx.client().update(&map).await;
}

fn main() {}
