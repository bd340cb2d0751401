//! What a container cannot do, and what it may not use.

use serde_json::json;
use windlass_container::Isolation;
use windlass_node::runtime::Runtime as _;
use windlass_node::volumes::Volume;

use crate::place::{Place, files, script, script_with};

#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_out_of_reach() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    std::fs::write(place.dir.path().join("private"), "key").unwrap();
    let secret = place.dir.path().join("private");
    let (_, output) = place
        .run(script(&format!(
            "cat {0}; ls /proc/1/root{0}; ls /etc/shadow; ls /sys/fs/cgroup | head -1; ps | wc -l; \
             echo x > /proc/sys/kernel/hostname; cat /proc/kcore | head -c 1; echo b > /proc/sysrq-trigger; ls /home /root",
            secret.display()
        )))
        .await;
    assert!(!output.contains("key"), "{output}");
    assert!(output.matches("No such file").count() >= 3, "{output}");
    assert!(output.contains("Read-only file system"), "{output}");
    // The descriptors of the processes that started it are closed.
    let (_, output) = place.run(script("ls /proc/self/fd | wc -l; ls -l /proc/1/fd")).await;
    assert!(output.lines().next().unwrap().parse::<u32>().unwrap() <= 4, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_capabilities_and_roots_are_as_specified() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let context = json!({"securityContext": {
        "runAsUser": 1234, "runAsGroup": 55, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    }, "pod": {"securityContext": {"supplementalGroups": [77]}}});
    let (_, output) = place
        .run(script_with("id -u; id -g; id -G; touch /f; grep -E 'NoNewPrivs|CapBnd|CapEff|Seccomp:' /proc/self/status; unshare -U true", &context))
        .await;
    assert!(output.starts_with("1234\n55\n"), "{output}");
    for expected in ["77", "Read-only file system", "NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "Seccomp:\t2"] {
        assert!(output.contains(expected), "{expected} is missing: {output}");
    }
    assert!(output.contains("unshare"), "new user namespaces are refused: {output}");
    let (_, output) = place.run(script_with("id -u; echo $HOME", &json!({"securityContext": {"runAsUser": 33}}))).await;
    assert_eq!(output, "33\n/tmp\n");
    let (_, output) = place.run(script("grep CapEff /proc/self/status; mount -t tmpfs x /tmp; echo done")).await;
    assert!(output.contains("CapEff:\t00000000a80425fb"), "{output}");
    assert!(output.contains("ermission denied") || output.contains("not permitted"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_a_container_makes_are_of_no_use() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    // What root may make by default, as in other engines; the null device stands for the host's disk.
    let script = "for dir in / /dev /e; do busybox mknod $dir/made c 1 3 && echo x > $dir/made && echo used; done; \
                  echo x > /dev/null && echo done";
    let more = |privileged: bool| {
        json!({
            "securityContext": {"privileged": privileged},
            "volumeMounts": [{"name": "e", "mountPath": "/e"}],
            "pod": {"volumes": [{"name": "e", "emptyDir": {}}]},
        })
    };
    let volumes = [("e", Volume::EmptyDir { medium: String::new(), limit: None })];
    // The option for the lower directories ends at a colon: there the image is copied.
    let Some(copying) = Place::below("no:overlay", Isolation::Namespaces) else { return };
    assert!(place.runtime.copies().is_none());
    assert!(copying.runtime.copies().unwrap().contains("a copy of its image"));
    assert!(copying.runtime.shortcomings().iter().any(|one| one.condition == "ContainerOverlays"));
    for place in [&place, &copying] {
        let (_, output) = place.run_with(script_with(script, &more(false)), &volumes).await;
        assert!(output.contains("done\n") && !output.contains("used"), "{output}");
    }
    let (_, output) = place.run_with(script_with(script, &more(true)), &volumes).await;
    assert_eq!(output.matches("used").count(), 3, "a privileged container has devices: {output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_keep_namespaces_lead_nowhere() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    // Even with the right to look into other processes.
    let more = json!({
        "pod": {"shareProcessNamespace": true},
        "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
    });
    let (_, output) = place.run(script_with("ls -A /proc/1/root/ && echo listed; ls /proc/1/cwd", &more)).await;
    assert_eq!(output, "listed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_never_on_disk() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = crate::place::pod(script_with(
        "cat /s/key; sleep 1000",
        &json!({
            "env": [{"name": "PASSWORD", "value": "correct-horse-env"}],
            "volumeMounts": [{"name": "s", "mountPath": "/s"}],
            "pod": {"volumes": [{"name": "s", "secret": {}}]},
        }),
    ));
    place.create_with(&pod, &[("s", files(&[("key", 0o400, "correct-horse-file")]))]).await;
    place.start(&pod, 0).await.unwrap();
    let (_, mounted) = place.exec(&pod, "cat /s/key; grep ' /s ' /proc/self/mounts").await;
    assert!(mounted.starts_with("correct-horse-file") && mounted.contains("tmpfs"), "{mounted}");
    let found = std::process::Command::new("grep").arg("-rl").arg("correct-horse").arg(place.pod_dir(&pod)).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    // Only what the container itself has printed.
    assert!(found.lines().all(|file| file.contains("/logs/")), "{found}");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_volumes_do_not_lead_out() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let pod = crate::place::pod(script_with(
        "true",
        &json!({
            "volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "link/x"}],
            "pod": {"volumes": [{"name": "e", "emptyDir": {}}]},
        }),
    ));
    place.create_with(&pod, &[("e", Volume::EmptyDir { medium: String::new(), limit: None })]).await;
    std::os::unix::fs::symlink("/etc", place.pod_dir(&pod).join("volumes/e/link")).unwrap();
    let error = place.start(&pod, 0).await.unwrap_err();
    assert!(error.to_string().contains("cannot mount"), "{error}");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_processes_are_limited() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let shortcomings = place.runtime.shortcomings();
    if let Some(why) = shortcomings.iter().find(|one| one.condition == "ContainersIsolated") {
        eprintln!("SKIPPED: {}", why.message);
        return;
    }
    let limit = json!({"resources": {"limits": {"memory": "16Mi"}}});
    let (exit, _) = place.run(script_with("exec tail /dev/zero", &limit)).await;
    assert_eq!((exit.code, exit.reason()), (137, "OOMKilled"));
    let (exit, output) = place.run(script("bomb() { bomb | bomb & }; bomb; sleep 1; exit 3")).await;
    assert!(exit.code != 0, "{output}");
}
