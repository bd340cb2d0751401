// SPDX-License-Identifier: Apache-2.0

//! Tests of the whole operator, each on a cluster of its own in this process, and of the pet store.

mod client;
mod defects;
mod durability;
mod grpc;
mod pet;
mod serving;
mod versions;

use std::time::Duration;

use petstore::controller::pet::Timing;
use petstore::service::client::StoreClient;
use windlass::Manager;
use windlass::manager::ManagerBuilder;
use windlass_testing::{Env, Running};

use serving::Serving;

/// Delays that a test does not notice.
const TIMING: Timing = Timing {
    probe: Duration::from_millis(20),
    resync: Duration::from_secs(3600),
    first_retry: Duration::from_millis(5),
    last_retry: Duration::from_millis(50),
};

/// A pet store, and the operator on a cluster that has its kinds. It runs as a ServiceAccount with the roles that
/// `windlass manifests` writes: what it does without being allowed to fails here.
async fn start(env: &Env) -> (Serving, Running) {
    install(env).await;
    let serving = Serving::start().await;
    let rules = operator(env, env.manager(), serving.client(), TIMING).rules();
    let manager = env.manager_as("controller-manager", &rules).await;
    let running = env.run_ready(operator(env, manager, serving.client(), TIMING)).await;
    (serving, running)
}

/// The kinds of the operator.
async fn install(env: &Env) {
    for definition in ::petstore_api::definitions().expect("the versions of each kind fit together") {
        env.install_crd(definition).await;
    }
}

/// One more operator.
async fn start_again(env: &Env, store: StoreClient, timing: Timing) -> Running {
    env.run_ready(operator(env, env.manager(), store, timing)).await
}

fn operator(env: &Env, builder: ManagerBuilder, store: StoreClient, timing: Timing) -> Manager {
    let builder = builder.webhooks(env.webhooks(::petstore::webhook::webhooks()));
    ::petstore::operator(builder, store, timing).expect("controllers have different names")
}

#[windlass_testing::test(setup = start)]
async fn the_operator_starts(_env: Env) {}
