// SPDX-License-Identifier: Apache-2.0

//! Tests of OpenTelemetryCollector objects.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use windlass::{conditions, owner};
use windlass_testing::{Env, Fault, Requests};

use opentelemetry_collector_api::v1alpha1::{OpenTelemetryCollector, OpenTelemetryCollectorSpec};

const CONFIG: &str = "receivers:\n  otlp:\n    protocols:\n      grpc:\n      http:\n";
const ZIPKIN: &str = "receivers:\n  zipkin:\n";

fn simplest(config: &str) -> OpenTelemetryCollector {
    let spec = OpenTelemetryCollectorSpec { config: config.into(), replicas: 2, image: "collector:v1".into() };
    OpenTelemetryCollector::new("simplest", spec)
}

fn is_ready(collector: &OpenTelemetryCollector) -> bool {
    let generation = collector.metadata.generation.unwrap_or(0);
    collector.status.as_ref().is_some_and(|status| {
        conditions::is_true(&status.conditions, "Ready")
            && conditions::is_current(&status.conditions, "Ready", generation)
    })
}

fn reason(collector: &OpenTelemetryCollector) -> Option<&str> {
    Some(conditions::find(&collector.status.as_ref()?.conditions, "Ready")?.reason.as_str())
}

fn ports(service: &Service) -> Vec<i32> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    ports.map(|port| port.port).collect()
}

fn config_hash(deployment: &Deployment) -> Option<&String> {
    deployment
        .spec
        .as_ref()?
        .template
        .metadata
        .as_ref()?
        .annotations
        .as_ref()?
        .get("opentelemetry-operator-config/sha256")
}

#[windlass_testing::test(setup = crate::start)]
async fn a_collector_has_its_parts(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let collector = env.create(simplest(CONFIG)).await;
    let ready = env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    assert_eq!(ready.status.as_ref().map(|status| status.available_replicas), Some(2));
    env.wait_for_event(&collector, "Available").await;
    let map = env.get::<ConfigMap>("simplest-collector").await;
    assert_eq!(map.data.as_ref().and_then(|data| data.get("collector.yaml")).map(String::as_str), Some(CONFIG));
    let service = env.get::<Service>("simplest-collector").await;
    assert_eq!(ports(&service), [4317, 4318]);
    assert!(owner::is_controlled_by(&map, &collector) && owner::is_controlled_by(&service, &collector));

    env.delete::<OpenTelemetryCollector>("simplest").await;
    env.wait_gone::<Deployment>("simplest-collector").await;
    env.wait_gone::<Service>("simplest-collector").await;
    env.wait_gone::<ConfigMap>("simplest-collector").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn another_configuration_is_rolled_out(env: Env) {
    let _nodes = env.make_pods_ready("default");
    env.create(simplest(CONFIG)).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    let before = env.get::<Deployment>("simplest-collector").await;
    env.modify::<OpenTelemetryCollector>("simplest", |collector| collector.spec.config = ZIPKIN.into()).await;
    let after = env.wait_until::<Deployment>("simplest-collector", |it| config_hash(it) != config_hash(&before)).await;
    assert!(after.metadata.generation > before.metadata.generation);
    env.wait_until::<Service>("simplest-collector", |service| ports(service) == [9411]).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    // Receivers without ports need no Service.
    env.modify::<OpenTelemetryCollector>("simplest", |it| it.spec.config = "receivers:\n  hostmetrics:\n".into()).await;
    env.wait_gone::<Service>("simplest-collector").await;
}

#[windlass_testing::test(setup = crate::start)]
async fn a_configuration_that_cannot_be_read_leaves_what_runs(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let collector = env.create(simplest(CONFIG)).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    let before = env.get::<Deployment>("simplest-collector").await;
    env.modify::<OpenTelemetryCollector>("simplest", |it| it.spec.config = "receivers: [".into()).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", |it| reason(it) == Some("InvalidConfig")).await;
    env.wait_for_event(&collector, "InvalidConfig").await;
    assert_eq!(env.get::<Deployment>("simplest-collector").await.metadata.generation, before.metadata.generation);
    env.modify::<OpenTelemetryCollector>("simplest", |it| it.spec.config = CONFIG.into()).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn other_writers_are_corrected(env: Env) {
    env.create(simplest(CONFIG)).await;
    env.wait_until::<Deployment>("simplest-collector", |_| true).await;
    env.modify::<Deployment>("simplest-collector", |it| it.spec.get_or_insert_default().replicas = Some(7)).await;
    let corrected = |it: &Deployment| it.spec.as_ref().and_then(|spec| spec.replicas) == Some(2);
    env.wait_until::<Deployment>("simplest-collector", corrected).await;
    env.wait_until::<ConfigMap>("simplest-collector", |_| true).await;
    env.delete::<ConfigMap>("simplest-collector").await;
    env.wait_until::<ConfigMap>("simplest-collector", |_| true).await;
}

#[windlass_testing::test]
async fn a_crash_between_two_parts_is_made_good(env: Env) {
    let operator = crate::start(&env).await;
    let _nodes = env.make_pods_ready("default");
    let fault = env.fail(Requests::writes_of::<Deployment>()).with(Fault::timeout());
    env.create(simplest(CONFIG)).await;
    env.wait_until::<ConfigMap>("simplest-collector", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
}

#[windlass_testing::test(setup = crate::start)]
async fn failing_requests_are_tried_again(env: Env) {
    let _nodes = env.make_pods_ready("default");
    let failing = env.fail(Requests::writes_of::<Service>()).times(2).with(Fault::status(500));
    let conflicts = env.fail(Requests::writes_of::<OpenTelemetryCollector>()).times(2).with(Fault::conflict());
    env.create(simplest(CONFIG)).await;
    env.restart_server().await;
    env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    assert_eq!((failing.hits(), conflicts.hits()), (2, 2));
}

#[windlass_testing::test(setup = crate::start)]
async fn conflicting_writers_lose_nothing(env: Env) {
    let _nodes = env.make_pods_ready("default");
    // A second operator reconciles the collector as well, while somebody else writes it and its parts all the time.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(simplest(CONFIG)).await;
    env.wait_until::<Deployment>("simplest-collector", |_| true).await;
    for round in 1..=10 {
        let theirs = || ("round".to_owned(), round.to_string());
        env.modify::<OpenTelemetryCollector>("simplest", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            it.spec.config = if round % 2 == 0 { ZIPKIN.into() } else { CONFIG.into() };
        })
        .await;
        env.modify::<ConfigMap>("simplest-collector", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            it.data.get_or_insert_default().insert("collector.yaml".into(), "receivers:\n".into());
        })
        .await;
        env.modify::<Deployment>("simplest-collector", |it| {
            it.metadata.labels.get_or_insert_default().extend([theirs()]);
            it.spec.get_or_insert_default().replicas = Some(7);
        })
        .await;
    }
    let config = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["collector.yaml"] == ZIPKIN);
    let map = env.wait_until::<ConfigMap>("simplest-collector", config).await;
    let corrected = |it: &Deployment| it.spec.as_ref().and_then(|spec| spec.replicas) == Some(2);
    let deployment = env.wait_until::<Deployment>("simplest-collector", corrected).await;
    let collector = env.wait_until::<OpenTelemetryCollector>("simplest", is_ready).await;
    for labels in [&map.metadata.labels, &deployment.metadata.labels, &collector.metadata.labels] {
        assert_eq!(labels.as_ref().expect("labels")["round"], "10");
    }
    env.wait_until::<Service>("simplest-collector", |service| ports(service) == [9411]).await;
}

#[windlass_testing::test]
async fn deletes_and_creates_while_nobody_reconciles_are_caught_up(env: Env) {
    let operator = crate::start(&env).await;
    let old = env.create(simplest(CONFIG)).await;
    let before = env.wait_until::<Deployment>("simplest-collector", |_| true).await;
    operator.kill().await;
    env.delete::<OpenTelemetryCollector>(&old).await;
    let new = env.create(simplest(ZIPKIN)).await;
    env.run_ready(crate::operator(&env, env.manager())).await;
    // The parts of the old collector go, and the new one gets its own under the same names.
    let owned = |it: &Deployment| it.metadata.uid != before.metadata.uid && owner::is_controlled_by(it, &new);
    env.wait_until::<Deployment>("simplest-collector", owned).await;
    let service = |it: &Service| ports(it) == [9411] && owner::is_controlled_by(it, &new);
    env.wait_until::<Service>("simplest-collector", service).await;
    env.delete::<OpenTelemetryCollector>(&new).await;
    env.wait_gone::<OpenTelemetryCollector>("simplest").await;
    env.wait_gone::<Deployment>("simplest-collector").await;
    env.wait_gone::<Service>("simplest-collector").await;
    env.wait_gone::<ConfigMap>("simplest-collector").await;
}
