//! `windlass run` with a program that stands for an operator. What it is given, it writes to a file.

use std::path::Path;

use rustix::process::Signal;

use super::{Stage, pets};
use crate::process::{Running, eventually};

const ROLE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"pets"},"rules":[{"apiGroups":["example.com"],"resources":["pets"],"verbs":["get"]}]}"#;

/// A shell script that declares Pets as an operator does, and then does what `body` says.
fn operator(stage: &Stage, body: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let definition = windlass_api::codec::yaml::parse(pets("").as_bytes()).unwrap().value;
    stage.write("manifests", &format!("{definition}\n{ROLE}\n"));
    let (manifests, file) = (stage.sandbox.path("manifests"), stage.sandbox.path("operator"));
    let text = format!(
        "#!/bin/sh\nif [ -n \"$WINDLASS_MANIFESTS\" ]; then cp {} \"$WINDLASS_MANIFESTS\"; exit; fi\n{body}\n",
        manifests.display()
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Starts `windlass run`.
fn run(stage: &Stage, args: &str) -> Running {
    let program = stage.sandbox.path("operator");
    let config = stage.cluster.kubeconfig.display();
    let mut command =
        stage.sandbox.command(&format!("run --program {} --kubeconfig {config} {args}", program.display()));
    Running::spawn(&mut command)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))
}

#[test]
fn an_operator_runs_with_its_kinds_until_a_signal() {
    let stage = Stage::new();
    operator(
        &stage,
        "trap 'echo stopped > stopped; exit 0' INT TERM\nexec 3<> fifo\n\
         echo \"$@|$WINDLASS_WEBHOOKS|$KUBECONFIG\" > started\nwhile :; do read -r line <&3; done",
    );
    let fifo = std::process::Command::new("mkfifo").arg(stage.sandbox.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let running = run(&stage, "-- --flag value");
    assert_eq!(
        running.line_with("pets.example.com"),
        "customresourcedefinition.apiextensions.k8s.io/pets.example.com created"
    );
    let started = eventually("the operator starts", || read(&stage.sandbox.path("started")));
    let parts: Vec<&str> = started.trim().split('|').collect();
    assert_eq!(parts[..2], ["--flag value", "127.0.0.1:0"]);
    let config = parts[2].to_owned();
    assert!(Path::new(&config).exists());
    running.signal(Signal::INT);
    let status = running.wait();
    assert!(status.success(), "{status}");
    assert_eq!(read(&stage.sandbox.path("stopped")).unwrap(), "stopped\n");
    // Credentials are not left behind.
    assert!(!Path::new(&config).exists());
}

#[test]
fn the_exit_code_is_that_of_the_operator() {
    let stage = Stage::new();
    operator(&stage, "exit 7");
    assert_eq!(run(&stage, "--skip-install").wait().code(), Some(7));
    operator(&stage, "kill -KILL $$");
    assert_eq!(run(&stage, "--skip-install").wait().code(), Some(137));
}

#[test]
fn an_operator_ends_when_the_command_is_killed() {
    let stage = Stage::new();
    operator(
        &stage,
        "trap 'echo stopped > stopped; exit 0' INT TERM\nexec 3<> fifo\necho $$ > started\n\
         while :; do read -r line <&3; done",
    );
    let fifo = std::process::Command::new("mkfifo").arg(stage.sandbox.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let running = run(&stage, "--skip-install");
    eventually("the operator starts", || read(&stage.sandbox.path("started")));
    running.signal(Signal::KILL);
    assert_eq!(eventually("the operator stops", || read(&stage.sandbox.path("stopped"))), "stopped\n");
}

#[test]
fn an_operator_runs_as_its_service_account() {
    let stage = Stage::new();
    operator(&stage, "cp \"$KUBECONFIG\" config; echo \"$WATCH_NAMESPACE\" > started");
    let running = run(&stage, "--as-service-account -n pets-system");
    assert!(running.wait().success());
    assert_eq!(read(&stage.sandbox.path("started")).unwrap(), "pets-system\n");
    let config = std::fs::read_to_string(stage.sandbox.path("config")).unwrap();
    assert!(config.contains("\"token\"") && !config.contains("client-key-data"), "{config}");
    // The account may do what the role says, and nothing else.
    std::fs::copy(stage.sandbox.path("config"), stage.sandbox.user_kubeconfig()).unwrap();
    stage.write("pet.yaml", super::PET);
    let said = stage.sandbox.windlass("apply -f pet.yaml -n default");
    let denied = "\"system:serviceaccount:pets-system:controller-manager\" cannot patch resource \"pets\"";
    assert!(said.stdout.contains(denied), "{}{}", said.stdout, said.stderr);
}
