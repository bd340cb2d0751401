//! Jobs run pods to their end. No node runs them here: the tests say how pods ended.

use k8s_openapi::api::batch::v1::{CronJob, Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

use crate::objects::{self, LONG, create, end_pod as end, merge, namespaced, until, until_gone};

fn job(spec: &Value) -> Value {
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never",
    }}}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    job
}

async fn list(pods: &Api<Pod>) -> Vec<Pod> {
    pods.list(&ListParams::default().labels("job-name=j")).await.unwrap().items
}

async fn until_pods(pods: &Api<Pod>, wanted: impl Fn(&[Pod]) -> bool) -> Vec<Pod> {
    objects::until_pods(pods, "job-name=j", wanted).await
}

fn is_pending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending")
}

async fn until_status(jobs: &Api<Job>, wanted: impl Fn(&JobStatus) -> bool + Send + Sync) {
    until(jobs, "j", |job| job.and_then(|job| job.status.as_ref()).is_some_and(&wanted)).await;
}

fn reason<'a>(status: &'a JobStatus, type_: &str) -> Option<&'a str> {
    let condition = status.conditions.iter().flatten().find(|c| c.type_ == type_ && c.status == "True")?;
    condition.reason.as_deref()
}

#[tokio::test]
async fn a_job_completes_when_enough_pods_succeeded() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({"completions": 3, "parallelism": 2}))).await;
    for round in 1..=3 {
        let made = until_pods(&pods, |pods| pods.iter().any(is_pending)).await;
        assert!(made.iter().filter(|pod| is_pending(pod)).count() <= 2);
        let pod = made.iter().find(|pod| is_pending(pod)).unwrap();
        assert_eq!(pod.finalizers(), ["batch.kubernetes.io/job-tracking"]);
        end(&pods, pod, "Succeeded").await;
        until_status(&jobs, |status| status.succeeded == Some(round)).await;
    }
    until_status(&jobs, |status| reason(status, "Complete") == Some("CompletionsReached")).await;
    let status = jobs.get("j").await.unwrap().status.unwrap();
    assert_eq!((status.active, status.ready, status.terminating), (None, Some(0), Some(0)));
    assert!(status.completion_time.is_some());
    assert!(list(&pods).await.iter().all(|pod| pod.finalizers().is_empty()));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_fails_after_too_many_failures() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({"backoffLimit": 0, "parallelism": 2, "completions": 2}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 2).await;
    end(&pods, &made[0], "Failed").await;
    until_status(&jobs, |status| reason(status, "Failed") == Some("BackoffLimitExceeded")).await;
    // The one that was still running is gone and counted.
    assert_eq!(jobs.get("j").await.unwrap().status.unwrap().failed, Some(2));
    assert_eq!(list(&pods).await.len(), 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn an_indexed_job_completes_each_index() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}))).await;
    let mut made = until_pods(&pods, |pods| pods.len() == 3).await;
    let index = |pod: &Pod| pod.labels()["batch.kubernetes.io/job-completion-index"].clone();
    made.sort_by_key(index);
    assert_eq!(made.iter().map(index).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(made[1].name_any().starts_with("j-1-"));
    let spec = made[1].spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("j-1"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    end(&pods, &made[0], "Succeeded").await;
    end(&pods, &made[2], "Succeeded").await;
    until_status(&jobs, |status| status.completed_indexes.as_deref() == Some("0,2")).await;
    end(&pods, &made[1], "Succeeded").await;
    until_status(&jobs, |status| {
        status.completed_indexes.as_deref() == Some("0-2") && reason(status, "Complete").is_some()
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_suspended_job_has_no_pods_and_can_be_resumed() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({}))).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    merge(&jobs, "j", json!({"spec": {"suspend": true}})).await;
    until_pods(&pods, <[Pod]>::is_empty).await;
    until_status(&jobs, |status| reason(status, "Suspended") == Some("JobSuspended")).await;
    merge(&jobs, "j", json!({"spec": {"suspend": false}})).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    until_status(&jobs, |status| reason(status, "Suspended").is_none() && status.active == Some(1)).await;
    assert_eq!(jobs.get("j").await.unwrap().status.unwrap().failed, None);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_deleted_job_takes_its_pods_along() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({}))).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    jobs.delete("j", &DeleteParams::background()).await.unwrap();
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_orphaned_by_its_job_loses_the_finalizer() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    jobs.delete("j", &DeleteParams::orphan()).await.unwrap();
    // Two controllers do this, in either order.
    let is_free = |pod: &Pod| pod.finalizers().is_empty() && pod.owner_references().is_empty();
    until(&pods, &made[0].name_any(), |pod| pod.is_some_and(is_free)).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_finished_job_goes_after_its_time_to_live() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({"ttlSecondsAfterFinished": 0}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    end(&pods, &made[0], "Succeeded").await;
    until_gone(&jobs, "j").await;
    until_pods(&pods, <[Pod]>::is_empty).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_cron_job_starts_jobs_on_schedule() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (crons, jobs): (Api<CronJob>, Api<Job>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let cron = json!({"metadata": {"name": "c"}, "spec": {
        "schedule": "@every 1s", "concurrencyPolicy": "Forbid", "jobTemplate": {
            "metadata": {"labels": {"made": "by-cron"}}, "spec": job(&json!({}))["spec"],
        },
    }});
    create(&crons, cron).await;
    until(&crons, "c", |cron| {
        let status = cron.and_then(|cron| cron.status.as_ref());
        status.is_some_and(|status| status.active.is_some() && status.last_schedule_time.is_some())
    })
    .await;
    let made = jobs.list(&ListParams::default().labels("made=by-cron")).await.unwrap().items;
    assert_eq!(made.len(), 1);
    assert!(made[0].name_any().starts_with("c-"));
    assert!(made[0].annotations().contains_key("batch.kubernetes.io/cronjob-scheduled-timestamp"));
    assert_eq!(made[0].owner_references()[0].kind, "CronJob");
    merge(&crons, "c", json!({"spec": {"suspend": true}})).await;
    let pods: Api<Pod> = namespaced(&client, "default");
    let pod = tokio::time::timeout(LONG, async {
        loop {
            let found = pods.list(&ListParams::default()).await.unwrap().items;
            if let Some(pod) = found.into_iter().next() {
                return pod;
            }
            tokio::task::yield_now().await;
        }
    });
    end(&pods, &pod.await.expect("a pod"), "Succeeded").await;
    until(&crons, "c", |cron| {
        let status = cron.and_then(|cron| cron.status.as_ref());
        status.is_some_and(|status| status.active.is_none() && status.last_successful_time.is_some())
    })
    .await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_has_no_more_successes_than_completions_over_restarts() {
    let mut cluster = Cluster::start().await.unwrap();
    let jobs: Api<Job> = namespaced(&cluster.client(), "default");
    create(&jobs, job(&json!({"completions": 6, "parallelism": 3}))).await;
    for _ in 0..6 {
        let pods: Api<Pod> = namespaced(&cluster.client(), "default");
        let made = until_pods(&pods, |pods| pods.iter().any(is_pending)).await;
        end(&pods, made.iter().find(|pod| is_pending(pod)).unwrap(), "Succeeded").await;
        cluster = cluster.restart().await.unwrap();
    }
    let jobs: Api<Job> = namespaced(&cluster.client(), "default");
    until_status(&jobs, |status| reason(status, "Complete").is_some()).await;
    assert_eq!(jobs.get("j").await.unwrap().status.unwrap().succeeded, Some(6));
    let pods: Api<Pod> = namespaced(&cluster.client(), "default");
    let all = list(&pods).await;
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|pod| pod.finalizers().is_empty()));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_success_policy_ends_a_job_early() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let spec = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]},
    });
    create(&jobs, job(&spec)).await;
    let made = until_pods(&pods, |pods| pods.len() == 3).await;
    let leader = made.iter().find(|pod| pod.name_any().starts_with("j-2-")).unwrap();
    end(&pods, leader, "Succeeded").await;
    until_status(&jobs, |status| reason(status, "Complete") == Some("SuccessPolicy")).await;
    let status = jobs.get("j").await.unwrap().status.unwrap();
    assert_eq!(reason(&status, "SuccessCriteriaMet"), Some("SuccessPolicy"));
    assert_eq!((status.succeeded, status.failed), (Some(1), None), "pods that were deleted have not failed");
    until_pods(&pods, |pods| pods.len() == 1).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn each_index_fails_for_itself() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let spec = json!({
        "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 0,
    });
    create(&jobs, job(&spec)).await;
    let made = until_pods(&pods, |pods| pods.len() == 2).await;
    let of = |index: &str| made.iter().find(|pod| pod.name_any().starts_with(index)).unwrap();
    assert_eq!(of("j-0-").annotations()["batch.kubernetes.io/job-index-failure-count"], "0");
    end(&pods, of("j-0-"), "Failed").await;
    until_status(&jobs, |status| status.failed_indexes.as_deref() == Some("0") && status.active == Some(1)).await;
    end(&pods, of("j-1-"), "Succeeded").await;
    until_status(&jobs, |status| reason(status, "Failed") == Some("FailedIndexes")).await;
    let status = jobs.get("j").await.unwrap().status.unwrap();
    assert_eq!((status.succeeded, status.failed, status.completed_indexes.as_deref()), (Some(1), Some(1), Some("1")));
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn pods_are_replaced_only_once_failed_if_asked() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({"podReplacementPolicy": "Failed"}))).await;
    let made = until_pods(&pods, |pods| pods.len() == 1).await;
    pods.delete(&made[0].name_any(), &DeleteParams::default()).await.unwrap();
    // Its finalizer keeps the pod, and no other one is made while it terminates.
    until_status(&jobs, |status| (status.active, status.terminating) == (None, Some(1))).await;
    assert_eq!(list(&pods).await.len(), 1);
    end(&pods, &made[0], "Failed").await;
    until_status(&jobs, |status| status.failed == Some(1)).await;
    until_pods(&pods, |pods| pods.iter().all(|pod| pod.uid() != made[0].uid())).await;
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_deleted_without_a_policy_leaves_its_pods() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    create(&jobs, job(&json!({}))).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    jobs.delete("j", &DeleteParams::default()).await.unwrap();
    until_gone(&jobs, "j").await;
    let left = until_pods(&pods, |pods| pods.iter().all(|pod| pod.owner_references().is_empty())).await;
    assert_eq!(left.len(), 1);
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_of_another_manager_is_left_alone() {
    let cluster = Cluster::start().await.unwrap();
    let client = cluster.client();
    let (jobs, pods): (Api<Job>, Api<Pod>) = (namespaced(&client, "default"), namespaced(&client, "default"));
    let mut foreign = job(&json!({"managedBy": "e.com/manager"}));
    foreign["metadata"]["name"] = json!("foreign");
    create(&jobs, foreign).await;
    create(&jobs, job(&json!({"managedBy": "kubernetes.io/job-controller"}))).await;
    until_pods(&pods, |pods| pods.len() == 1).await;
    let foreign = jobs.get("foreign").await.unwrap();
    assert!(foreign.status.is_none_or(|status| status.start_time.is_none()));
    cluster.stop().await.unwrap();
}
