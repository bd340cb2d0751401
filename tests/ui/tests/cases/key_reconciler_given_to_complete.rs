use windlass::k8s_openapi::api::core::v1::ConfigMap;
use windlass::{Context, Controller, ObjectKey, Outcome, ReconcileKey, controller};

struct Settings;

impl ReconcileKey for Settings {
    async fn reconcile(&self, _key: ObjectKey, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }
}

fn main() {
    Controller::<ConfigMap>::new("settings").complete(Settings);

    let function = controller::from_key_fn(|_key: ObjectKey, _ctx: Context| async { Ok(Outcome::Done) });
    Controller::<ConfigMap>::new("settings").complete(function);
}
