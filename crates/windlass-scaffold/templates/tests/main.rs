«header»//! Tests of the whole operator, each on a cluster of its own in this process.

%% for test in tests
mod «test»;
%% endfor
%% if tests

%% endif
use windlass::Manager;
use windlass::manager::ManagerBuilder;
use windlass_testing::Env;

/// The operator, on a cluster that has its kinds.
async fn start(env: &Env) {
    for definition in ::«crate»_api::definitions().expect("the versions of each kind fit together") {
        env.install_crd(definition).await;
    }
%% if webhooks
    let builder = env.manager().webhooks(env.webhooks(::«crate»::webhook::webhooks()));
%% else
    let builder = env.manager();
%% endif
    env.run_ready(operator(builder)).await;
}

fn operator(builder: ManagerBuilder) -> Manager {
    ::«crate»::operator(builder).expect("controllers have different names")
}

#[windlass_testing::test(setup = start)]
async fn the_operator_starts(_env: Env) {}
