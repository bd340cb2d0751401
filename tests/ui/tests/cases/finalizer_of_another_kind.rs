use std::sync::Arc;

use windlass::finalizer::{Finalize, Finalizer};
use windlass::k8s_openapi::api::core::v1::ConfigMap;
use windlass::kube::CustomResource;
use windlass::schemars::{self, JsonSchema};
use windlass::serde::{Deserialize, Serialize};
use windlass::{Context, Controller, Outcome};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced)]
#[kube(crates(
    kube_core = "windlass::kube::core",
    k8s_openapi = "windlass::k8s_openapi",
    schemars = "windlass::schemars",
    serde = "windlass::serde",
    serde_json = "windlass::serde_json"
))]
#[serde(crate = "windlass::serde")]
#[schemars(crate = "windlass::schemars")]
struct PetSpec {}

struct Store;

impl Finalize<Pet> for Store {
    async fn reconcile(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }

    async fn cleanup(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
        Ok(Outcome::Done)
    }
}

fn main() {
    let store = Finalizer::new("petstore.example.com/pet", Store);
    Controller::<ConfigMap>::new("settings").complete(store);
}
