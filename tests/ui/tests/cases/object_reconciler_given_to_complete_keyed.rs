use std::sync::Arc;

use windlass::k8s_openapi::api::core::v1::ConfigMap;
use windlass::{Context, Controller, Outcome, Reconcile};

struct Settings;

impl Reconcile<ConfigMap> for Settings {
    async fn reconcile(&self, _map: Arc<ConfigMap>, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }
}

fn main() {
    Controller::<ConfigMap>::new("settings").complete_keyed(Settings);
}
