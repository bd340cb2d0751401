use windlass::kube::api::DynamicObject;
use windlass::k8s_openapi::api::core::v1::ConfigMap;
use windlass::{Context, Controller, ObjectKey};

fn owner() {
    Controller::<ConfigMap>::new("settings").owns::<DynamicObject>();
}

fn controller() {
    Controller::<DynamicObject>::new("anything");
}

async fn read(key: ObjectKey, ctx: Context) {
    let _ = ctx.get::<DynamicObject>(&key).await;
}

fn main() {}
