//! What runs in pods, reached by kubectl: logs, exec, attach, port-forward, as kwok's objects answer for simulated pods; and
//! kwok's stages.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use super::{Kubectl, has};
use crate::windlass::Cluster;

const SCRIPT: &str = "#!/bin/sh\necho out $WORD\necho err >&2\nexit 7\n";

/// A cluster that accepts kwok's objects, and kubectl for it; returns from the test where there is no kubectl.
macro_rules! kwok {
    ($cluster:ident, $kubectl:ident) => {
        let $cluster = Cluster::with_kwok();
        let Some($kubectl) = Kubectl::of(&$cluster) else { return };
    };
}

#[test]
fn a_pod_is_read_entered_and_connected_to() {
    kwok!(cluster, k);
    let (script, log) = (cluster.path("script"), cluster.path("web.log"));
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stdout F two\n").unwrap();
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    let objects = format!(
        "
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {{name: all}}
spec: {{logs: [{{logsFile: {log}, follow: true}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {{name: all}}
spec: {{execs: [{{local: {{envs: [{{name: WORD, value: word}}]}}}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: PortForward
metadata: {{name: web, namespace: default}}
spec: {{forwards: [{{ports: [7], target: {{address: 127.0.0.1, port: {port}}}}}]}}
",
        log = log.display()
    );
    k.feed("apply -f -", &objects);
    k.run("run web --image=nginx");
    k.run("wait pod/web --for=condition=Ready --timeout=120s");

    assert_eq!(k.run("logs web"), "one\ntwo\n");
    assert_eq!(k.run("logs web --tail=1 --timestamps"), "2026-01-01T00:00:01Z two\n");
    assert_eq!(k.run("logs web --limit-bytes=5"), "one\nt");
    assert_eq!(k.run("logs web --since-time=2026-01-01T00:00:01Z"), "two\n");
    has(&k.fails("logs web --previous"), &["previous terminated container \"web\" in pod \"web\" not found"]);
    let following = k.spawn("logs web --follow --tail=1");
    following.line_with("two");
    std::fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .unwrap()
        .write_all(b"2026-01-01T00:00:02Z stdout F three\n")
        .unwrap();
    following.line_with("three");

    let said = k.command(&format!("exec web -- {}", script.display())).output().unwrap();
    assert_eq!(said.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&said.stdout), "out word\n");
    has(&String::from_utf8_lossy(&said.stderr), &["err\n", "command terminated with exit code 7"]);
    assert_eq!(k.feed("exec -i web -- cat", "hello"), "hello");
    has(&k.fails("exec web -c other -- true"), &["container other is not valid for pod web"]);
    has(&k.fails("exec web -- /no/such/program"), &["cannot run \"/no/such/program\""]);

    let forwarding = k.spawn("port-forward pod/web :7");
    let line = forwarding.line_with("Forwarding from 127.0.0.1:");
    let local = line.split(':').nth(1).and_then(|rest| rest.split(' ').next()).expect("a port").to_owned();
    let mut client = TcpStream::connect(format!("127.0.0.1:{local}")).unwrap();
    let (mut server, _) = echo.accept().unwrap();
    client.write_all(b"ping").unwrap();
    let mut buffer = [0; 4];
    server.read_exact(&mut buffer).unwrap();
    server.write_all(&buffer).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut back = String::new();
    client.read_to_string(&mut back).unwrap();
    assert_eq!(back, "ping");
}

/// In the form of kwok's own stages: a pod waits for a while, runs, and can be made to fail by a label.
const STAGES: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ['True']}
    - {key: '.status.phase', operator: In, values: [Pending]}
  delay:
    durationMilliseconds: 10
    jitterDurationMilliseconds: 50
  next:
    event: {type: Normal, reason: Staged, message: Started by a stage}
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: Ready
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state:
          running:
            startedAt: {{ $now | Quote }}
      {{ end }}
      {{ $podIPs := PodIPsWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) }}
      {{ with $podIPs }}
      podIP: {{ index . 0 | Quote }}
      podIPs:
      {{ range . }}
      - ip: {{ . | Quote }}
      {{ end }}
      {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      message: by a stage
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-fails}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {fails: "true"}
    matchExpressions:
    - {key: '.status.phase', operator: In, values: [Running]}
  next:
    patches:
    - subresource: status
      root: status
      template: |
        phase: Failed
        reason: {{ or (index (or .metadata.annotations dict) "why") "unknown" }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: Exists}
  next: {delete: true, finalizers: {empty: true}}
"#;

#[test]
fn stages_say_what_becomes_of_pods() {
    kwok!(cluster, k);
    k.feed("apply -f -", STAGES);
    k.run("create deployment web --image=nginx --replicas=2");
    k.run("rollout status deploy/web --timeout=120s");
    let messages = k.run("get pods -l app=web -o jsonpath={.items[*].status.message}");
    assert_eq!(messages, "by a stage by a stage");
    let addresses = k.run("get pods -l app=web -o jsonpath={.items[*].status.podIP}");
    let addresses: Vec<&str> = addresses.split(' ').collect();
    assert!(addresses.len() == 2 && addresses[0] != addresses[1], "{addresses:?}");
    has(&k.run("get events"), &["Started by a stage"]);

    k.run("run bad --image=nginx --labels=fails=true --restart=Never --annotations=why=because");
    let watch = k.spawn("get pod bad --watch -o jsonpath={.status.phase}/{.status.reason}{\"\\n\"}");
    watch.line_with("Failed/because");
    k.run("delete deploy/web pod/bad --timeout=120s");
    k.run("delete pods -l app=web --timeout=120s");
}
