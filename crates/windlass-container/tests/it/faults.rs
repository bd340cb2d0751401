//! Restarts, and what is killed.

use serde_json::json;
use windlass_container::Isolation;
use windlass_node::runtime::{LogOptions, Runtime as _};
use windlass_node::volumes::Volume;

use crate::place::{Place, files, pod, script, script_with};

#[tokio::test(flavor = "multi_thread")]
async fn pods_outlive_the_process_that_started_them() {
    let Some(mut place) = Place::new(Isolation::Namespaces) else { return };
    let long = pod(script("trap 'exit 9' TERM; echo $RANDOM > /tmp/id; while true; do sleep 0.05; done"));
    let short = pod(script("exit 4"));
    for pod in [&long, &short] {
        place.create_with(pod, &[("s", files(&[("k", 0o400, "v")]))]).await;
        place.start(pod, 0).await.unwrap();
    }
    assert_eq!(place.exit().await.code, 4);
    let (_, id) = place.exec(&long, "while ! cat /tmp/id; do sleep 0.01; done").await;
    place.restart();
    let found = place.recover(&long).await;
    assert_eq!((found.len(), found[0].name.as_str(), found[0].attempt, &found[0].exit), (1, "c", 0, &None));
    let ended = place.recover(&short).await;
    assert_eq!(ended[0].exit.as_ref().map(|exit| exit.code), Some(4));
    let (_, same) = place.exec(&long, "cat /tmp/id").await;
    assert_eq!(id, same, "it is the same container");
    place.stop(&long, 0, 30);
    assert_eq!(place.exit().await.code, 9);
    place.remove(&long).await;
    place.remove(&short).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_parent_is_killed_starts_again() {
    let Some(mut place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script("echo up; sleep 1000"));
    place.create(&pod).await;
    place.start(&pod, 0).await.unwrap();
    kill_parent(&place, &pod);
    assert_eq!(place.exit().await.code, 137);
    place.start(&pod, 1).await.unwrap();
    assert_eq!(place.exec(&pod, "echo hi").await, (0, "hi\n".into()));
    // The same without an observer.
    kill_parent(&place, &pod);
    place.restart();
    let found = place.recover(&pod).await;
    assert_eq!(found[0].exit.as_ref().map(|exit| exit.code), Some(137));
    place.create(&pod).await;
    place.start(&pod, 2).await.unwrap();
    assert_eq!(place.exec(&pod, "echo hi").await, (0, "hi\n".into()));
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_hurt_no_other_container() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    if let Some(why) = place.runtime.shortcomings().iter().find(|one| one.condition == "ContainersIsolated") {
        eprintln!("SKIPPED: {}", why.message);
        return;
    }
    let quiet = pod(script("echo up; sleep 1000"));
    place.create(&quiet).await;
    place.start(&quiet, 0).await.unwrap();
    let before = parents(&place.pod_dir(&quiet));
    let limits = json!({
        "resources": {"limits": {"memory": "32Mi", "cpu": "200m"}},
        "volumeMounts": [{"name": "small", "mountPath": "/small"}],
        "pod": {"volumes": [{"name": "small", "emptyDir": {"medium": "Memory"}}]},
    });
    let small = [("small", Volume::EmptyDir { medium: "Memory".into(), limit: Some(1 << 20) })];
    // Memory, a disk that is full, and processes: the last one ends when its first process is stopped.
    let (exit, _) = place.run_with(script_with("exec tail /dev/zero", &limits), &small).await;
    assert_eq!((exit.code, exit.reason()), (137, "OOMKilled"));
    let (_, output) = place.run_with(script_with("dd if=/dev/zero of=/small/f bs=65536", &limits), &small).await;
    assert!(output.contains("No space left"), "{output}");
    let bomb = pod(script_with(
        "bomb() { bomb | bomb & }; bomb; while true; do sleep 1; done",
        &json!({
            "resources": {"limits": {"memory": "32Mi", "cpu": "200m"}},
        }),
    ));
    place.create(&bomb).await;
    place.start(&bomb, 0).await.unwrap();
    assert_eq!(place.exec(&quiet, "echo hi").await, (0, "hi\n".into()));
    assert_eq!(parents(&place.pod_dir(&quiet)), before, "it is the same pod");
    place.remove(&bomb).await;
    let named = format!("*{}*", bomb.uid());
    let left = std::process::Command::new("find").args(["/sys/fs/cgroup", "-path", &named]).output().unwrap();
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
    place.remove(&quiet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_container_ends_alone() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let (killed, other) = (pod(script("sleep 1000")), pod(script("sleep 1000")));
    for pod in [&killed, &other] {
        place.create(pod).await;
        place.start(pod, 0).await.unwrap();
    }
    let parent = parents(&place.pod_dir(&killed));
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent[0])).unwrap();
    let child = children.split_whitespace().next().unwrap().parse().unwrap();
    kill(child);
    assert_eq!(place.exit().await.code, 137);
    assert_eq!(place.exec(&other, "echo hi").await, (0, "hi\n".into()));
    place.start(&killed, 1).await.unwrap();
    assert_eq!(place.exec(&killed, "echo hi").await, (0, "hi\n".into()));
    assert_eq!(parents(&place.pod_dir(&killed)), parent);
    place.remove(&killed).await;
    place.remove(&other).await;
}

/// The process ids of a pod's parent.
pub(crate) fn parents(dir: &std::path::Path) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_parent = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|byte| *byte == 0).skip(1);
        arguments.next() == Some(b"pod-parent") && arguments.next() == Some(dir.as_os_str().as_encoded_bytes())
    };
    pids.filter(is_parent).collect()
}

pub(crate) fn kill_parent(place: &Place, pod: &windlass_node::runtime::PodSandbox) {
    kill(parents(&place.pod_dir(pod))[0]);
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    let pods: Vec<_> =
        (0..3).map(|_| pod(script_with("sleep 1000", &json!({"resources": {"limits": {"memory": "64Mi"}}})))).collect();
    for pod in &pods {
        place.create_with(pod, &[("s", files(&[("k", 0o400, "v")]))]).await;
        place.start(pod, 0).await.unwrap();
        assert_eq!(parents(&place.pod_dir(pod)).len(), 1);
    }
    assert!(!mounts().contains(&*place.dir.path().to_string_lossy()), "pods mount nothing that the host sees");
    place.remove(&pods[0]).await;
    assert!(parents(&place.pod_dir(&pods[0])).is_empty());
    // As `windlass down` does it, without knowing what runs.
    place.runtime.clean(&place.runtime.found());
    assert_eq!(parents(&place.pod_dir(&pods[1])).len(), 1, "pods that are known stay");
    place.runtime.remove_all();
    for pod in &pods {
        assert!(parents(&place.pod_dir(pod)).is_empty() && !place.pod_dir(pod).exists());
        let left = std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", pod.uid()]).output().unwrap();
        assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
    }
    let gone = place.runtime.logs(&pods[0], "c", &LogOptions::default()).finish().await;
    assert!(gone.is_err());
}
