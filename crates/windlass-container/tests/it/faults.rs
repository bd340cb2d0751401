//! Restarts, and what is killed.

use serde_json::json;
use windlass_container::Isolation;
use windlass_node::runtime::{LogOptions, Runtime as _};

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
    // The same while nobody looks.
    kill_parent(&place, &pod);
    place.restart();
    let found = place.recover(&pod).await;
    assert_eq!(found[0].exit.as_ref().map(|exit| exit.code), Some(137));
    place.create(&pod).await;
    place.start(&pod, 2).await.unwrap();
    assert_eq!(place.exec(&pod, "echo hi").await, (0, "hi\n".into()));
    place.remove(&pod).await;
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
    let parent = parents(&place.pod_dir(pod))[0];
    rustix::process::kill_process(rustix::process::Pid::from_raw(parent).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
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
