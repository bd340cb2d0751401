«header»//! Tests of the whole operator, each on a cluster of its own in this process.

%% for test in tests
mod «test»;
%% endfor
%% if tests

%% endif
use windlass::Manager;
use windlass::manager::ManagerBuilder;
use windlass_testing::Env;

/// The operator, on a cluster that has its kinds. It runs as a ServiceAccount with the roles that `windlass manifests`
/// writes: what it does without being allowed to fails here.
async fn start(env: &Env) {
«definitions»
        env.install_crd(definition).await;
    }
    let rules = operator(env, env.manager()).rules();
    env.run_ready(operator(env, env.manager_as("controller-manager", &rules).await)).await;
}

%% if webhooks
fn operator(env: &Env, builder: ManagerBuilder) -> Manager {
    let builder = builder.webhooks(env.webhooks(::«crate»::webhook::webhooks()));
%% else
fn operator(_env: &Env, builder: ManagerBuilder) -> Manager {
%% endif
%% if namespaced
    let builder = builder.namespaces(["default"]);
%% endif
    ::«crate»::operator(builder).expect("controllers have different names")
}

#[windlass_testing::test(setup = start)]
async fn the_operator_starts(_env: Env) {}
