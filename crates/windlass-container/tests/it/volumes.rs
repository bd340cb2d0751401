//! Volumes: claims, parts of volumes, and files that change while a pod runs.

use std::sync::Arc;

use serde_json::json;
use windlass_container::Isolation;
use windlass_node::runtime::Runtime as _;
use windlass_node::volumes::{Content, File, Mounted, Volume};

use crate::place::{Place, files, pod, script, script_with};

fn mounted(volumes: &[(&str, Volume)]) -> Arc<Mounted> {
    Arc::new(Mounted { volumes: volumes.iter().map(|(name, volume)| ((*name).to_owned(), volume.clone())).collect() })
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_running_pod_change_all_at_once() {
    let Some(mut place) = Place::new(Isolation::Namespaces) else { return };
    let pod = pod(script_with(
        "sleep 1000",
        &json!({
            "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/fixed", "subPath": "a"}],
            "pod": {"volumes": [{"name": "v", "projected": {}}]},
        }),
    ));
    let token = File {
        path: "token".to_owned(),
        mode: 0o600,
        content: Content::Token { audience: String::new(), expiration_seconds: 3600 },
    };
    let volume = |all: &[(&str, i32, &str)]| {
        let Volume::Files(mut all) = files(all) else { unreachable!() };
        all.push(token.clone());
        ("v", Volume::Files(all))
    };
    place.create_with(&pod, &[volume(&[("a", 0o644, "1"), ("b", 0o755, "1")])]).await;
    place.start(&pod, 0).await.unwrap();
    let read = "cat /v/a /v/b /v/c /fixed 2>/dev/null; readlink /v/..data; cat /v/token";
    let (_, before) = place.exec(&pod, read).await;
    assert!(before.starts_with("111..") && before.ends_with("token of default for \"\""), "{before}");
    place.runtime.update(&pod, &mounted(&[volume(&[("a", 0o644, "2"), ("c", 0o644, "2")])])).finish().await.unwrap();
    let (_, after) = place.exec(&pod, read).await;
    assert!(after.starts_with("221..") && after.ends_with("token of default for \"\""), "{after}");
    // The pod is found again, and its parent is lost: what was told about its volumes counts.
    place.restart();
    place.recover(&pod).await;
    place.runtime.update(&pod, &mounted(&[volume(&[("a", 0o644, "3")])])).finish().await.unwrap();
    crate::faults::kill_parent(&place, &pod);
    assert_eq!(place.exit().await.code, 137);
    place.start(&pod, 1).await.unwrap();
    let (_, again) = place.exec(&pod, read).await;
    assert!(again.starts_with("33..") && again.contains("token of default"), "{again}");
    place.remove(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_keep_what_pods_write() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let dir = place.dir.path().join("volumes/pvc-1").display().to_string();
    let claim = |read_only| Volume::HostPath { path: dir.clone(), kind: "DirectoryOrCreate".to_owned(), read_only };
    let container = |text: &str| {
        script_with(
            text,
            &json!({
                "securityContext": {"runAsUser": 1234},
                "volumeMounts": [
                    {"name": "d", "mountPath": "/data", "subPathExpr": "of-$(HOSTNAME)"}, {"name": "d", "mountPath": "/all"},
                ],
                "pod": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]},
            }),
        )
    };
    let (exit, output) = place.run_with(container("echo kept > /all/file; ls /all"), &[("d", claim(false))]).await;
    assert_eq!((exit.code, output.as_str()), (0, "file\nof-web\n"));
    let (_, output) = place.run_with(container("cat /all/file; touch /all/x"), &[("d", claim(true))]).await;
    assert!(output.starts_with("kept\n") && output.contains("Read-only"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_of_config_maps_are_executed() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let volume = [("s", files(&[("run.sh", 0o755, "#!/bin/sh\necho ran\n")]))];
    let container = json!({
        "command": ["/scripts/run.sh"],
        "volumeMounts": [{"name": "s", "mountPath": "/scripts"}],
        "pod": {"volumes": [{"name": "s", "configMap": {"name": "s"}}]},
    });
    let (exit, output) = place.run_with(container, &volume).await;
    assert_eq!((exit.code, output.as_str()), (0, "ran\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sysctls_are_of_the_pod() {
    let Some(place) = Place::new(Isolation::Namespaces) else { return };
    let sysctls = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"}]);
    let more = json!({"pod": {"securityContext": {"sysctls": sysctls}}});
    let (_, output) = place.run(script_with("cat /proc/sys/net/ipv4/ip_unprivileged_port_start", &more)).await;
    assert_eq!(output, "80\n");
    let (_, output) = place.run(script("cat /proc/sys/net/ipv4/ip_unprivileged_port_start")).await;
    assert_eq!(output, "1024\n");
}
