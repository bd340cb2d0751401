use windlass::client::Objects;
use windlass::k8s_openapi::api::core::v1::{ConfigMap, Secret};
use windlass::kube::Client;
use windlass::kube::api::DynamicObject;
use windlass::{Context, Draft};

fn client_of_kube(mut draft: Draft<ConfigMap>, client: Client) {
    draft.commit(&client);
}

fn another_kind(mut draft: Draft<ConfigMap>, secrets: Objects<Secret>) {
    draft.commit(&secrets);
}

fn kind_known_at_run_time(mut draft: Draft<DynamicObject>, ctx: Context) {
    draft.commit(&ctx);
}

fn main() {}
