«header»//! Tests of «kind» objects.

use windlass_testing::Env;

use «types»;

#[windlass_testing::test(setup = crate::start)]
async fn becomes_ready_and_goes(env: Env) {
«create»
«wait»

    env.delete::<«type»>("sample").await;
    env.wait_gone::<«type»>("sample").await;
}
