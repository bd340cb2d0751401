//! `windlass manifests` with programs that answer as the library does, and with others. The petstore's
//! own tests have it print the role of a real operator.

use std::io::Write as _;
use std::path::Path;

use rustix::process::Signal;

use crate::process::{Running, eventually};
use crate::windlass::Sandbox;

const ROLE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"pets"},"rules":[{"apiGroups":[""],"resources":["pods"],"resourceNames":["hen"],"verbs":["get"]}]}"#;

/// A package with these programs, each a Rust `main`.
fn package(sandbox: &Sandbox, programs: &[(&str, &str)]) {
    std::fs::create_dir_all(sandbox.path("src/bin")).unwrap();
    let manifest = "[package]\nname = \"operator\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(sandbox.path("Cargo.toml"), manifest).unwrap();
    for (name, body) in programs {
        let file = sandbox.path(&format!("src/bin/{name}.rs"));
        std::fs::write(file, format!("fn main() {{ {body} }}\n")).unwrap();
    }
}

fn answers() -> String {
    format!("std::fs::write(std::env::var(\"WINDLASS_MANIFESTS\").unwrap(), {ROLE:?}).unwrap();")
}

/// A shell script that can be run.
fn script(sandbox: &Sandbox, body: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let file = sandbox.path("script");
    std::fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Runs `windlass`, with a Cargo that keeps what it builds in the sandbox.
#[track_caller]
fn windlass(sandbox: &Sandbox, args: &str) -> (bool, String, String) {
    let mut command = sandbox.command(args);
    // Cargo finds its tool chain in the real home.
    let home = std::env::var_os("HOME").unwrap_or_default();
    command.env("HOME", &home).env("CARGO_TARGET_DIR", sandbox.path("target")).env("CARGO_NET_OFFLINE", "true");
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_package_in_this_directory_is_built_and_asked() {
    let sandbox = Sandbox::new();
    package(&sandbox, &[("operator", &answers())]);
    let (success, stdout, stderr) = windlass(&sandbox, "manifests rbac");
    assert!(success, "{stderr}");
    let expected = "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: pets\n\
                    rules:\n- apiGroups:\n  - \"\"\n  resourceNames:\n  - hen\n  resources:\n  - pods\n  verbs:\n  - get\n";
    assert_eq!(stdout, expected);

    std::fs::write(sandbox.path("src/bin/other.rs"), "fn main() {}\n").unwrap();
    let (success, _, stderr) = windlass(&sandbox, "manifests");
    assert!(!success && stderr.contains("--bin: operator, other"), "{stderr}");
    let (success, stdout, stderr) = windlass(&sandbox, "manifests -p operator --bin operator --name hens -o json");
    assert!(success, "{stderr}");
    let list: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&"List".into(), &"hens".into()));
}

#[test]
fn a_program_that_does_not_build_is_said_not_to() {
    let sandbox = Sandbox::new();
    package(&sandbox, &[("operator", "nonsense")]);
    let (success, stdout, stderr) = windlass(&sandbox, "manifests");
    assert!(!success && stdout.is_empty() && stderr.contains("does not build"), "{stderr}");
}

#[test]
fn programs_print_manifests_without_any_cluster() {
    let sandbox = Sandbox::new();
    let body = format!(
        "[ \"$1\" = --store ] && [ -z \"$ENABLE_WEBHOOKS\" ] && grep -q nowhere $KUBECONFIG && \
         echo '{ROLE}' >> $WINDLASS_MANIFESTS && echo '{ROLE}' >> $WINDLASS_MANIFESTS"
    );
    let program = script(&sandbox, &body);
    let mut command = sandbox.command(&format!("manifests --program {program} -o json -- --store x"));
    let output = command.env("ENABLE_WEBHOOKS", "false").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "of two managers");
}

#[test]
fn roles_of_the_operators_own_namespace_are_where_it_runs() {
    let sandbox = Sandbox::new();
    let role =
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r","namespace":"%s"}}"#;
    let namespace = r#"$(sed 's/.*"namespace":"\([^"]*\)".*/\1/' $KUBECONFIG)"#;
    let program = script(&sandbox, &format!("printf '{role}\n' {namespace} >> $WINDLASS_MANIFESTS"));
    for (option, expected) in [("", serde_json::Value::Null), ("-n petstore-system", "petstore-system".into())] {
        let (success, stdout, stderr) = windlass(&sandbox, &format!("manifests {option} --program {program} -o json"));
        assert!(success, "{stderr}");
        let list: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(list["items"][0]["metadata"]["namespace"], expected, "{stdout}");
    }
}

#[test]
fn a_program_that_does_not_answer_is_quoted() {
    let sandbox = Sandbox::new();
    for (body, says) in [
        ("echo no store >&2; exit 3", "failed (exit status: 3) before its manager reached `run`"),
        ("echo hello", "ended before its manager reached `run`"),
        ("exec sleep 600", "did not end within 1 s"),
        ("echo pear > $WINDLASS_MANIFESTS", "wrote something other than manifests"),
    ] {
        let program = script(&sandbox, body);
        let said = sandbox.fails(&format!("manifests --timeout 1 --program {program}"));
        assert!(said.contains(says), "{body}: {said}");
        assert_eq!(said.contains("no store"), body.contains("no store"), "{said}");
    }
    assert!(sandbox.fails("manifests --program absent").contains("cannot run absent"));
    assert!(Path::new(&script(&sandbox, "")).exists() && sandbox.processes().is_empty(), "a program was left");
}

/// A project whose operator, a script, says that it has a role, a definition and a webhook if it is asked with the
/// arguments that it is installed with.
fn project(sandbox: &Sandbox) -> String {
    sandbox.succeeds("init --domain my.domain --name guestbook");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    sandbox.succeeds("create webhook --kind Guestbook --validation");
    let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"guestbooks.webapp.my.domain"},"spec":{"group":"webapp.my.domain","names":{"plural":"guestbooks","kind":"Guestbook"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    let webhook = r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"x"},"webhooks":[{"name":"v.my.domain","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"name":"a","namespace":"b","path":"/validate"}}}]}"#;
    let body = format!(
        "case \"$*\" in *--metrics-bind-address=:8443*--leader-elect*) ;; *) exit 4;; esac\n\
         printf '%s\\n' '{ROLE}' '{definition}' '{webhook}' > $WINDLASS_MANIFESTS"
    );
    script(sandbox, &body)
}

#[test]
fn a_project_becomes_a_file_a_chart_and_a_bundle() {
    let sandbox = Sandbox::new();
    let program = project(&sandbox);
    let before = sandbox.fails("manifests install");
    assert!(before.contains("config/default is not complete; run `windlass manifests --write` first"), "{before}");
    let drift = sandbox.fails(&format!("manifests --check --program {program}"));
    assert!(drift.contains("create config/webhook/manifests.yaml"), "{drift}");
    sandbox.succeeds(&format!("manifests --write --program {program}"));
    sandbox.succeeds(&format!("manifests --check --program {program}"));

    sandbox.succeeds("manifests install --image example.com/guestbook:v1");
    let read = |path: &str| std::fs::read_to_string(sandbox.path(path)).unwrap();
    let installer = read("dist/install.yaml");
    for part in ["image: example.com/guestbook:v1", "name: guestbook-webhook-service", "namespace: guestbook-system"] {
        assert!(installer.contains(part), "{part} is not in\n{installer}");
    }
    assert!(read("dist/crds.yaml").contains("guestbooks.webapp.my.domain"));
    assert_eq!(sandbox.succeeds("manifests install --image example.com/guestbook:v1").trim(), "up to date");
    sandbox.succeeds("manifests install --image example.com/guestbook:v2");
    assert!(read("dist/install.yaml").contains("image: example.com/guestbook:v2"));
    assert!(
        sandbox.succeeds("manifests chart --image example.com/guestbook:v1").contains("create dist/chart/Chart.yaml")
    );
    assert!(sandbox.succeeds("manifests bundle --version 1.0.0").contains("guestbook.clusterserviceversion.yaml"));

    // What was made of config/ is compared as well, with the options that it was made with.
    sandbox.succeeds(&format!("manifests --check --program {program}"));
    let manager = sandbox.path("config/manager/manager.yaml");
    let unchanged = read("config/manager/manager.yaml");
    std::fs::write(&manager, unchanged.replace("replicas: 1", "replicas: 3")).unwrap();
    let said = sandbox.fails(&format!("manifests --check --program {program}"));
    for part in [
        "run `windlass manifests install` to:\n  update dist/install.yaml",
        "windlass manifests chart",
        "windlass manifests bundle",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let said = sandbox.windlass(&format!("manifests --check -o json --program {program}"));
    assert_eq!(said.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["upToDate"], false);
    let change = serde_json::json!({"action": "update", "path": "dist/install.yaml"});
    assert!(report["changes"].as_array().unwrap().contains(&change), "{report}");
    std::fs::write(&manager, unchanged).unwrap();
    let said = sandbox.succeeds(&format!("manifests --check -o json --program {program}"));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&said).unwrap(),
        serde_json::json!({"upToDate": true, "changes": []})
    );
    std::fs::remove_dir_all(sandbox.path("dist/chart")).unwrap();
    sandbox.succeeds(&format!("manifests --check --program {program}"));
    sandbox.succeeds("manifests chart --image example.com/guestbook:v1");

    // What a user writes into a chart stays, unless it contradicts or is given up.
    let values = sandbox.path("dist/chart/values.yaml");
    std::fs::write(&values, read("dist/chart/values.yaml").replace("tag: v1", "tag: mine")).unwrap();
    assert_eq!(sandbox.succeeds("manifests chart --image example.com/guestbook:v1").trim(), "up to date");
    let said = sandbox.fails("manifests chart --image example.com/guestbook:v2");
    assert!(said.contains("dist/chart/values.yaml has changes of yours"), "{said}");
    sandbox.succeeds("manifests chart --image example.com/guestbook:v2 --force --skip-crds");
    assert!(read("dist/chart/values.yaml").contains("tag: v2"));
    assert!(!sandbox.path("dist/chart/templates/crd").exists());

    let default = read("config/default/kustomization.yaml");
    std::fs::write(sandbox.path("config/default/kustomization.yaml"), format!("{default}\nhelmCharts: []\n")).unwrap();
    let said = sandbox.fails("manifests install");
    assert!(
        said.starts_with("error: config/default/kustomization.yaml: the field `helmCharts` is not supported"),
        "{said}"
    );
    std::fs::write(sandbox.path("config/default/kustomization.yaml"), default).unwrap();

    // What the code does not say any more goes.
    sandbox.succeeds("delete webhook --kind Guestbook");
    let program = script(&sandbox, &format!("echo '{ROLE}' > $WINDLASS_MANIFESTS"));
    let said = sandbox.succeeds(&format!("manifests --write --program {program}"));
    assert!(
        said.contains("remove config/webhook/manifests.yaml") && said.contains("remove config/crd/bases/"),
        "{said}"
    );
}

#[test]
fn interrupted_manifests_are_written_whole() {
    let sandbox = Sandbox::new();
    let program = project(&sandbox);
    // The operator answers and then waits, so that the directory can be locked before anything is written.
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("go")).status().unwrap();
    assert!(made.success());
    let text = std::fs::read_to_string(&program).unwrap();
    let (gate, asked) = (sandbox.path("go"), sandbox.path("asked"));
    let wait = format!("echo > {}; read answer < {}", asked.display(), gate.display());
    std::fs::write(&program, format!("{text}{wait}\n")).unwrap();
    let lock = std::fs::File::open(sandbox.path(".")).unwrap();
    let running = Running::spawn(&mut sandbox.command(&format!("manifests --write --program {program}")));
    // By then the project has been read.
    eventually("the operator is asked", || asked.exists().then_some(()));
    lock.lock().unwrap();
    let mut gate = std::fs::OpenOptions::new().read(true).write(true).open(gate).unwrap();
    gate.write_all(b"go\n").unwrap();
    running.catches(Signal::INT);
    running.signal(Signal::INT);
    drop(lock);
    let code = running.wait().code();
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    std::fs::write(&program, text).unwrap();
    sandbox.succeeds(&format!("manifests --check --program {program}"));
    assert!(!sandbox.path(".windlass-changes").exists());
}

#[test]
fn manifests_in_a_checkout_with_crlf_are_up_to_date() {
    let sandbox = Sandbox::new();
    let program = project(&sandbox);
    sandbox.succeeds(&format!("manifests --write --program {program}"));
    let mut open = vec![sandbox.path("config"), sandbox.path(".windlass")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                std::fs::write(&path, text.replace('\n', "\r\n")).unwrap();
            }
        }
    }
    sandbox.succeeds(&format!("manifests --check --program {program}"));
    let said = sandbox.succeeds(&format!("manifests --write --program {program}"));
    assert_eq!(said, "config/ is up to date\n");
    sandbox.succeeds("manifests chart");
}
