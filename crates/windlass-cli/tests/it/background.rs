//! `up`, `status`, `list`, `kubeconfig` and `down` of clusters in the background.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::windlass::Sandbox;

/// A user's kubeconfig with things that Windlass knows nothing of.
const THEIRS: &str = "\
# Mine.
kind: Config
apiVersion: v1
preferences: {colors: true, n: '0123', m: 1e3} # as written
clusters:
- name: prod
  cluster: {server: 'https://prod.example.com', certificate-authority: /etc/prod.pem}
contexts:
- name: prod
  context: {cluster: prod, user: me, namespace: shop}
current-context: prod
users:
- name: me
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: [--quiet]}}
";

/// Takes the cluster down even when the test fails.
struct Up<'a> {
    sandbox: &'a Sandbox,
    name: &'static str,
}

impl<'a> Up<'a> {
    fn new(sandbox: &'a Sandbox, name: &'static str) -> (Self, Value) {
        let up = Self { sandbox, name };
        let said = sandbox.succeeds(&format!("up --name {name} -o json"));
        (up, serde_json::from_str(&said).unwrap())
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.sandbox.windlass(&format!("down --name {}", self.name));
    }
}

fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn parsed(sandbox: &Sandbox, args: &str) -> Value {
    serde_json::from_str(&sandbox.windlass(args).stdout).unwrap()
}

#[test]
fn a_cluster_is_started_shown_and_stopped() {
    let sandbox = Sandbox::new();
    let (up, said) = Up::new(&sandbox, "one");
    assert_eq!((&said["name"], &said["context"]), (&json!("one"), &json!("windlass-one")));

    let status = parsed(&sandbox, "status --name one -o json");
    assert_eq!((&status["running"], &status["healthy"]), (&json!(true), &json!(true)));
    assert_eq!((&status["server"], &status["pid"]), (&said["server"], &said["pid"]));
    assert!(status["version"].as_str().unwrap().starts_with("v1.36"), "{status}");
    assert!(sandbox.succeeds("status --name one").contains("cluster \"one\" runs at https://127.0.0.1:"));
    assert!(sandbox.succeeds("list").lines().any(|line| line.starts_with("one ") && line.contains("running")));

    let config = parsed(&sandbox, "kubeconfig --name one -o json");
    assert_eq!(config["current-context"], "windlass-one");
    assert_eq!(config["clusters"][0]["cluster"]["server"], said["server"]);
    let yaml: Value = serde_saphyr::from_str(&sandbox.succeeds("kubeconfig --name one")).unwrap();
    assert_eq!(yaml, config);

    drop(up);
    assert_eq!(parsed(&sandbox, "status --name one -o json"), json!({"name": "one", "running": false}));
    std::fs::create_dir_all(sandbox.path("clusters/somebody-elses")).unwrap();
    assert_eq!(parsed(&sandbox, "list -o json"), json!([{"name": "one", "running": false, "server": null}]));
    // One that has ended but that has not been waited for has no command line any more.
    let command = std::fs::read(format!("/proc/{}/cmdline", said["pid"])).unwrap_or_default();
    assert!(command.is_empty(), "the process still runs");
    assert!(sandbox.succeeds("down --name one --purge").contains("was not running"));
    assert_eq!(parsed(&sandbox, "list -o json"), json!([]));
}

#[test]
fn the_users_kubeconfig_gains_a_context_and_loses_it_again() {
    let sandbox = Sandbox::new();
    let file = sandbox.user_kubeconfig();
    std::fs::write(&file, THEIRS).unwrap();
    let theirs = read(&file);

    let (up, said) = Up::new(&sandbox, "one");
    let merged = read(&file);
    assert_eq!(merged["current-context"], "windlass-one");
    assert_eq!(mode(&file), 0o600);
    for section in ["clusters", "contexts", "users"] {
        assert_eq!(merged[section].as_array().unwrap().len(), 2, "{section}");
        assert_eq!(merged[section][0], theirs[section][0], "{section}");
        assert_eq!(merged[section][1]["name"], "windlass-one");
    }
    assert_eq!(merged["preferences"], theirs["preferences"]);
    assert_eq!(merged["clusters"][1]["cluster"]["server"], said["server"]);
    assert!(merged["users"][1]["user"]["client-certificate-data"].is_string());

    let (other, _) = Up::new(&sandbox, "two");
    assert_eq!(read(&file)["current-context"], "windlass-two");
    drop(up);
    assert_eq!(read(&file)["current-context"], "windlass-two");
    assert_eq!(read(&file)["contexts"].as_array().unwrap().len(), 2);
    drop(other);

    let mut left = read(&file);
    // The context before it, "windlass-one", is gone.
    assert_eq!(left["current-context"], "");
    left["current-context"] = theirs["current-context"].clone();
    assert_eq!(left, theirs);
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_kubeconfig_of_its_own_leaves_the_users_alone() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("own");
    sandbox.succeeds(&format!("up --ephemeral --name one --kubeconfig {}", file.display()));
    assert!(!sandbox.user_kubeconfig().exists());
    assert_eq!(mode(&file), 0o600);
    assert_eq!(read(&file)["current-context"], "windlass-one");
    sandbox.succeeds("down --name one");
    assert!(!file.exists());
    assert!(!sandbox.user_kubeconfig().exists());
}

#[test]
fn a_second_up_of_the_same_name_is_refused() {
    let sandbox = Sandbox::new();
    let (_up, said) = Up::new(&sandbox, "one");
    let again = sandbox.fails("up --name one");
    assert!(again.contains("cluster \"one\" already runs at"), "{again}");
    assert!(again.contains("windlass down --name one"), "{again}");
    assert_eq!(parsed(&sandbox, "status --name one -o json")["pid"], said["pid"]);
}

#[test]
fn two_clusters_on_one_data_directory_are_refused() {
    let sandbox = Sandbox::new();
    let (_up, _) = Up::new(&sandbox, "one");
    let data = sandbox.path("clusters/one/data");
    let said = sandbox.fails(&format!("up --name two --data-dir {}", data.display()));
    assert!(said.contains("cannot open the data directory"), "{said}");
    assert_eq!(parsed(&sandbox, "status --name one -o json")["healthy"], true);
    assert_eq!(parsed(&sandbox, "status --name two -o json")["running"], false);
}

#[test]
fn a_cluster_that_died_can_be_started_again() {
    let sandbox = Sandbox::new();
    let (_up, said) = Up::new(&sandbox, "one");
    let pid = rustix::process::Pid::from_raw(i32::try_from(said["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    crate::process::eventually("it is seen to be dead", || {
        (parsed(&sandbox, "status --name one -o json")["running"] == false).then_some(())
    });
    let (_again, said) = Up::new(&sandbox, "one");
    assert_eq!(parsed(&sandbox, "status --name one -o json")["pid"], said["pid"]);
    assert_eq!(read(&sandbox.user_kubeconfig())["contexts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_cluster_serves_where_it_served_before() {
    let sandbox = Sandbox::new();
    let (up, said) = Up::new(&sandbox, "one");
    let pid = rustix::process::Pid::from_raw(i32::try_from(said["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    crate::process::eventually("it is seen to be dead", || {
        (parsed(&sandbox, "status --name one -o json")["running"] == false).then_some(())
    });
    let (_again, after_crash) = Up::new(&sandbox, "one");
    assert_eq!(after_crash["server"], said["server"]);
    drop(up);
    // Unless something else is there.
    let port = said["server"].as_str().unwrap().trim_start_matches("https://");
    let _taken = std::net::TcpListener::bind(port).unwrap();
    let (_elsewhere, moved) = Up::new(&sandbox, "one");
    assert_ne!(moved["server"], said["server"]);
}

#[test]
fn the_context_before_is_current_again() {
    let sandbox = Sandbox::new();
    let file = sandbox.user_kubeconfig();
    let target = sandbox.path("elsewhere");
    std::fs::write(&target, THEIRS).unwrap();
    std::os::unix::fs::symlink(&target, &file).unwrap();
    let (up, _) = Up::new(&sandbox, "one");
    assert_eq!(read(&file)["current-context"], "windlass-one");
    drop(up);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), THEIRS);
    assert!(file.is_symlink(), "the user's link was replaced by a file");
}

#[test]
fn a_kubeconfig_without_clusters_is_as_before() {
    let sandbox = Sandbox::new();
    let file = sandbox.user_kubeconfig();
    let target = sandbox.path("later/kubeconfig");
    std::os::unix::fs::symlink("later/kubeconfig", &file).unwrap();
    // A link to a file that is not there yet.
    drop(Up::new(&sandbox, "one"));
    assert_eq!(read(&target)["contexts"], json!([]));
    for text in ["", "# Nothing yet.", "clusters: null\r\ncurrent-context: \"\" # none\r\ncontexts: []\r\n", "{}"] {
        std::fs::write(&target, text).unwrap();
        let (up, _) = Up::new(&sandbox, "one");
        assert_eq!(read(&file)["users"][0]["name"], "windlass-one");
        drop(up);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), text);
        assert!(file.is_symlink(), "the user's link was replaced by a file");
    }
}

#[test]
fn clusters_started_at_once_are_all_in_the_kubeconfig() {
    let sandbox = Sandbox::new();
    let names = ["one", "two", "three", "four"];
    let ups: Vec<Up> = std::thread::scope(|scope| {
        let starts: Vec<_> = names.map(|name| scope.spawn(|| Up::new(&sandbox, name).0)).into_iter().collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert_eq!(read(&sandbox.user_kubeconfig())["contexts"].as_array().unwrap().len(), names.len());
    drop(ups);
    assert_eq!(read(&sandbox.user_kubeconfig())["contexts"], json!([]));
    assert!(!sandbox.path("user-kubeconfig.lock").exists());
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "").unwrap();
    let said = sandbox.fails(&format!("up --name one --data-dir {}/data", sandbox.path("file").display()));
    assert!(said.contains("the cluster did not start"), "{said}");
    assert_eq!(parsed(&sandbox, "list -o json"), json!([]));
}

#[test]
fn down_stops_a_cluster_whatever_the_kubeconfig_is_like() {
    let sandbox = Sandbox::new();
    let (_up, _) = Up::new(&sandbox, "one");
    std::fs::write(sandbox.user_kubeconfig(), "clusters: [").unwrap();
    let said = sandbox.fails("down --name one");
    assert!(said.contains("cluster \"one\" stopped, but stays in your kubeconfig"), "{said}");
    assert_eq!(parsed(&sandbox, "status --name one -o json"), json!({"name": "one", "running": false}));
    std::fs::remove_file(sandbox.user_kubeconfig()).unwrap();
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let sandbox = Sandbox::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said: crate::process::Said = sandbox.command("list").stdout(full).output().unwrap().into();
    assert_eq!(said.status.code(), Some(1));
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    assert!(said.stderr.contains("cannot write to standard output"), "{}", said.stderr);
}

#[test]
fn empty_kubeconfigs_are_read_again() {
    let sandbox = Sandbox::new();
    let (_up, _) = Up::new(&sandbox, "one");
    let (file, lock) = (sandbox.user_kubeconfig(), sandbox.path("user-kubeconfig.lock"));
    let text = std::fs::read_to_string(&file).unwrap();
    // As kubectl does.
    std::fs::write(&lock, "").unwrap();
    std::fs::write(&file, "").unwrap();
    let down = crate::process::Running::spawn(&mut sandbox.command("down --name one"));
    crate::process::eventually("the cluster has stopped", || {
        (parsed(&sandbox, "status --name one -o json")["running"] == false).then_some(())
    });
    std::fs::write(&file, text).unwrap();
    std::fs::remove_file(&lock).unwrap();
    assert!(down.wait().success());
    assert_eq!(read(&file)["contexts"], json!([]));
}

#[test]
fn clusters_that_die_early_are_not_in_the_kubeconfig() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.user_kubeconfig(), THEIRS).unwrap();
    let lock = sandbox.path("user-kubeconfig.lock");
    std::fs::write(&lock, "").unwrap();
    let up = crate::process::Running::spawn(&mut sandbox.command("up --name one"));
    let store = sandbox.path("clusters/one/data/store/LOCK");
    let kubeconfig = sandbox.path("clusters/one/kubeconfig");
    let pid = crate::process::eventually("it serves", || {
        let pid = std::fs::read_to_string(&store).ok()?.lines().next()?.parse().ok()?;
        kubeconfig.exists().then_some(pid)
    });
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // It is a zombie until `up` looks after it.
    crate::process::eventually("it is dead", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        (stat.is_empty() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))).then_some(())
    });
    std::fs::remove_file(&lock).unwrap();
    assert!(!up.wait().success());
    assert_eq!(read(&sandbox.user_kubeconfig()), serde_saphyr::from_str::<Value>(THEIRS).unwrap());
    assert_eq!(parsed(&sandbox, "list -o json"), json!([]));
}
