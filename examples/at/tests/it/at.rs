// SPDX-License-Identifier: Apache-2.0

//! Tests of At objects, on a cluster with a simulated node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use windlass::client::options::ListOptions;
use windlass::owner;
use windlass_testing::{Env, Fault, Requests};

use at_api::v1alpha1::{At, AtSpec, Phase};

const LONG_AGO: &str = "2019-07-03T02:00:00Z";

/// An At whose command takes a second on a simulated node.
fn example(name: &str, schedule: impl ToString) -> At {
    let spec = AtSpec { schedule: schedule.to_string(), command: "echo YAY".into(), ..AtSpec::default() };
    let mut at = At::new(name, spec);
    at.metadata.annotations = Some([("simulation.windlass.dev/run-time".into(), "1s".into())].into());
    at
}

fn reason(at: &At) -> Option<&str> {
    Some(at.status.as_ref()?.conditions.first()?.reason.as_str())
}

async fn wait_for_reason(env: &Env, name: &str, expected: &str) -> At {
    let at = env.wait_until::<At>(name, |at| reason(at) == Some(expected)).await;
    (*at).clone()
}

async fn pods(env: &Env) -> Vec<Pod> {
    env.client().live().list_with::<Pod>(ListOptions::default().namespace("default")).await.expect("pods")
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_command_runs_when_its_time_has_come(env: Env) {
    let soon = Timestamp::now() + SignedDuration::from_hours(1);
    env.create(example("soon", soon)).await;
    let waiting = wait_for_reason(&env, "soon", "Scheduled").await;
    assert_eq!(waiting.status.expect("a status").phase, Phase::Pending);
    assert!(pods(&env).await.is_empty());

    env.advance(Duration::from_secs(3600)).await;
    let done = wait_for_reason(&env, "soon", "Succeeded").await;
    assert_eq!(done.status.as_ref().expect("a status").phase, Phase::Done);
    let pods = pods(&env).await;
    assert_eq!(pods.len(), 1);
    assert!(owner::is_controlled_by(&pods[0], &done));
    let command = pods[0].spec.as_ref().and_then(|spec| spec.containers[0].command.clone());
    assert_eq!(command, Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), "echo YAY".to_owned()]));
    for event in ["Scheduled", "Running", "Succeeded"] {
        env.wait_for_event(&done, event).await;
    }
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_missed_schedule_runs_late_unless_there_is_a_deadline(env: Env) {
    env.create(example("late", LONG_AGO)).await;
    wait_for_reason(&env, "late", "Succeeded").await;

    let mut at = example("too-late", LONG_AGO);
    at.spec.starting_deadline_seconds = Some(600);
    env.create(at).await;
    let missed = wait_for_reason(&env, "too-late", "MissedSchedule").await;
    assert_eq!(missed.status.expect("a status").phase, Phase::Done);
    assert_eq!(pods(&env).await.len(), 1);
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_time_that_cannot_be_read_is_said_and_can_be_mended(env: Env) {
    let at = env.create(example("bad", "tomorrow")).await;
    let bad = wait_for_reason(&env, "bad", "InvalidSchedule").await;
    assert_eq!(bad.status.expect("a status").phase, Phase::Pending);
    env.wait_for_event(&at, "InvalidSchedule").await;

    env.modify::<At>("bad", |at| at.spec.schedule = LONG_AGO.into()).await;
    wait_for_reason(&env, "bad", "Succeeded").await;
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn edits_count_until_the_command_has_started(env: Env) {
    let later = Timestamp::now() + SignedDuration::from_hours(2);
    env.create(example("edited", later)).await;
    wait_for_reason(&env, "edited", "Scheduled").await;
    env.modify::<At>("edited", |at| {
        at.spec.schedule = LONG_AGO.into();
        at.spec.command = "echo edited".into();
    })
    .await;
    wait_for_reason(&env, "edited", "Succeeded").await;
    let command = pods(&env).await[0].spec.as_ref().and_then(|spec| spec.containers[0].command.clone());
    assert_eq!(command.and_then(|words| words.last().cloned()).as_deref(), Some("echo edited"));

    let mut done = env.get::<At>("edited").await;
    done.spec.command = "echo too late".into();
    let refused = env.client().update(&done).await.expect_err("the command has run");
    assert!(refused.is_invalid() && refused.to_string().contains("the command has started"), "{refused}");
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_command_that_fails_is_shown(env: Env) {
    let mut at = example("failing", LONG_AGO);
    at.metadata.annotations.get_or_insert_default().insert("simulation.windlass.dev/exit-code".into(), "3".into());
    let at = env.create(at).await;
    let failed = wait_for_reason(&env, "failing", "CommandFailed").await;
    assert!(failed.status.expect("a status").conditions[0].message.contains("exit code 3"));
    env.wait_for_event(&at, "CommandFailed").await;
}

#[windlass_testing::test(paused, setup = crate::start)]
async fn a_deleted_pod_is_not_created_again(env: Env) {
    env.create(example("once", LONG_AGO)).await;
    wait_for_reason(&env, "once", "Running").await;
    env.delete::<Pod>("once-pod").await;
    let done = wait_for_reason(&env, "once", "PodDeleted").await;
    assert_eq!(done.status.expect("a status").phase, Phase::Done);
    assert!(pods(&env).await.is_empty());
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_pod_of_somebody_else_is_left_alone(env: Env) {
    let mut taken = Pod::default();
    taken.metadata.name = Some("blocked-pod".into());
    taken.spec = Some(
        windlass::serde_json::from_value(windlass::serde_json::json!({"containers": [{"name": "c", "image": "i"}]}))
            .expect("a spec"),
    );
    let taken = env.create(taken).await;
    let at = env.create(example("blocked", LONG_AGO)).await;
    wait_for_reason(&env, "blocked", "PodExists").await;
    env.wait_for_event(&at, "PodExists").await;
    assert_eq!(env.get::<Pod>("blocked-pod").await.metadata.uid, taken.metadata.uid);

    env.delete::<Pod>("blocked-pod").await;
    wait_for_reason(&env, "blocked", "Succeeded").await;
}

#[windlass_testing::test(nodes = 1, paused)]
async fn a_crash_between_pod_and_status_leaves_one_pod(env: Env) {
    let operator = crate::start(&env).await;
    // The Pod is created, and then the operator never gets to say so.
    let fault = env.fail(Requests::writes_of::<At>()).with(Fault::timeout());
    let at = env.create(example("crash", LONG_AGO)).await;
    let pod = env.wait_until::<Pod>("crash-pod", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    drop(fault);
    assert_eq!(env.get::<At>("crash").await.status, None);

    env.run_ready(crate::operator(&env, env.manager())).await;
    wait_for_reason(&env, "crash", "Succeeded").await;
    let pods = pods(&env).await;
    assert_eq!((pods.len(), &pods[0].metadata.uid), (1, &pod.metadata.uid));
    assert!(owner::is_controlled_by(&pods[0], &at));
}

/// Starts an At, and kills the operator after the Pod is created and before the status says so.
async fn crash_before_the_status(env: &Env) -> At {
    let operator = crate::start(env).await;
    let fault = env.fail(Requests::writes_of::<At>()).with(Fault::timeout());
    let at = env.create(example("crash", LONG_AGO)).await;
    env.wait_until::<Pod>("crash-pod", |_| true).await;
    fault.hit(1).await;
    operator.kill().await;
    at
}

#[windlass_testing::test(paused)]
async fn a_pod_deleted_before_the_status_is_not_replaced(env: Env) {
    crash_before_the_status(&env).await;
    env.delete::<Pod>("crash-pod").await;
    assert_eq!(env.get::<At>("crash").await.status, None);

    env.run_ready(crate::operator(&env, env.manager())).await;
    wait_for_reason(&env, "crash", "PodDeleted").await;
    env.wait_gone::<Pod>("crash-pod").await;
    // Another At that is reconciled after it: nothing is to come.
    env.create(example("next", LONG_AGO)).await;
    wait_for_reason(&env, "next", "Running").await;
    let pods = pods(&env).await;
    assert_eq!(pods.iter().map(|pod| pod.metadata.name.as_deref()).collect::<Vec<_>>(), [Some("next-pod")]);
}

#[windlass_testing::test(paused)]
async fn a_pod_that_nobody_recorded_goes_with_its_at(env: Env) {
    crash_before_the_status(&env).await;
    env.delete::<At>("crash").await;
    env.wait_until::<Pod>("crash-pod", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.wait_gone::<Pod>("crash-pod").await;
}

#[windlass_testing::test(paused)]
async fn an_at_that_comes_back_gets_a_pod_of_its_own(env: Env) {
    let first = crash_before_the_status(&env).await;
    env.delete::<At>("crash").await;
    env.wait_until::<Pod>("crash-pod", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let second = env.create(example("crash", LONG_AGO)).await;
    env.run_ready(crate::operator(&env, env.manager())).await;
    let pod = env.wait_until::<Pod>("crash-pod", |pod| owner::is_controlled_by(pod, &second)).await;
    assert!(!owner::is_controlled_by(&*pod, &first));
    wait_for_reason(&env, "crash", "Running").await;
    env.wait_until::<Pod>("crash-pod", |pod| pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)).await;
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn answers_that_are_lost_and_conflicts_leave_one_pod(env: Env) {
    // The server creates the Pod, and the operator takes it for a failure.
    let lost = env.fail(Requests::writes_of::<Pod>()).times(1).with(Fault::lose_answer());
    let conflicts = env.fail(Requests::writes_of::<At>()).times(3).with(Fault::conflict());
    env.create(example("lost", LONG_AGO)).await;
    wait_for_reason(&env, "lost", "Succeeded").await;
    assert_eq!((lost.hits(), conflicts.hits()), (1, 3));
    assert_eq!(pods(&env).await.len(), 1);
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn conflicting_writers_leave_one_pod(env: Env) {
    // A second operator reconciles the At as well, while somebody else writes the At and its Pod all the time.
    env.run_ready(crate::operator(&env, env.manager())).await;
    env.create(example("contested", LONG_AGO)).await;
    let pod = env.wait_until::<Pod>("contested-pod", |_| true).await;
    for round in 0..20 {
        let theirs = || Some([("round".to_owned(), round.to_string())].into());
        env.modify::<At>("contested", |at| at.metadata.labels = theirs()).await;
        env.modify::<Pod>("contested-pod", |pod| pod.metadata.labels = theirs()).await;
    }
    let done = wait_for_reason(&env, "contested", "Succeeded").await;
    assert_eq!(done.metadata.labels.expect("labels")["round"], "19");
    let left =
        env.wait_until::<Pod>("contested-pod", |pod| pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)).await;
    assert_eq!(left.metadata.labels.as_ref().expect("labels")["round"], "19");
    assert_eq!((pods(&env).await.len(), &left.metadata.uid), (1, &pod.metadata.uid));
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn a_server_that_restarts_is_waited_for(env: Env) {
    let soon = Timestamp::now() + SignedDuration::from_mins(5);
    env.create(example("soon", soon)).await;
    wait_for_reason(&env, "soon", "Scheduled").await;
    env.restart_server().await;
    env.advance(Duration::from_secs(300)).await;
    wait_for_reason(&env, "soon", "Succeeded").await;
}

#[windlass_testing::test(nodes = 1, paused, setup = crate::start)]
async fn the_pod_goes_with_its_at(env: Env) {
    let at = env.create(example("gone", LONG_AGO)).await;
    wait_for_reason(&env, "gone", "Succeeded").await;
    env.delete::<At>(&at).await;
    env.wait_gone::<Pod>("gone-pod").await;
}
