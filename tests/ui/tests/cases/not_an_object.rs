use std::sync::Arc;

use windlass::k8s_openapi::api::core::v1::ConfigMap;
use windlass::Context;

fn owned(map: ConfigMap, ctx: Context) {
    ctx.children(map);
}

fn shared(map: Arc<ConfigMap>, ctx: Context) {
    ctx.recorder().normal(map, "Read", "the settings are in use");
}

fn name(ctx: Context) {
    ctx.recorder().normal("settings", "Read", "the settings are in use");
}

fn optional(map: Option<Arc<ConfigMap>>, ctx: Context) {
    ctx.children(&map);
}

fn reference_to_reference(map: &Arc<ConfigMap>, ctx: Context) {
    ctx.children(&map);
}

fn main() {}
