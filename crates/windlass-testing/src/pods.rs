//! Pods that become ready where there are no nodes: [`Env::make_pods_ready`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass::cache::Lister;

use crate::Env;

/// How soon a status that could not be written is written again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Makes pods ready until this is dropped. Made by [`Env::make_pods_ready`].
#[derive(Debug)]
#[must_use = "pods are made ready only until this is dropped"]
pub struct PodsReady {
    _stop: DropGuard,
}

impl Env {
    /// Plays the nodes of a namespace: each pod that appears there, or is there, becomes `Running` and `Ready`, with an IP
    /// and with its containers started, so that Deployments become available and Services get endpoints. No container runs.
    ///
    /// Each pod is made ready once. A test may change its status afterwards, say to a failed one. What has failed or
    /// succeeded before, or is being deleted, is left alone. This ends when the guard is dropped.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use serde_json::json;
    /// use windlass::ObjectKey;
    /// use windlass_testing::{Env, Options, run};
    ///
    /// run(Options::default(), async |env: Env| {
    ///     let _nodes = env.make_pods_ready("default");
    ///     let deployment: Deployment = serde_json::from_value(json!({
    ///         "metadata": { "name": "web", "namespace": "default" },
    ///         "spec": {
    ///             "replicas": 2,
    ///             "selector": { "matchLabels": { "app": "web" } },
    ///             "template": {
    ///                 "metadata": { "labels": { "app": "web" } },
    ///                 "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
    ///             },
    ///         },
    ///     }))
    ///     .expect("a deployment");
    ///     env.client().create(&deployment).await.expect("created");
    ///     env.wait_for_condition::<Deployment>(&ObjectKey::of(&deployment), "Available", true).await;
    /// });
    /// ```
    pub fn make_pods_ready(&self, namespace: &str) -> PodsReady {
        let shutdown = CancellationToken::new();
        let nodes = Nodes {
            pods: self.client().lister::<Pod>(),
            api: Api::namespaced(self.harness().clone(), namespace),
            namespace: namespace.to_owned(),
            done: HashSet::new(),
        };
        let task = shutdown.clone().run_until_cancelled_owned(nodes.run());
        self.inner.tasks.spawn(self.inner.ended.clone().run_until_cancelled_owned(task));
        PodsReady { _stop: shutdown.drop_guard() }
    }
}

struct Nodes {
    pods: Lister<Pod>,
    api: Api<Pod>,
    namespace: String,
    /// The uids of pods that were made ready.
    done: HashSet<String>,
}

impl Nodes {
    async fn run(mut self) {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        let _subscription = self.pods.subscribe(move |_| told.notify_one());
        loop {
            let all_written = self.make_ready().await;
            if all_written {
                changed.notified().await;
            } else {
                // The server may be restarting, or may not have the pod any more.
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Makes the pods ready that are there. False if one could not be.
    async fn make_ready(&mut self) -> bool {
        let mut all_written = true;
        for pod in self.pods.in_namespace(&self.namespace) {
            let Some(uid) = pod.metadata.uid.as_ref().filter(|uid| !self.done.contains(*uid)) else { continue };
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
                continue;
            }
            let (name, status) = (pod.metadata.name.as_deref().unwrap_or_default(), self.status(&pod));
            let patch = Patch::Strategic(json!({ "metadata": { "uid": uid }, "status": status }));
            match self.api.patch_status(name, &PatchParams::default(), &patch).await {
                Ok(_) => _ = self.done.insert(uid.clone()),
                // Gone, or another of the same name: the cache will show it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(_) => all_written = false,
            }
        }
        all_written
    }

    /// What a node would write.
    fn status(&self, pod: &Pod) -> Value {
        let now = Timestamp::now().to_string();
        let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": now });
        let number = self.done.len() + 1;
        let ip = format!("10.244.{}.{}", number / 256 % 256, number % 256);
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let started = containers.map(|container| {
            json!({
                "name": container.name, "image": container.image.as_deref().unwrap_or_default(), "imageID": "",
                "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": now } },
            })
        });
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        json!({
            "phase": "Running", "startTime": now, "podIP": ip, "podIPs": [{ "ip": ip }],
            "conditions": conditions,
            "containerStatuses": started.collect::<Vec<_>>(),
        })
    }
}
