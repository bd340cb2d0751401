//! `windlass deploy` onto pods that run: what is said of an operator that does not stay up.

use super::Containers;

/// A program that says what it lacks, and ends.
const MANIFESTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: pets-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: pets, namespace: pets-system}
spec:
  selector: {matchLabels: {app: pets}}
  template:
    metadata: {labels: {app: pets}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: manager
        image: controller:latest
        command: [sh, -c, "echo no address of the vet is set; exit 3"]
        # Without a probe it would be ready for as long as it runs.
        readinessProbe: {exec: {command: [cat, /ready]}}
"#;

#[test]
fn a_failed_rollout_says_exit_code_events_and_last_lines() {
    let Some(cluster) = Containers::start() else { return };
    let sandbox = &cluster.sandbox;
    std::fs::create_dir_all(sandbox.path("config/default")).unwrap();
    std::fs::write(sandbox.path("PROJECT"), "version: \"3\"\n").unwrap();
    std::fs::write(sandbox.path("config/default/all.yaml"), MANIFESTS).unwrap();
    std::fs::write(sandbox.path("config/default/kustomization.yaml"), "resources: [all.yaml]\n").unwrap();
    let said = sandbox.windlass("deploy --skip-build --image me/web:v1 --timeout 12");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let lines: Vec<&str> = said.stderr.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("error: deployment.apps/pets is not rolled out after 12 s"));
    let why = &lines[at.unwrap_or_else(|| panic!("{}", said.stderr))..];
    for line in [
        "  container manager was terminated: Error (exit code 3)",
        "    no address of the vet is set",
        "  events:",
        "Back-off restarting failed container manager in pod pets-",
    ] {
        assert!(why.iter().any(|said| said.contains(line)), "no {line:?} in {}", said.stderr);
    }
    assert!(why[0].contains("0 of 1 replicas are available"), "{}", said.stderr);
    // While the command waits, it says what keeps the pod from running.
    let waiting =
        lines.iter().any(|line| line.starts_with("deployment.apps/pets: ") && line.contains("CrashLoopBackOff"));
    assert!(waiting, "{}", said.stderr);
}
