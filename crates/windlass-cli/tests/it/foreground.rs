//! `up --foreground`: files, signals, stopping.

use std::os::unix::fs::PermissionsExt as _;

use futures::future::ready;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::Signal;

use crate::process::is_heeded;
use crate::windlass::{Cluster, Sandbox};

pub(crate) async fn client(cluster: &Cluster) -> Client {
    let file = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[test]
fn the_kubeconfig_is_only_for_its_owner() {
    let cluster = Cluster::ephemeral();
    let mode = std::fs::metadata(&cluster.kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn certificates_and_objects_are_only_for_their_owner() {
    let sandbox = Sandbox::new();
    let cluster = Cluster::durable(&sandbox.path("data"));
    for secret in ["data/pki", "data/store"] {
        let mode = std::fs::metadata(sandbox.path(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{secret}: {mode:o}");
    }
    for entry in std::fs::read_dir(sandbox.path("data/pki")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().contains("key") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
        }
    }
    drop(cluster);
}

#[tokio::test]
async fn it_stops_on_each_signal_with_watches_open() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().filter(|signal| is_heeded(*signal)) {
        let cluster = Cluster::ephemeral();
        let client = client(&cluster).await;
        let params = WatchParams::default().timeout(290);
        let pods = Api::<Pod>::all(client.clone()).watch(&params, "0").await.unwrap();
        let maps = Api::<ConfigMap>::all(client.clone()).watch(&params, "0").await.unwrap();
        let secrets = Api::<Secret>::all(client).watch(&params, "0").await.unwrap();
        let stopped = tokio::task::spawn_blocking(move || cluster.stop(signal));
        // Each watch ends, cleanly or with the connection, long before its own time is up.
        tokio::join!(ended(pods), ended(maps), ended(secrets));
        assert!(stopped.await.unwrap().success(), "{signal:?}");
    }
}

/// Reads a watch to its end.
async fn ended<K>(watch: impl Stream<Item = kube::Result<WatchEvent<K>>>) {
    watch.take_while(|event| ready(event.is_ok())).for_each(|_| ready(())).await;
}

#[test]
fn ephemeral_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let kubeconfig = sandbox.path("kubeconfig");
    let args = format!("up --foreground --ephemeral --kubeconfig {}", kubeconfig.display());
    let process = crate::process::Running::spawn(&mut sandbox.command(&args));
    process.line_with("ready");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
    assert!(!sandbox.path("clusters").exists());
    assert!(!sandbox.user_kubeconfig().exists());
}

#[test]
fn nohup_keeps_it_running() {
    let sandbox = Sandbox::new();
    let windlass = sandbox.command("up --foreground --ephemeral --kubeconfig kubeconfig");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(windlass.get_program()).args(windlass.get_args());
    command.envs(windlass.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let process = crate::process::Running::spawn(command.current_dir(sandbox.path("")));
    process.line_with("ready");
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{ignored}");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}

#[test]
fn it_may_open_as_many_files_as_the_system_allows() {
    let sandbox = Sandbox::new();
    let windlass = sandbox.command("up --foreground --ephemeral --kubeconfig kubeconfig");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -Sn 100; ulimit -Hn 300; exec \"$0\" \"$@\""]);
    command.arg(windlass.get_program()).args(windlass.get_args());
    command.envs(windlass.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let process = crate::process::Running::spawn(command.current_dir(sandbox.path("")));
    process.line_with("ready");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().take(2).collect::<Vec<_>>(), ["300", "300"]);
}

#[test]
fn the_address_of_an_earlier_run_is_not_told() {
    let sandbox = Sandbox::new();
    let first = crate::process::Running::spawn(&mut sandbox.command("up --foreground --name one"));
    first.line_with("ready");
    let status = || -> serde_json::Value {
        serde_json::from_str(&sandbox.windlass("status --name one -o json").stdout).unwrap()
    };
    assert_eq!(status()["healthy"], true);
    first.signal(Signal::KILL);
    first.wait();
    let second =
        crate::process::Running::spawn(&mut sandbox.command("up --foreground --name one --kubeconfig kubeconfig"));
    second.line_with("ready");
    let said = status();
    assert_eq!((&said["running"], &said["server"]), (&true.into(), &serde_json::Value::Null));
    let said = sandbox.windlass("status --name one").stdout;
    assert!(said.contains("its kubeconfig is in the file that --kubeconfig named"), "{said}");
    let said = sandbox.fails("kubeconfig --name one");
    assert!(said.contains("its kubeconfig is in the file that --kubeconfig named"), "{said}");
    sandbox.succeeds("down --name one");
    assert!(second.wait().success());
}
