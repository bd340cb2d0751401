//! Workloads on simulated nodes: rollouts, drains, jobs, claims, autoscalers.

use super::{Kubectl, has};
use crate::windlass::Cluster;

/// A cluster with nodes and kubectl for it; returns from the test where there is no kubectl.
macro_rules! nodes {
    ($count:literal, $cluster:ident, $kubectl:ident) => {
        let $cluster = Cluster::with_nodes($count);
        let Some($kubectl) = Kubectl::of(&$cluster) else { return };
    };
}

impl Kubectl {
    /// Waits until a rollout has ended.
    fn rolled_out(&self, workload: &str) {
        let said = self.run(&format!("rollout status {workload} --timeout=120s"));
        // A StatefulSet with a partition, which it has by default, says it in other words.
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("rolled out") || last.contains("roll out complete"), "{said}");
    }

    /// Waits until a field has a value. `kubectl wait` of today's versions does that, older ones do not.
    fn becomes(&self, object: &str, path: &str, value: &str) {
        let watch = self.spawn(&format!("get {object} --watch -o jsonpath={{{path}}}{{\"\\n\"}}"));
        watch.line_with(value);
    }

    /// Waits for a condition.
    fn reaches(&self, object: &str, condition: &str) {
        self.run(&format!("wait {object} --for=condition={condition} --timeout=120s"));
    }
}

#[test]
fn a_deployment_is_rolled_out_paused_undone_and_restarted() {
    nodes!(2, cluster, k);
    let image = |k: &Kubectl| k.field("deploy/web", ".spec.template.spec.containers[0].image");
    k.run("create deployment web --image=nginx:1 --replicas=3");
    k.rolled_out("deploy/web");
    k.run("scale deploy/web --replicas=5");
    k.rolled_out("deploy/web");
    assert_eq!(k.field("deploy/web", ".status.availableReplicas"), "5");
    k.run("set image deploy/web nginx=nginx:2");
    k.rolled_out("deploy/web");
    k.run("rollout pause deploy/web");
    k.run("set image deploy/web nginx=nginx:3");
    let generation = k.field("deploy/web", ".metadata.generation");
    k.becomes("deploy/web", ".status.observedGeneration", &generation);
    assert_eq!(k.run("get pods -o jsonpath={.items[?(@.spec.containers[0].image=='nginx:3')].metadata.name}"), "");
    k.run("rollout resume deploy/web");
    k.rolled_out("deploy/web");
    assert_eq!(image(&k), "nginx:3");
    has(&k.run("rollout undo deploy/web"), &["rolled back"]);
    k.rolled_out("deploy/web");
    assert_eq!(image(&k), "nginx:2");
    k.run("rollout restart deploy/web");
    k.rolled_out("deploy/web");
    let running = k.run("get pods --field-selector=status.phase=Running -o name");
    assert!(running.lines().count() >= 5, "{running}");
    k.run("expose deploy/web --port=80");
    k.becomes("endpoints/web", ".subsets[0].ports[0].port", "80");
    let addresses = k.field("endpoints/web", ".subsets[0].addresses[*].ip");
    assert_eq!(addresses.split(' ').count(), 5, "{addresses}");
    k.run("delete deploy/web --cascade=foreground --timeout=120s");
    assert_eq!(k.run("get pods -o name"), "");
}

const STATEFUL: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "postgres:1"}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"#;

#[test]
fn a_stateful_set_is_updated_down_to_its_partition() {
    nodes!(2, cluster, k);
    k.feed("apply -f -", STATEFUL);
    k.rolled_out("sts/db");
    assert_eq!(k.field("pvc/data-db-2", ".status.phase"), "Bound");
    k.run(r#"patch sts db -p {"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}"#);
    k.run("set image sts/db db=postgres:2");
    has(&k.run("rollout status sts/db --timeout=120s"), &["partitioned roll out complete"]);
    let images = "get pods -l app=db --sort-by=.metadata.name -o jsonpath={.items[*].spec.containers[0].image}";
    assert_eq!(k.run(images), "postgres:1 postgres:1 postgres:2");
    k.run(r#"patch sts db -p {"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}"#);
    has(&k.run("rollout status sts/db --timeout=120s"), &["complete"]);
    assert_eq!(k.run(images), "postgres:2 postgres:2 postgres:2");
}

const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
"#;

#[test]
fn a_node_is_drained_and_takes_pods_again() {
    nodes!(3, cluster, k);
    k.feed("apply -f -", DAEMON);
    k.rolled_out("ds/agent");
    assert_eq!(k.field("ds/agent", ".status.numberReady"), "3");
    k.run("set image ds/agent agent=agent:2");
    k.rolled_out("ds/agent");
    k.run("create deployment web --image=nginx --replicas=6");
    k.rolled_out("deploy/web");
    let nodes = k.run("get nodes -o jsonpath={.items[*].metadata.name}");
    let node = nodes.split(' ').next().unwrap();
    k.run(&format!("drain {node} --ignore-daemonsets --timeout=120s"));
    let left = k.run(&format!("get pods --field-selector=spec.nodeName={node} -o name"));
    assert!(left.lines().all(|pod| pod.contains("agent")), "{left}");
    k.rolled_out("deploy/web");
    k.run(&format!("uncordon {node}"));
    k.run("scale deploy/web --replicas=12");
    k.rolled_out("deploy/web");
    let back = k.run(&format!("get pods -l app=web --field-selector=spec.nodeName={node} -o name"));
    assert!(!back.is_empty());
}

const CRON: &str = r#"
apiVersion: batch/v1
kind: CronJob
metadata: {name: report}
spec:
  schedule: "@every 1s"
  suspend: true
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: report, image: report}]}
"#;

#[test]
fn jobs_run_to_their_end() {
    nodes!(1, cluster, k);
    k.run("create job once --image=work");
    k.reaches("job/once", "complete");
    k.feed("apply -f -", CRON);
    assert_eq!(k.field("cronjob/report", ".spec.suspend"), "true");
    assert_eq!(k.run("get jobs -o name"), "job.batch/once\n");
    // kubectl 1.20 knows CronJobs of batch/v1beta1 only, which are no longer served.
    if k.at_least(21) {
        k.run("create job now --from=cronjob/report");
        k.reaches("job/now", "complete");
    }
    k.run(r#"patch cronjob report --type=merge -p {"spec":{"suspend":false}}"#);
    k.becomes("cronjob/report", ".status.lastSuccessfulTime", "T");
    k.run(r#"patch cronjob report --type=merge -p {"spec":{"suspend":true}}"#);
    k.run("delete cronjob/report --cascade=foreground --timeout=120s");
}

const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  containers: [{name: user, image: user, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
";

#[test]
fn a_namespace_with_everything_in_it_can_be_deleted() {
    nodes!(1, cluster, k);
    k.run("create namespace shop");
    k.spawn("get serviceaccounts -n shop --watch -o name").line_with("serviceaccount/default");
    k.feed("apply -n shop -f -", CLAIM);
    k.run("wait pod/user -n shop --for=condition=ready --timeout=120s");
    assert_eq!(k.run("get pvc data -n shop -o jsonpath={.status.phase}"), "Bound");
    k.feed("apply -n shop -f -", STATEFUL);
    k.feed("apply -n shop -f -", DAEMON);
    k.run("create deployment web -n shop --image=nginx --replicas=3");
    k.run("rollout status deploy/web -n shop --timeout=120s");
    k.run("expose deploy/web -n shop --port=80");
    k.run("autoscale deploy/web -n shop --max=4");
    k.run("create job once -n shop --image=work");
    k.feed("apply -n shop -f -", CRON);
    k.run("delete namespace shop --timeout=120s");
    assert_eq!(k.run("get pv -o name"), "");
}

#[test]
fn an_autoscaler_follows_what_pods_use() {
    nodes!(1, cluster, k);
    k.run("create deployment web --image=nginx");
    k.run("set resources deploy/web --requests=cpu=100m");
    let busy = |cpu: &str| {
        let annotations = format!(r#"{{"annotations":{{"kwok.x-k8s.io/usage-cpu":"{cpu}"}}}}"#);
        k.run(&format!(r#"patch deploy web -p {{"spec":{{"template":{{"metadata":{annotations}}}}}}}"#));
        k.rolled_out("deploy/web");
    };
    busy("400m");
    has(&k.run("top pods"), &["400m"]);
    has(&k.run("top nodes"), &["NAME"]);
    k.run("autoscale deploy/web --min=1 --max=4 --cpu-percent=50");
    // Otherwise fewer replicas would have to be enough for five minutes.
    let behavior = r#"{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}"#;
    k.run(&format!("patch hpa.v2.autoscaling web --type=merge -p {behavior}"));
    k.becomes("deploy/web", ".spec.replicas", "4");
    busy("1m");
    k.becomes("deploy/web", ".spec.replicas", "1");
}
