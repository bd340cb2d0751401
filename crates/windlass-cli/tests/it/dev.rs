//! `windlass dev` with an operator that reconciles nothing, but says that it does: no dependency has to be compiled.
//! `tests/dev/measure.py` runs it with a project as `windlass init` writes it.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::process::{Running, eventually};
use crate::terminal::Terminal;
use crate::windlass::{Cluster, Sandbox};

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"hens.farm.example.com"},"spec":{"group":"farm.example.com","scope":"Namespaced","names":{"kind":"Hen","plural":"hens"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;

const RECONCILED: &str = r#"{"level":"DEBUG","target":"windlass::reconciled","fields":{"key":"default/hen","outcome":"success","seconds":0.001},"span":{"controller":"hen"}}"#;

const HEN: &str = "apiVersion: farm.example.com/v1\nkind: Hen\nmetadata:\n  name: hen\n";
const CHICK: &str = "apiVersion: farm.example.com/v1\nkind: Hen\nmetadata:\n  name: chick\n";

/// The source of the operator, which says `word` when it starts.
fn operator(word: &str) -> String {
    format!(
        "fn main() {{\n    if let Ok(path) = std::env::var(\"WINDLASS_MANIFESTS\") {{\n        std::fs::write(path, \
         {DEFINITION:?}).unwrap();\n        return;\n    }}\n    eprintln!(\"{word}\");\n    eprintln!(\"{{}}\", \
         {RECONCILED:?});\n    loop {{\n        std::thread::park();\n    }}\n}}\n"
    )
}

/// Makes a project.
fn project(sandbox: &Sandbox, source: &str, sample: &str) {
    let write = |path: &str, text: &str| {
        let path = sandbox.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[package]\nname = \"farm\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n");
    write("src/main.rs", source);
    write("config/samples/hen.yaml", sample);
}

/// The command in the project, for a cluster.
fn command(sandbox: &Sandbox, cluster: &Cluster, args: &str) -> Command {
    let mut command = sandbox.command(args);
    command.arg("--kubeconfig").arg(&cluster.kubeconfig);
    // Cargo finds its tool chain in the real home.
    let home = std::env::var_os("HOME").unwrap_or_default();
    command.env("HOME", home).env("CARGO_TARGET_DIR", sandbox.path("target")).env("CARGO_NET_OFFLINE", "true");
    command
}

/// A project, and the loop that runs in it.
struct Dev {
    sandbox: Sandbox,
    process: Running,
    // Dropped last.
    _cluster: Cluster,
}

impl Dev {
    fn start() -> Self {
        Self::start_with("dev -o json", &operator("first"), HEN)
    }

    fn start_with(args: &str, source: &str, sample: &str) -> Self {
        let (sandbox, cluster) = (Sandbox::new(), Cluster::ephemeral());
        project(&sandbox, source, sample);
        Self { process: Running::spawn(&mut command(&sandbox, &cluster, args)), sandbox, _cluster: cluster }
    }

    /// The next event of a name.
    #[track_caller]
    fn event(&self, name: &str) -> Value {
        serde_json::from_str(&self.process.line_with(&format!("\"event\":\"{name}\""))).unwrap()
    }

    fn save(&self, text: &str) {
        std::fs::write(self.sandbox.path("src/main.rs"), text).unwrap();
    }

    /// The processes of this project.
    fn processes(&self) -> Vec<String> {
        self.sandbox.processes()
    }
}

#[test]
fn a_saved_file_becomes_a_new_operator() {
    let dev = Dev::start();
    assert_eq!(dev.event("buildStarted")["files"], serde_json::json!([]));
    assert_eq!(dev.event("definitions")["names"], serde_json::json!(["hens.farm.example.com"]));
    assert_eq!(dev.event("samplesApplied")["count"], 1);

    dev.save(&operator("second"));
    assert_eq!(dev.event("buildStarted")["files"], serde_json::json!(["src/main.rs"]));
    dev.event("buildFinished");
    assert_eq!(dev.event("log")["text"], "second");
    let done = dev.event("reconciling");
    assert_eq!(done["files"], serde_json::json!(["src/main.rs"]));
    assert!(done["totalSeconds"].as_f64() > done["compilerSeconds"].as_f64(), "{done}");

    // A build that fails leaves the operator as it is.
    dev.save("nonsense");
    let failed = dev.event("buildFailed");
    assert!(failed["errors"].as_str().unwrap().contains("src/main.rs:1"), "{failed}");
    assert!(dev.processes().iter().any(|line| line.ends_with("debug/farm\0")), "{:?}", dev.processes());
    dev.save(&operator("third"));
    dev.event("reconciling");

    // A sample is applied by itself.
    std::fs::write(
        dev.sandbox.path("config/samples/hen.yaml"),
        "apiVersion: farm.example.com/v1\nkind: Hen\nmetadata:\n  name: hen\nspec:\n  eggs: 2\n",
    )
    .unwrap();
    assert_eq!(dev.event("samplesApplied")["count"], 1);
    // In a directory that is new, and then gone again.
    std::fs::create_dir(dev.sandbox.path("config/samples/more")).unwrap();
    std::fs::write(dev.sandbox.path("config/samples/more/chick.yaml"), CHICK).unwrap();
    while dev.event("object")["object"] != "default/chick" {}
    std::fs::remove_dir_all(dev.sandbox.path("config/samples/more")).unwrap();
    // The watch may be first to say it.
    let (mut is_said, mut is_gone) = (false, false);
    while !(is_said && is_gone) {
        let line = dev.process.line().expect("the loop goes on");
        let event: Value = serde_json::from_str(&line).unwrap();
        is_said |= event["event"] == "samplesDeleted" && event["objects"] == serde_json::json!(["Hen chick"]);
        is_gone |= event["event"] == "object" && event["object"] == "default/chick" && event["gone"] == true;
    }

    dev.process.signal(Signal::TERM);
    eventually("the operator ends with the loop", || dev.processes().is_empty().then_some(()));
    assert_eq!(dev.process.wait().code(), Some(143));
}

/// An event of the sample.
const FED: &str = "\
apiVersion: v1
kind: Event
metadata: {name: hen.1, namespace: default}
involvedObject: {apiVersion: farm.example.com/v1, kind: Hen, namespace: default, name: hen}
type: Normal
reason: Fed
message: it has eaten
lastTimestamp: '2026-01-01T00:00:00Z'
";

#[test]
fn keys_show_events_and_end_the_loop() {
    let (sandbox, cluster) = (Sandbox::new(), Cluster::ephemeral());
    project(&sandbox, &operator("first"), HEN);
    let mut terminal = Terminal::spawn(&mut command(&sandbox, &cluster, "dev"));
    terminal.shows("1 applied");
    assert!(!terminal.is_usual(), "keys are read one by one");
    terminal.press("e");
    terminal.shows("none of this project's objects");
    std::fs::write(sandbox.path("event.yaml"), FED).unwrap();
    sandbox.succeeds(&format!("apply -f event.yaml --kubeconfig {}", cluster.kubeconfig.display()));
    // What is no key is left alone; upper case is as good.
    terminal.press("xE");
    terminal.shows("Normal Hen hen: Fed it has eaten");
    terminal.press("q");
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(terminal.is_usual(), "the terminal is as it was");
    eventually("the operator ends with the loop", || sandbox.processes().is_empty().then_some(()));
}

#[test]
fn once_succeeds_only_with_an_operator_that_works() {
    // Ready as it is: an earlier run may have left it so.
    let sample = "apiVersion: farm.example.com/v1\nkind: Hen\nmetadata:\n  name: hen\nstatus:\n  conditions:\n  \
                  - {type: Ready, status: 'True'}\n";
    let works = Dev::start_with("dev --once -o json", &operator("first"), sample);
    assert_eq!(works.process.wait().code(), Some(0));
    let source =
        operator("first").replace("loop {", "std::process::exit(3);\n    #[allow(unreachable_code)]\n    loop {");
    let source = source.replace(&format!("eprintln!(\"{{}}\", {RECONCILED:?});"), "");
    let fails = Dev::start_with("dev --once --timeout 2 -o json", &source, sample);
    let note = fails.event("note").to_string();
    assert!(note.contains("the operator does not keep running"), "{note}");
    assert_eq!(fails.process.wait().code(), Some(1));
}

#[test]
fn a_killed_loop_leaves_no_operator() {
    let dev = Dev::start();
    dev.event("reconciled");
    dev.process.signal(Signal::KILL);
    eventually("the operator ends", || {
        dev.processes().iter().all(|line| !line.ends_with("debug/farm\0")).then_some(())
    });
}

#[test]
fn a_tiltfile_is_written_once_and_in_projects_only() {
    let sandbox = Sandbox::new();
    for outside in ["dev", "dev --tiltfile", "test"] {
        assert!(sandbox.fails(outside).contains("there is no project here"), "{outside}");
    }
    std::fs::write(sandbox.path("Cargo.toml"), "").unwrap();
    sandbox.succeeds("dev --tiltfile");
    let text = std::fs::read_to_string(sandbox.path("Tiltfile")).unwrap();
    assert!(text.contains("windlass run"), "{text}");
    assert!(sandbox.succeeds("dev --tiltfile").contains("nothing to change"));
    std::fs::write(sandbox.path("Tiltfile"), "# mine\n").unwrap();
    assert!(sandbox.fails("dev --tiltfile").contains("Tiltfile"));
    // Whatever tool reads it, `cmd`s are commands of this windlass.
    for command in ["install", "run", "apply"] {
        assert!(
            Command::new(env!("CARGO_BIN_EXE_windlass")).args([command, "--help"]).output().unwrap().status.success()
        );
    }
}

#[test]
fn tests_reach_a_cluster_of_their_own() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("src")).unwrap();
    let manifest = "[package]\nname = \"farm\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(sandbox.path("Cargo.toml"), manifest).unwrap();
    let test = "#[test]\nfn reaches() {\n    let text = std::fs::read_to_string(std::env::var(\"KUBECONFIG\").unwrap()).unwrap();\n    \
                let at = text.split(\"https://\").nth(1).unwrap().split_whitespace().next().unwrap();\n    \
                std::net::TcpStream::connect(at.trim_matches('\"')).unwrap();\n}\n#[test]\nfn fails() {\n    panic!();\n}\n";
    std::fs::write(sandbox.path("src/lib.rs"), test).unwrap();
    let windlass = |args: &str| {
        let mut command = sandbox.command(args);
        let home = std::env::var_os("HOME").unwrap_or_default();
        command.env("HOME", home).env("CARGO_TARGET_DIR", sandbox.path("target")).env("CARGO_NET_OFFLINE", "true");
        command.output().unwrap()
    };
    let passed = windlass("test reaches");
    assert!(passed.status.success(), "{}", String::from_utf8_lossy(&passed.stdout));
    assert!(String::from_utf8_lossy(&passed.stdout).contains("1 passed"));
    assert_eq!(windlass("test").status.code(), Some(101), "as cargo says it");
    assert_eq!(sandbox.processes(), Vec::<String>::new());
}
