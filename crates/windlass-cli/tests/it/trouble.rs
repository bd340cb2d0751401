//! Full disks, kubeconfigs that cannot be written, and processes that do not answer.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process::{Running, Said, eventually};
use crate::windlass::Sandbox;

/// Runs `windlass` where files can be made but nothing can be written to them, as on a full disk.
fn on_a_full_disk(sandbox: &Sandbox, args: &str) -> Said {
    let windlass = sandbox.command(args);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""]);
    command.arg(windlass.get_program()).args(windlass.get_args()).stdin(Stdio::null());
    command.envs(windlass.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap().into()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pid(said: &Value) -> Pid {
    Pid::from_raw(i32::try_from(said["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

#[test]
fn a_full_disk_is_reported_with_the_file() {
    let sandbox = Sandbox::new();
    for (args, action, file) in [
        ("up --name one", "allocate", "data/store/log-00000000000000000002.log"),
        ("up --name one --ephemeral", "write", "kubeconfig"),
    ] {
        let said = on_a_full_disk(&sandbox, args);
        assert_eq!(said.status.code(), Some(1), "{args}");
        assert!(said.stderr.starts_with("error: the cluster did not start: "), "{args}: {}", said.stderr);
        let file = sandbox.path("clusters/one").join(file);
        assert!(said.stderr.contains(&format!("{action} {}", file.display())), "{args}: {}", said.stderr);
        assert!(said.stderr.contains("File too large"), "{args}: {}", said.stderr);
        assert_eq!(names(&sandbox.path("clusters")), [""; 0], "{args}");
    }
}

#[test]
fn a_kubeconfig_on_a_full_disk_stays_as_it_was() {
    let sandbox = Sandbox::new();
    sandbox.succeeds("up --name one");
    let before = std::fs::read_to_string(sandbox.user_kubeconfig()).unwrap();
    let said = on_a_full_disk(&sandbox, "down --name one");
    assert!(said.stderr.contains("cluster \"one\" stopped, but stays in your kubeconfig"), "{}", said.stderr);
    assert!(said.stderr.contains(&format!("cannot write {}", sandbox.user_kubeconfig().display())), "{}", said.stderr);
    assert_eq!(std::fs::read_to_string(sandbox.user_kubeconfig()).unwrap(), before);
    assert_eq!(names(&sandbox.path("")), ["clusters", "user-kubeconfig"]);
    sandbox.succeeds("down --name one");
}

#[test]
fn a_cluster_that_never_was_asks_nothing_of_the_kubeconfig() {
    let sandbox = Sandbox::new();
    // There cannot be a lock beside a file with a name as long as this, so it cannot be edited.
    let file = sandbox.path(&"k".repeat(253));
    std::fs::write(&file, "apiVersion: v1\ncontexts: []\n").unwrap();
    let down = || -> Said { sandbox.command("down --name one").env("KUBECONFIG", &file).output().unwrap().into() };
    let said = down();
    assert_eq!((said.status.code(), said.stderr.as_str()), (Some(0), ""));
    assert_eq!(said.stdout, "cluster \"one\" was not running\n");

    std::fs::write(&file, "contexts: [{name: windlass-one}]\n").unwrap();
    let said = down();
    let text = "error: cluster \"one\" was not running, but stays in your kubeconfig: cannot create ";
    assert!(said.stderr.starts_with(text), "{}", said.stderr);

    std::fs::write(&file, "contexts: [").unwrap();
    let said = down();
    let text = "error: cluster \"one\" was not running; your kubeconfig cannot be read: ";
    assert!(said.stderr.starts_with(text), "{}", said.stderr);
}

#[test]
fn a_lock_that_a_killed_windlass_left_is_taken_over() {
    let sandbox = Sandbox::new();
    let lock = sandbox.path("user-kubeconfig.lock");
    // The command may be done before it is killed.
    let left = eventually("a lock is left behind", || {
        let up = Running::spawn(&mut sandbox.command("up --name one"));
        let run = sandbox.path("clusters/one/run.json");
        eventually("it edits the kubeconfig, or has", || run.exists().then_some(()));
        up.signal(Signal::KILL);
        up.wait();
        let left = std::fs::read_to_string(&lock).ok();
        if left.is_none() {
            sandbox.succeeds("down --name one");
        }
        left
    });
    assert_eq!(left, "windlass\n");
    eventually("its server has stopped", || sandbox.processes().is_empty().then_some(()));
    sandbox.succeeds("up --name one");
    sandbox.succeeds("down --name one");
    assert!(!lock.exists());
}

#[test]
fn a_cluster_that_is_suspended_is_stopped() {
    let sandbox = Sandbox::new();
    let said: Value = serde_json::from_str(&sandbox.succeeds("up --name one -o json")).unwrap();
    kill_process(pid(&said), Signal::STOP).unwrap();
    let down: Value = serde_json::from_str(&sandbox.succeeds("down --name one -o json")).unwrap();
    assert_eq!(down, json!({"name": "one", "stopped": true, "killed": false, "purged": false}));
}

#[test]
fn killing_a_process_that_does_not_stop_is_reported() {
    let sandbox = Sandbox::new();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap '' TERM; echo deaf; kill -STOP $$; while :; do kill -STOP $$; done",
        "sh",
        "--foreground",
    ]);
    let deaf = Running::spawn(&mut command);
    deaf.line_with("deaf");
    std::fs::create_dir_all(sandbox.path("clusters/one")).unwrap();
    let mut run = std::fs::File::create(sandbox.path("clusters/one/run.json")).unwrap();
    let record = json!({"pid": deaf.pid(), "server": "https://127.0.0.1:1", "ephemeral": false});
    run.write_all(record.to_string().as_bytes()).unwrap();
    let said = sandbox.succeeds("down --name one");
    let text = "cluster \"one\" did not stop within 10 seconds and was killed; what it had acknowledged is on disk\n";
    assert_eq!(said, text);
    assert_eq!(deaf.wait().code(), None);
}

/// A user who could replace the certificate authority or the store would be an administrator.
#[test]
fn a_data_directory_that_others_may_write_is_refused() {
    let sandbox = Sandbox::new();
    let mode = |name: &str, mode: u32| {
        std::fs::create_dir_all(sandbox.path(name)).unwrap();
        std::fs::set_permissions(sandbox.path(name), Permissions::from_mode(mode)).unwrap();
    };
    for part in ["data", "data/pki", "data/store"] {
        mode(part, 0o777);
        let said = sandbox.fails("up --foreground --nodes 0 --data-dir data --kubeconfig kubeconfig");
        let problem = "cannot be used: other users may write to it (mode 0777): run `chmod go-w` on it";
        assert!(said.contains(&format!("the directory {part} {problem}")), "{said}");
        mode(part, 0o755);
        assert!(!sandbox.path("data/pki/ca.key").exists(), "nothing was written");
    }
    let process =
        Running::spawn(&mut sandbox.command("up --foreground --nodes 0 --data-dir data --kubeconfig kubeconfig"));
    process.line_with("ready");
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}

/// `ulimit -f` limits the size of each file, and its signal would end a process that does not expect it.
#[tokio::test]
async fn a_limit_on_files_refuses_writes_until_it_is_raised() {
    let sandbox = Sandbox::new();
    let start = |shell: &str| {
        let windlass = sandbox.command("up --foreground --nodes 0 --data-dir data --kubeconfig kubeconfig");
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\"")]);
        command.arg(windlass.get_program()).args(windlass.get_args()).current_dir(sandbox.path(""));
        command.envs(windlass.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let process = Running::spawn(command.env("RUST_LOG", "off"));
        process.line_with("ready");
        process
    };
    let process = start("true");
    process.signal(Signal::TERM);
    assert!(process.wait().success());

    let process = start("ulimit -S -f 10000");
    let file = Kubeconfig::read_from(sandbox.path("kubeconfig")).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let map = |number: usize| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(500_000)}}))
            .unwrap()
    };
    let mut written = 0;
    let refused = loop {
        match maps.create(&PostParams::default(), &map(written)).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "nothing was refused");
    };
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    assert!(maps.create(&PostParams::default(), &map(written)).await.is_err());
    let last = written - 1;
    assert_eq!(maps.get(&format!("m{last}")).await.unwrap().data, map(last).data, "reads are served");
    let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap());
    let unlimited = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, unlimited).unwrap();
    maps.create(&PostParams::default(), &map(written)).await.unwrap();
    process.signal(Signal::TERM);
    assert!(process.wait().success());
}
