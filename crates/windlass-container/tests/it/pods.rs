//! What a pod is to its containers, and what its containers do.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use windlass_container::Isolation;
use windlass_node::runtime::{ContainerEvent, ExecOptions, Hook, LogOptions, Probe, Runtime as _, RuntimeError};
use windlass_node::volumes::{Content, File, Volume};

use crate::place::{Place, files, pod, script, script_with};

#[tokio::test(flavor = "multi_thread")]
async fn containers_run_to_their_end() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let (exit, output) = place.run(script("echo out; echo err >&2; exit 7")).await;
    assert_eq!(exit.code, 7);
    assert!(output.contains("out\n") && output.contains("err\n"), "{output}");
    let more = json!({"env": [{"name": "A", "value": "$(KUBERNETES_SERVICE_HOST)!"}], "workingDir": "/work/here"});
    let (exit, output) = place.run(script_with("echo $A $FROM $HOSTNAME $HOME; pwd; hostname; echo $$$$", &more)).await;
    assert_eq!((exit.code, output.as_str()), (0, "10.96.0.1! image web /root\n/work/here\nweb\n1\n"));
    let (exit, _) = place.run(script("kill -9 $$$$; kill -9 1; sh -c 'kill -9 $PPID'; exit 3")).await;
    assert_eq!(exit.code, 3, "the first process of a container is not killed from inside");
    let (exit, _) = place.run(script("echo -n 'all is lost' > /dev/termination-log; exit 1")).await;
    assert_eq!(exit.message.as_deref(), Some("all is lost"));
    let policy = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let (exit, _) = place.run(script_with("echo last words; exit 1", &policy)).await;
    assert_eq!(exit.message.as_deref(), Some("last words\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_cannot_start_say_why() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let failed = async |container| {
        let pod = pod(container);
        place.create(&pod).await;
        let error = place.start(&pod, 0).await.unwrap_err();
        place.remove(&pod).await;
        error
    };
    let error = failed(json!({"command": ["nothing-here"]})).await;
    assert!(
        matches!(&error, RuntimeError::Start(why) if why.contains("executable file not found in $PATH")),
        "{error:?}"
    );
    let error = failed(json!({"command": ["/no/such"]})).await;
    assert!(matches!(&error, RuntimeError::Start(why) if why.contains("no such file")), "{error:?}");
    let error = failed(script_with("true", &json!({"securityContext": {"runAsNonRoot": true}}))).await;
    assert!(error.to_string().contains("image will run as root"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_stopped_with_grace() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("trap 'echo bye; exit 5' TERM; echo ready; while true; do sleep 0.05; done"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    wait_for_log(&place, &pod, "ready").await;
    place.stop(&pod, 0, 30);
    assert_eq!(place.exit().await.code, 5);
    assert_eq!(place.logs(&pod, LogOptions::default()).await, "ready\nbye\n");
    // Started again; its output and that of the one before are there.
    place.start(&pod, 1).await.unwrap();
    wait_for_log(&place, &pod, "ready").await;
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    assert_eq!(place.logs(&pod, previous).await, "ready\nbye\n");
    place.stop(&pod, 1, 0);
    assert_eq!(place.exit().await.code, 137);
    place.remove(&pod).await;
}

/// Follows the log until it has a line.
async fn wait_for_log(place: &Place, pod: &windlass_node::runtime::PodSandbox, line: &str) {
    use futures::StreamExt as _;
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut stream = place.runtime.logs(pod, "c", &options).finish().await.unwrap();
    let mut seen = Vec::new();
    while let Some(bytes) = stream.next().await {
        seen.extend(bytes);
        if String::from_utf8_lossy(&seen).lines().any(|seen| seen == line) {
            return;
        }
    }
    panic!("the log has no {line:?}: {}", String::from_utf8_lossy(&seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_have_ended_keep_their_output_only() {
    let Some(mut place) = Place::new(Isolation::Namespaces) else { return };
    let mut pod = pod(script("echo bye"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    assert_eq!(place.exit().await.code, 0);
    place.runtime.finish(&pod).finish().await.unwrap();
    assert!(crate::faults::parents(&place.pod_dir(&pod)).is_empty());
    let left: Vec<_> =
        std::fs::read_dir(place.pod_dir(&pod)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["logs"]);
    // Also after a restart; the status has the number of the attempt.
    place.restart();
    assert_eq!(place.logs(&pod, LogOptions::default()).await, "bye\n");
    let mut again = (*pod.pod).clone();
    let status =
        json!({"containerStatuses": [{"name": "c", "restartCount": 1, "image": "", "imageID": "", "ready": false}]});
    again.status = Some(serde_json::from_value(status).unwrap());
    pod.pod = again.into();
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    assert_eq!(place.logs(&pod, previous).await, "bye\n");
    assert!(place.runtime.logs(&pod, "c", &LogOptions::default()).finish().await.is_err(), "it has no second attempt");
    place.remove(&pod).await;
    assert!(!place.pod_dir(&pod).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_where_they_are_mounted() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let host = place.dir.path().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("f"), "of the host").unwrap();
    let container = script_with(
        "cat /s/key /s/sub/x /sa/token; stat -c %a /s/..data/key; echo new > /e/f && cat /e/f; cat /h/f; \
         mount | grep -c ' /m type tmpfs'; echo no > /s/key; echo sub > /p/f; ls /e/deep; \
         echo more > /h/g; readlink /s/key",
        &json!({
            "volumeMounts": [
                {"name": "secret", "mountPath": "/s"},
                {"name": "token", "mountPath": "/sa"},
                {"name": "empty", "mountPath": "/e"},
                {"name": "empty", "mountPath": "/p", "subPath": "deep/er"},
                {"name": "memory", "mountPath": "/m"},
                {"name": "host", "mountPath": "/h"},
            ],
            "pod": {"volumes": [
                {"name": "secret", "secret": {"secretName": "s"}}, {"name": "token", "projected": {}},
                {"name": "empty", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "host", "hostPath": {"path": host}},
            ]},
        }),
    );
    let token = Content::Token { audience: "vault".into(), expiration_seconds: 3600 };
    let volumes = [
        ("secret", files(&[("key", 0o400, "hush\n"), ("sub/x", 0o644, "x\n")])),
        ("token", Volume::Files(vec![File { path: "token".into(), mode: 0o644, content: token }])),
        ("empty", Volume::EmptyDir { medium: String::new(), limit: None }),
        ("memory", Volume::EmptyDir { medium: "Memory".into(), limit: Some(1 << 20) }),
    ];
    let (exit, output) = place.run_with(container, &volumes).await;
    assert_eq!(exit.code, 0, "{output}");
    for expected in [
        "hush\nx\ntoken of default for \"vault\"400\n",
        "new\n",
        "of the host",
        "1\n",
        "Read-only file system",
        "er\n",
        "..data/key\n",
    ] {
        assert!(output.contains(expected), "{expected:?} is missing: {output}");
    }
    assert_eq!(std::fs::read_to_string(host.join("g")).unwrap(), "more\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("echo 1 > /tmp/f; echo ready; sleep 1000"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    wait_for_log(&place, &pod, "ready").await;
    assert_eq!(place.exec(&pod, "cat /tmp/f; echo $FROM; hostname; exit 4").await, (4, "1\nimage\nweb\n".into()));
    let (_, seen) = place.exec(&pod, "ps | grep -c 'sleep 1000'").await;
    assert_ne!(seen.trim(), "0", "a command sees the container's processes");
    // With input.
    let options = ExecOptions { command: vec!["cat".into()], stdin: true, terminal: false, size: None };
    let mut session = place.runtime.exec(&pod, "c", &options).finish().await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"echoed").await.unwrap();
    drop(stdin);
    let mut output = String::new();
    session.stdout.as_mut().unwrap().read_to_string(&mut output).await.unwrap();
    assert_eq!((output.as_str(), session.exit.await.unwrap()), ("echoed", 0));
    // On a terminal, with a size.
    let command = ["sh", "-c", "read line; stty size; exit 6"].map(str::to_owned).to_vec();
    let options = ExecOptions { command, stdin: true, terminal: true, size: None };
    let mut session = place.runtime.exec(&pod, "c", &options).finish().await.unwrap();
    session.resize.as_ref().unwrap().send((100, 40)).await.unwrap();
    let mut stdin = session.stdin.take().unwrap();
    // The size is set by a task of its own.
    while session.resize.as_ref().unwrap().capacity() < 16 {
        tokio::task::yield_now().await;
    }
    stdin.write_all(b"go\n").await.unwrap();
    let mut output = String::new();
    session.stdout.as_mut().unwrap().read_to_string(&mut output).await.unwrap();
    assert_eq!(session.exit.await.unwrap(), 6, "{output}");
    assert!(output.contains("40 100"), "{output}");
    let unknown = ExecOptions { command: vec!["nothing-here".into()], ..ExecOptions::default() };
    let error = place.runtime.exec(&pod, "c", &unknown).finish().await.unwrap_err();
    assert!(error.to_string().contains("not found in $PATH"), "{error}");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_attach_to_containers() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script_with("while read line; do echo got $line; done", &json!({"stdin": true})));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    let mut session = place.runtime.attach(&pod, "c", false).finish().await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"this\n").await.unwrap();
    let mut seen = [0; 9];
    session.stdout.as_mut().unwrap().read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"got this\n");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_pods_are_reached() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let probe = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    let pod = pod(script_with("nc -ll -p 8080 -e echo hello", &json!({"readinessProbe": probe})));
    let pod_exec = crate::place::pod(script_with(
        "sleep 1000",
        &json!({"livenessProbe": {"exec": {"command": ["cat", "/none"]}, "periodSeconds": 1, "failureThreshold": 1}}),
    ));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    loop {
        match place.event().await {
            // The program may not listen yet.
            ContainerEvent::ProbeFailed { probe: Probe::Readiness, .. } => {}
            event => {
                let is_ready = matches!(event, ContainerEvent::Probe { probe: Probe::Readiness, success: true, .. });
                assert!(is_ready, "{event:?}");
                break;
            }
        }
    }
    let mut connection = place.runtime.port(&pod, 8080).finish().await.unwrap();
    let mut said = String::new();
    connection.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "hello\n");
    assert!(place.runtime.port(&pod, 1).finish().await.is_err());
    place.remove(&pod).await;
    place.create(&pod_exec).await;
    place.start(&pod_exec, 0).await.unwrap();
    loop {
        match place.event().await {
            ContainerEvent::Probe { probe: Probe::Liveness, success: false, message } => {
                assert!(message.contains("No such file"), "{message}");
                break;
            }
            ContainerEvent::Exited(_) => {}
            other => panic!("{other:?}"),
        }
    }
    place.remove(&pod_exec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_after_the_start_and_before_the_end() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let hook = |script: &str| json!({"exec": {"command": ["sh", "-c", script]}});
    let lifecycle = json!({"postStart": hook("echo started > /tmp/a"), "preStop": hook("cat /tmp/a > /proc/1/fd/1")});
    let more = json!({"lifecycle": lifecycle});
    let pod = pod(script_with("trap 'exit 0' TERM; while true; do sleep 0.05; done", &more));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    assert_eq!(place.exec(&pod, "cat /tmp/a").await.1, "started\n");
    place.stop(&pod, 0, 30);
    assert_eq!(place.exit().await.code, 0);
    assert_eq!(place.logs(&pod, LogOptions::default()).await, "started\n");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_hook_is_told_and_kills_after_the_start() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    for hook in ["postStart", "preStop"] {
        let lifecycle = json!({hook: {"exec": {"command": ["sh", "-c", "exit 3"]}}});
        let pod = pod(script_with("exec sleep 1000", &json!({"lifecycle": lifecycle})));
        place.create(&pod).await;
        place.start(&pod, 0).await.unwrap();
        if hook == "preStop" {
            place.stop(&pod, 0, 1);
        }
        let expected = if hook == "preStop" { Hook::PreStop } else { Hook::PostStart };
        assert_eq!(place.event().await, ContainerEvent::HookFailed(expected));
        assert_eq!(place.exit().await.code, 137);
        place.remove(&pod).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_of_a_pod_may_share_processes() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let (exit, output) =
        place.run(script_with("echo $$; ps | wc -l", &json!({"pod": {"shareProcessNamespace": true}}))).await;
    assert_eq!(exit.code, 0, "{output}");
    assert_ne!(output.lines().next(), Some("1"), "another process comes first: {output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_the_host_are_pods_too() {
    let Some(place) = Place::new(Isolation::None) else { return };
    let volumes = [("conf", files(&[("key", 0o444, "value\n")]))];
    let container = script_with(
        "echo $FROM; cat etc/conf/key; pwd",
        &json!({
            "volumeMounts": [{"name": "conf", "mountPath": "/etc/conf"}],
            "pod": {"volumes": [{"name": "conf", "configMap": {"name": "c"}}]},
        }),
    );
    let (exit, output) = place.run_with(container, &volumes).await;
    assert_eq!(exit.code, 0, "{output}");
    assert!(output.starts_with("image\nvalue\n"), "{output}");
    let shortcomings = place.runtime.shortcomings();
    let network = shortcomings.iter().find(|one| one.condition == "PodNetwork").unwrap();
    assert!(network.message.contains("no Services, cluster DNS, Ingresses"), "{}", network.message);
    assert!(shortcomings[0].message.contains("processes of the host"));
    assert_eq!(shortcomings[0].reason, windlass_node::HOST_PROCESSES);
    let pod = pod(script("echo ready; sleep 1000"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    wait_for_log(&place, &pod, "ready").await;
    assert_eq!(place.exec(&pod, "echo hi").await, (0, "hi\n".into()));
    place.stop(&pod, 0, 0);
    assert_eq!(place.exit().await.code, 137);
    place.remove(&pod).await;
}
