// SPDX-License-Identifier: Apache-2.0

//! Tests of the whole operator, each on a cluster of its own in this process.

mod open_telemetry_collector;

use windlass::Manager;
use windlass::manager::ManagerBuilder;
use windlass_testing::{Env, Running};

/// The operator, on a cluster that has its kinds. It runs as a ServiceAccount with the roles that `windlass manifests`
/// writes: what it does without being allowed to fails here.
async fn start(env: &Env) -> Running {
    for definition in ::opentelemetry_collector_api::definitions().expect("the versions of each kind fit together") {
        env.install_crd(definition).await;
    }
    let rules = operator(env, env.manager()).rules();
    env.run_ready(operator(env, env.manager_as("controller-manager", &rules).await)).await
}

fn operator(_env: &Env, builder: ManagerBuilder) -> Manager {
    ::opentelemetry_collector::operator(builder).expect("controllers have different names")
}

#[windlass_testing::test(setup = start)]
async fn the_operator_starts(_env: Env) {}
