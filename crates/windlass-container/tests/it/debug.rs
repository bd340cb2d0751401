//! What is done to pods that run: containers are added to them, clients attach, and what they use is asked.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use windlass_container::Isolation;
use windlass_node::runtime::{ExecOptions, PodSandbox, Runtime as _};

use crate::place::{Place, pod, script, script_with};

/// The pod with an ephemeral container `debug` added.
fn with_debugger(pod: &PodSandbox, target: &str) -> PodSandbox {
    let mut changed = (*pod.pod).clone();
    let debugger = json!({
        "name": "debug", "image": "box", "targetContainerName": target,
        "command": ["sh", "-c", "ps; cat /proc/1/root/tmp/of-main; sleep 1000"],
    });
    changed.spec.as_mut().unwrap().ephemeral_containers = Some(vec![serde_json::from_value(debugger).unwrap()]);
    PodSandbox { pod: changed.into(), ..pod.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_containers_see_the_processes_of_their_target() {
    let Some(mut place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("echo found > /tmp/of-main; sleep 4242"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    place.exec(&pod, "while ! test -s /tmp/of-main; do sleep 0.01; done").await;
    let missing = place.start_ephemeral(&with_debugger(&pod, "other")).await.unwrap_err();
    assert!(missing.to_string().contains("unable to find target container \"other\""), "{missing}");
    let debugged = with_debugger(&pod, "c");
    place.start_ephemeral(&debugged).await.unwrap();
    let output = place.until_log(&debugged, "debug", "found").await;
    assert!(output.contains("sleep 4242"), "{output}");
    // It is found again, and ends with the pod.
    place.restart();
    let found = place.recover(&debugged).await;
    assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["c", "debug"]);
    // Also while a command runs in it.
    let command = ["sleep", "1000"].map(str::to_owned).to_vec();
    let options = ExecOptions { command, stdin: false, terminal: false, size: None };
    let session = place.runtime.exec(&debugged, "c", &options).finish().await.unwrap();
    place.remove(&debugged).await;
    drop(session);
    assert!(crate::faults::parents(&place.pod_dir(&pod)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_reads_ends_with_its_only_client() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script_with("cat; echo end", &json!({"stdin": true, "stdinOnce": true})));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    let mut session = place.runtime.attach(&pod, "c", false).finish().await.unwrap();
    session.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
    drop(session.stdin.take());
    let mut output = String::new();
    session.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "hello\nend\n");
    assert_eq!(place.exit().await.code, 0);
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_containers_use_is_measured() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo full; while true; do :; done"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    place.until_log(&pod, "c", "full").await;
    let Some(used) = place.runtime.usage(&pod) else {
        eprintln!("SKIPPED: there are no control groups here");
        return;
    };
    assert_eq!((used.len(), used[0].container.as_str()), (1, "c"));
    assert!(used[0].memory_bytes > 10 << 20 && used[0].cpu_nanocores > 0, "{used:?}");
    place.stop(&pod, 0, 0);
    assert_eq!(place.exit().await.code, 137);
    tokio::time::timeout(Duration::from_secs(60), async {
        while place.runtime.usage(&pod).is_some_and(|used| !used.is_empty()) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terminals_have_the_size_of_the_clients() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("sleep 1000"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    let script = "stty size; while test \"$(stty size)\" != '37 101'; do sleep 0.01; done; stty size; exit 7";
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let options = ExecOptions { command, stdin: true, terminal: true, size: Some((99, 33)) };
    let mut session = place.runtime.exec(&pod, "c", &options).finish().await.unwrap();
    let mut stdout = session.stdout.take().unwrap();
    let mut first = [0; 7];
    stdout.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"33 99\r\n", "the size at the start");
    session.resize.as_ref().unwrap().send((101, 37)).await.unwrap();
    let mut output = String::new();
    stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "37 101\r\n");
    assert_eq!(session.exit.await.unwrap(), 7);
    place.remove(&pod).await;
}
