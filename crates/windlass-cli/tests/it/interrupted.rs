//! `up` that is interrupted or killed before it is done, and clusters that were not recorded.

use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Running, eventually, is_heeded};
use crate::windlass::Sandbox;

fn parsed(sandbox: &Sandbox, args: &str) -> Value {
    serde_json::from_str(&sandbox.windlass(args).stdout).unwrap()
}

/// Waits until no server of the sandbox runs.
fn no_server(sandbox: &Sandbox) {
    eventually("no server is left", || sandbox.processes().is_empty().then_some(()));
}

/// Moments of a start, each of which is over when there is something to see.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// The cluster has a process.
    Spawned,
    /// It has its store open.
    Opened,
    /// It has written a kubeconfig, and is ready or about to be.
    Served,
}

impl Moment {
    fn has_come(self, sandbox: &Sandbox) -> bool {
        match self {
            Self::Spawned => !sandbox.processes().is_empty(),
            Self::Opened => sandbox.path("clusters/one/data/store/LOCK").exists(),
            Self::Served => sandbox.path("clusters/one/kubeconfig").exists(),
        }
    }
}

/// Starts a cluster while another program edits the kubeconfig, so that the command does not get to its end, and sends it a
/// signal at a moment of the start. Returns how it ended.
fn up_until(sandbox: &Sandbox, moment: Moment, signal: Signal) -> ExitStatus {
    let lock = sandbox.path("user-kubeconfig.lock");
    // It waits for the kubeconfig for some seconds only, and the machine may be busy for longer.
    eventually("a command gets the signal in time", || {
        std::fs::write(&lock, "").unwrap();
        let up = Running::spawn(&mut sandbox.command("up --name one"));
        eventually("the start gets there", || (moment.has_come(sandbox) || up.has_ended()).then_some(()));
        up.signal(signal);
        std::fs::remove_file(&lock).unwrap();
        let status = up.wait();
        (!status.success() && status.code() != Some(1)).then_some(status).or_else(|| {
            sandbox.succeeds("down --name one --purge");
            None
        })
    })
}

#[test]
fn an_up_that_is_killed_leaves_no_server() {
    for moment in [Moment::Spawned, Moment::Opened, Moment::Served] {
        let sandbox = Sandbox::new();
        assert_eq!(up_until(&sandbox, moment, Signal::KILL).code(), None, "{moment:?}");
        no_server(&sandbox);
        assert_eq!(parsed(&sandbox, "status --name one -o json")["running"], false, "{moment:?}");

        sandbox.succeeds("up --name one");
        assert_eq!(parsed(&sandbox, "status --name one -o json")["healthy"], true, "{moment:?}");
        sandbox.succeeds("down --name one");
        no_server(&sandbox);
    }
}

#[test]
fn interrupting_up_stops_the_server_and_leaves_nothing() {
    let signals = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    for (signal, code) in signals.into_iter().filter(|(signal, _)| is_heeded(*signal)) {
        let sandbox = Sandbox::new();
        let said = sandbox.path("said");
        // The command may be faster than the test.
        eventually("a command is interrupted", || {
            let mut command = sandbox.command("up --name one");
            let up = Running::spawn(command.stderr(std::fs::File::create(&said).unwrap()));
            eventually("the cluster has a process", || Moment::Spawned.has_come(&sandbox).then_some(()));
            up.signal(signal);
            let status = up.wait();
            if status.success() {
                sandbox.succeeds("down --name one --purge");
                return None;
            }
            assert_eq!(status.code(), Some(code), "{signal:?}");
            Some(())
        });
        assert!(sandbox.processes().is_empty(), "{signal:?}");
        let said = std::fs::read_to_string(&said).unwrap();
        assert_eq!(said, "interrupted: cluster \"one\" was not started\n", "{signal:?}");
        assert!(!sandbox.path("clusters/one").exists(), "{signal:?}");
        assert_eq!(parsed(&sandbox, "list -o json"), json!([]));
    }
}

#[test]
fn an_interrupted_up_takes_the_context_back() {
    let sandbox = Sandbox::new();
    let theirs = "apiVersion: v1\ncontexts: [{name: prod, context: {}}]\ncurrent-context: prod\n";
    std::fs::write(sandbox.user_kubeconfig(), theirs).unwrap();
    assert_eq!(up_until(&sandbox, Moment::Served, Signal::INT).code(), Some(130));
    assert!(sandbox.processes().is_empty());
    assert!(!sandbox.path("clusters/one").exists());
    let left = std::fs::read_to_string(sandbox.user_kubeconfig()).unwrap();
    assert!(left.contains("current-context: prod") && !left.contains("windlass"), "{left}");
}

#[test]
fn an_unrecorded_server_is_found_by_its_store() {
    let sandbox = Sandbox::new();
    let said: Value = serde_json::from_str(&sandbox.succeeds("up --name one -o json")).unwrap();
    std::fs::remove_file(sandbox.path("clusters/one/run.json")).unwrap();

    let status = parsed(&sandbox, "status --name one -o json");
    assert_eq!((&status["pid"], &status["server"]), (&said["pid"], &said["server"]));
    assert_eq!(status["healthy"], true);
    let running = json!([{"name": "one", "running": true, "server": said["server"]}]);
    assert_eq!(parsed(&sandbox, "list -o json"), running);
    assert!(sandbox.fails("up --name one").contains("cluster \"one\" already runs at https://"));
    assert_eq!(parsed(&sandbox, "down --name one -o json")["stopped"], true);
    no_server(&sandbox);
    assert_eq!(parsed(&sandbox, "status --name one -o json"), json!({"name": "one", "running": false}));
    assert!(!std::fs::read_to_string(sandbox.user_kubeconfig()).unwrap().contains("windlass"));
}

#[test]
fn a_cluster_in_another_terminal_is_found_and_stopped() {
    let sandbox = Sandbox::new();
    let elsewhere: PathBuf = sandbox.path("elsewhere");
    let args = format!("up --foreground --name one --kubeconfig {}", elsewhere.display());
    let cluster = Running::spawn(&mut sandbox.command(&args));
    cluster.line_with("ready");
    let status = parsed(&sandbox, "status --name one -o json");
    assert_eq!((&status["running"], &status["server"]), (&json!(true), &Value::Null));
    assert!(sandbox.windlass("status --name one").stdout.starts_with("cluster \"one\" runs (pid "));
    assert!(sandbox.succeeds("down --name one").contains("cluster \"one\" stopped"));
    assert!(cluster.wait().success());
}
