//! `windlass generate`: types of definitions, and clients of a project's kinds.

use std::io::Write as _;
use std::process::Stdio;

use rustix::process::Signal;

use crate::process::Running;
use crate::windlass::Sandbox;

const TYPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../windlass-scaffold/tests/types");

/// A sandbox with definitions in it.
fn with_definitions() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["backup", "route", "versions"] {
        std::fs::copy(format!("{TYPES}/{name}.yaml"), sandbox.path(&format!("{name}.yaml"))).unwrap();
    }
    let both = ["backup", "route"].map(|name| std::fs::read_to_string(sandbox.path(&format!("{name}.yaml"))).unwrap());
    std::fs::write(sandbox.path("both.yaml"), both.join("\n---\n")).unwrap();
    sandbox
}

fn read(sandbox: &Sandbox, path: &str) -> String {
    std::fs::read_to_string(sandbox.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn types_are_printed_or_written() {
    let sandbox = with_definitions();
    let pinned = std::fs::read_to_string(format!("{TYPES}/backup.rs")).unwrap();
    assert_eq!(sandbox.succeeds("generate types --from-crd backup.yaml"), pinned);
    let mut command = sandbox.command("generate types --from-crd -");
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(read(&sandbox, "backup.yaml").as_bytes()).unwrap();
    assert_eq!(process.wait_with_output().unwrap().stdout, pinned.as_bytes());

    let said = sandbox.succeeds("generate types --from-crd backup.yaml --output src/backup.rs");
    assert!(said.contains("create src/backup.rs") && said.contains("k8s-openapi (feature schemars)"), "{said}");
    assert_eq!(read(&sandbox, "src/backup.rs"), pinned);
    let again = sandbox.succeeds("generate types --from-crd backup.yaml --output src/backup.rs");
    assert_eq!(again, "nothing to change\n");
}

#[test]
fn another_content_is_kept_without_force() {
    let sandbox = with_definitions();
    std::fs::write(sandbox.path("backup.rs"), "// mine\n").unwrap();
    let said = sandbox.fails("generate types --from-crd backup.yaml --output backup.rs");
    assert!(said.contains("backup.rs") && said.contains("--force"), "{said}");
    let diff = sandbox.succeeds("generate types --from-crd backup.yaml --output backup.rs --dry-run --force");
    assert!(diff.contains("-// mine") && diff.contains("+pub struct BackupSpec {"), "{diff}");
    assert_eq!(read(&sandbox, "backup.rs"), "// mine\n");
    sandbox.succeeds("generate types --from-crd backup.yaml --output backup.rs --force");
    assert!(read(&sandbox, "backup.rs").contains("pub struct BackupSpec {"));
}

#[test]
fn several_kinds_and_versions_become_modules() {
    let sandbox = with_definitions();
    let text = sandbox.succeeds("generate types --from-crd both.yaml");
    assert!(text.contains("pub mod backup {") && text.contains("pub mod route {"), "{text}");
    let one = sandbox.succeeds("generate types --from-crd both.yaml --kind Route");
    assert!(one.contains("pub struct RouteSpec {") && !one.contains("pub mod "), "{one}");
    let text = sandbox.succeeds("generate types --from-crd versions.yaml");
    assert!(text.contains("pub mod v1 {") && text.contains("pub mod v1beta1 {"), "{text}");
    let one = sandbox.succeeds("generate types --from-crd versions.yaml --version v1beta1");
    assert!(!one.contains("pub mod ") && one.contains("version = \"v1beta1\""), "{one}");
    sandbox.succeeds("generate types --from-crd both.yaml --output kinds/");
    assert!(read(&sandbox, "kinds/mod.rs").ends_with("pub mod backup;\npub mod route;\n"));
    assert!(read(&sandbox, "kinds/route.rs").contains("pub struct RouteSpec {"));
}

#[test]
fn a_dry_run_names_files_from_here() {
    let sandbox = with_definitions();
    let types = "generate types --from-crd both.yaml --dry-run --output";
    let diff = sandbox.succeeds(&format!("{types} src/kinds/"));
    assert!(diff.contains("+++ b/src/kinds/mod.rs\n") && diff.contains("+++ b/src/kinds/route.rs\n"), "{diff}");
    let diff = sandbox.succeeds(&format!("{types} ./src/kinds.rs"));
    assert!(diff.contains("+++ b/src/kinds.rs\n"), "{diff}");
    let diff = sandbox.succeeds(&format!("{types} {}", sandbox.path("kinds.rs").display()));
    assert!(diff.contains("+++ b/kinds.rs\n"), "{diff}");
    let mut git = std::process::Command::new("git");
    let mut git = git.args(["apply", "-"]).current_dir(sandbox.path(".")).stdin(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(sandbox.succeeds(&format!("{types} src/kinds/")).as_bytes()).unwrap();
    assert!(git.wait().unwrap().success());
    assert_eq!(sandbox.succeeds("generate types --from-crd both.yaml --output src/kinds/"), "nothing to change\n");
}

#[test]
fn bad_definitions_are_refused_with_what_to_do() {
    let sandbox = with_definitions();
    std::fs::write(sandbox.path("pod.yaml"), "kind: Pod\n").unwrap();
    let old = read(&sandbox, "route.yaml").replace("k8s.io/v1", "k8s.io/v1beta1");
    std::fs::write(sandbox.path("old.yaml"), old).unwrap();
    for (args, part) in [
        ("missing.yaml", "cannot read missing.yaml"),
        ("pod.yaml", "there is no CustomResourceDefinition in it, only Pod; `kubectl get crd NAME -o yaml` prints one"),
        ("old.yaml", "look for a newer release"),
        ("route.yaml --version v9", "it has: v1alpha1"),
        ("route.yaml --kind Rout", "there are: Route"),
        ("route.yaml --dry-run", "--output"),
        ("route.yaml -o json", "for a file of this name, say ./json"),
        ("route.yaml --output=yaml", "for a file of this name, say ./yaml"),
    ] {
        let said = sandbox.fails(&format!("generate types --from-crd {args}"));
        assert!(said.contains(part), "{args}: {part:?} is not in: {said}");
    }
}

#[test]
fn clients_follow_the_kinds() {
    let sandbox = Sandbox::new();
    sandbox.succeeds("init --domain my.domain --name guestbook");
    sandbox.succeeds("create api --group webapp --version v1 --kind Guestbook");
    assert!(sandbox.fails("generate client --check").contains("run `windlass generate client`"));
    let diff = sandbox.succeeds("generate client --dry-run");
    assert!(diff.contains("+++ b/api/src/client.rs"), "{diff}");
    assert!(!sandbox.path("api/src/client.rs").exists());

    sandbox.succeeds("generate client");
    sandbox.succeeds("generate client --check");
    assert_eq!(sandbox.succeeds("generate client"), "nothing to change\n");
    let before = read(&sandbox, "api/src/client.rs");
    assert!(before.contains("pub fn v1_guestbooks(&self, namespace: &str) -> Api<v1::Guestbook> {"), "{before}");

    sandbox.succeeds("create api --group webapp --version v1 --kind Order --namespaced=false");
    let added = read(&sandbox, "api/src/client.rs");
    assert!(added.contains("pub fn v1_orders(&self) -> Api<v1::Order> {"), "{added}");
    assert!(added.contains("pub fn v1_orders(&self) -> Informer<v1::Order> {"), "{added}");
    sandbox.succeeds("generate client --check");
    sandbox.succeeds("delete api --kind Order");
    assert_eq!(read(&sandbox, "api/src/client.rs"), before);

    std::fs::remove_file(sandbox.path("api/src/client.rs")).unwrap();
    assert!(sandbox.fails("generate client --check").contains("api/src/client.rs"));
    sandbox.succeeds("generate client");
    assert_eq!(read(&sandbox, "api/src/client.rs"), before);
}

#[test]
fn interrupted_types_are_written_whole() {
    let sandbox = with_definitions();
    let root = sandbox.path("types");
    std::fs::create_dir(&root).unwrap();
    let lock = std::fs::File::open(&root).unwrap();
    lock.lock().unwrap();
    let running = Running::spawn(&mut sandbox.command("generate types --from-crd both.yaml --output types/"));
    running.catches(Signal::TERM);
    running.signal(Signal::TERM);
    drop(lock);
    let code = running.wait().code();
    assert!(matches!(code, Some(0 | 143)), "{code:?}");
    assert!(!root.join(".windlass-changes").exists());
    assert!(root.join("mod.rs").is_file());
    let again = sandbox.succeeds("generate types --from-crd both.yaml --output types/");
    assert_eq!(again, "nothing to change\n");
}
