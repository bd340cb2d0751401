//! `windlass deploy`, `undeploy`, `bundle run` and `apply -k`, on a cluster that has no nodes: the operators' pods never
//! run there, which has to be said.

use super::{Stage, pets};

const DEPLOYMENT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec:
  selector: {matchLabels: {app: pets}}
  template:
    metadata: {labels: {app: pets}}
    spec: {containers: [{name: manager, image: 'controller:latest'}]}
";

/// The manifests of a project.
fn project(stage: &Stage) {
    for directory in ["config/default", "config/crd", "config/manager"] {
        std::fs::create_dir_all(stage.sandbox.path(directory)).unwrap();
    }
    stage.write("PROJECT", "version: \"3\"\n");
    stage.write("config/crd/crd.yaml", &pets(""));
    stage.write("config/crd/kustomization.yaml", "resources: [crd.yaml]\n");
    stage.write("config/manager/manager.yaml", DEPLOYMENT);
    stage.write("config/manager/kustomization.yaml", "resources: [manager.yaml]\n");
    let default = "namespace: pets-system\nnamePrefix: pets-\nresources: [../crd, ../manager]\n";
    stage.write("config/default/kustomization.yaml", default);
}

#[test]
fn a_rollout_that_cannot_end_says_why() {
    let stage = Stage::new();
    project(&stage);
    let said = stage.fails("deploy --skip-build --image registry.example.com/pets:v1 --timeout 2");
    assert!(said.stdout.contains("deployment.apps/pets-controller-manager created"), "{}", said.stdout);
    for text in [
        "the cluster has no nodes that run pods",
        "deployment.apps/pets-controller-manager is not rolled out after 2 s: 0 of 1 replicas are available",
        " is Pending",
    ] {
        assert!(said.stderr.contains(text), "no {text:?} in {}", said.stderr);
    }
    let said = stage.succeeds("deploy --skip-build --image registry.example.com/pets:v1 --no-wait");
    assert!(said.contains("deployment.apps/pets-controller-manager unchanged"), "{said}");
    let said = stage.succeeds("deploy --skip-build --image registry.example.com/pets:v2 --no-wait");
    assert!(said.contains("deployment.apps/pets-controller-manager configured"), "{said}");
}

#[test]
fn manifests_that_were_not_written_are_asked_for() {
    let stage = Stage::new();
    project(&stage);
    stage.write("config/crd/kustomization.yaml", "resources: [bases/example.com_pets.yaml]\n");
    for command in ["deploy --skip-build --no-wait", "undeploy", "apply -k config/default", "install -f config/crd"] {
        let said = stage.fails(command).stderr;
        let expected = "bases/example.com_pets.yaml, which is made from the operator's code: run `windlass manifests --write` \
                        first";
        assert!(said.contains(expected), "{command}: {said}");
    }
    // Others are the user's own.
    stage.write("config/crd/kustomization.yaml", "resources: [other.yaml]\n");
    let said = stage.fails("undeploy").stderr;
    assert!(said.contains("there is no config/crd/other.yaml\n"), "{said}");
}

#[test]
fn an_operator_on_simulated_nodes_is_not_rolled_out() {
    let stage = Stage::new();
    project(&stage);
    let node = "metadata: {name: node-0, annotations: {node.windlass.dev/simulated: 'true'}}";
    stage.write("node.yaml", &format!("apiVersion: v1\nkind: Node\n{node}\n"));
    stage.succeeds("apply -f node.yaml");
    let said = stage.fails("deploy --skip-build --image registry.example.com/pets:v1");
    assert!(said.stdout.contains("deployment.apps/pets-controller-manager created"), "{}", said.stdout);
    for text in ["only simulate pods", "windlass run"] {
        assert!(said.stderr.contains(text), "no {text:?} in {}", said.stderr);
    }
    assert!(!said.stderr.contains("is rolled out"), "{}", said.stderr);
}

#[test]
#[cfg(target_os = "linux")]
fn an_operator_is_not_deployed_onto_process_pods() {
    let stage = Stage { cluster: crate::windlass::Cluster::with_processes(), sandbox: crate::windlass::Sandbox::new() };
    project(&stage);
    // Nothing can be built of this.
    stage.write("Cargo.toml", "no manifest");
    crate::process::eventually("the node has reported", || {
        stage.succeeds("nodes list -o json").contains("\"ready\": true").then_some(())
    });
    bundle(&stage);
    for command in ["deploy", "deploy --skip-build --image pets:v1 --no-wait", "bundle run"] {
        let said = stage.fails(command).stderr;
        assert!(said.contains("cannot be deployed here"), "{command}: {said}");
        assert!(said.contains("`windlass up --runtime container`"), "{command}: {said}");
    }
    // Nothing was applied.
    assert!(!stage.succeeds("undeploy --yes").contains(" deleted"));
}

#[test]
fn an_operator_is_undeployed_without_its_kinds() {
    let stage = Stage::new();
    project(&stage);
    stage.write("pet.yaml", super::PET);
    stage.succeeds("deploy --skip-build --no-wait");
    stage.succeeds("apply -f pet.yaml");
    let said = stage.fails("undeploy");
    assert!(said.stderr.contains("to be deleted: 1 Pet: default/rex"), "{}", said.stderr);
    let said = stage.succeeds("undeploy --keep-crds");
    assert!(said.contains("deployment.apps/pets-controller-manager deleted"), "{said}");
    assert!(said.contains("namespace/pets-system deleted") && !said.contains("pets.example.com"), "{said}");
    assert!(stage.succeeds("apply -f pet.yaml").contains(" unchanged"));
    assert!(stage.succeeds("undeploy --yes").contains("pets.example.com deleted"));
}

#[test]
fn undeploy_keeps_a_namespace_that_was_there_before() {
    let stage = Stage::new();
    project(&stage);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: pets-system, labels: {team: zoo}}\n---\n";
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: pets-system}\n";
    stage.write("before.yaml", &format!("{namespace}{other}"));
    stage.succeeds("apply -f before.yaml");
    stage.succeeds("deploy --skip-build --no-wait");
    let said = stage.windlass("undeploy --yes");
    assert!(said.status.success(), "{said:?}");
    assert!(said.stdout.contains("deployment.apps/pets-controller-manager deleted"), "{said:?}");
    assert!(said.stderr.contains("the namespace pets-system stays: `windlass deploy` did not create it"), "{said:?}");
    assert!(!said.stdout.contains("namespace/"), "{said:?}");
    let said = stage.succeeds("apply -f before.yaml");
    assert!(said.contains("configmap/other unchanged"), "{said}");

    // One that a deployment has created goes with the last one, also after it was deployed again.
    let other = Stage::new();
    project(&other);
    other.succeeds("deploy --skip-build --no-wait");
    let said = other.succeeds("deploy --skip-build --no-wait");
    assert!(said.contains("namespace/pets-system unchanged"), "{said}");
    assert!(other.succeeds("undeploy --yes").contains("namespace/pets-system deleted"));
}

/// What an operator makes in its namespace, as the library does, and what others have there.
const MADE: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: webhook-server-cert, namespace: pets-system}
type: kubernetes.io/tls
data: {ca.crt: YQ==, ca.key: YQ==, tls.crt: YQ==, tls.key: YQ==}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: pets, namespace: pets-system}
spec: {holderIdentity: pets-controller-manager-5d8f-abcde_00ff, leaseDurationSeconds: 15}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: pets-system}
data: {a: YQ==}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: other, namespace: pets-system}
spec: {holderIdentity: pets-controller-manager-5d8f-abcde_00ff, leaseDurationSeconds: 15}
";

const ROLE: &str = "\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: manager-role, namespace: system}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [create]}
- {apiGroups: [''], resources: [secrets], resourceNames: [webhook-server-cert], verbs: [get, list, update, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [pets], verbs: [get, update]}
";

#[test]
fn undeploy_removes_what_the_operator_has_made() {
    let stage = Stage::new();
    project(&stage);
    stage.write("config/manager/manager.yaml", &format!("{DEPLOYMENT}{ROLE}"));
    stage.write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: pets-system}\n");
    stage.write("made.yaml", MADE);
    stage.succeeds("apply -f namespace.yaml");
    stage.succeeds("apply -f made.yaml");
    stage.succeeds("deploy --skip-build --no-wait");
    let said = stage.succeeds("undeploy --yes");
    for line in ["secret/webhook-server-cert deleted", "lease.coordination.k8s.io/pets deleted"] {
        assert!(said.lines().any(|said| said == line), "no {line:?} in {said}");
    }
    let said = stage.succeeds("apply -f made.yaml");
    for line in ["secret/password unchanged", "lease.coordination.k8s.io/other unchanged"] {
        assert!(said.lines().any(|said| said == line), "no {line:?} in {said}");
    }

    // A Secret of cert-manager's and a Lease of another holder stay.
    stage.succeeds("deploy --skip-build --no-wait");
    stage.write(
        "made.yaml",
        &MADE.replace("ca.key: YQ==, ", "").replace("pets-controller-manager-5d8f-abcde", "laptop"),
    );
    stage.succeeds("undeploy --yes");
    stage.succeeds("deploy --skip-build --no-wait");
    stage.succeeds("apply -f made.yaml");
    let said = stage.windlass("undeploy --yes");
    assert!(said.status.success() && !said.stdout.contains("secret/") && !said.stdout.contains("lease"), "{said:?}");
    assert!(said.stderr.contains("the Lease pets stays: laptop_00ff holds it"), "{said:?}");
}

#[test]
fn kustomizations_are_applied() {
    let stage = Stage::new();
    project(&stage);
    let said = stage.succeeds("apply -k config/default");
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "namespace/pets-system created",
        "customresourcedefinition.apiextensions.k8s.io/pets.example.com created",
        "deployment.apps/pets-controller-manager created",
    ];
    assert_eq!(lines, expected);
    assert!(stage.fails("apply -k nowhere").stderr.contains("there is no"));
}

/// A bundle for OLM, with the kind and the Deployment of an operator.
fn bundle(stage: &Stage) {
    std::fs::create_dir_all(stage.sandbox.path("bundle/manifests")).unwrap();
    std::fs::create_dir_all(stage.sandbox.path("bundle/metadata")).unwrap();
    stage.write("bundle/manifests/crd.yaml", &pets(""));
    let version = serde_json::json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "pets.v1.0.0"},
        "spec": {
            "installModes": [{"type": "AllNamespaces", "supported": true}],
            "install": {"strategy": "deployment", "spec": {
                "clusterPermissions": [{"serviceAccountName": "pets", "rules": [
                    {"apiGroups": ["example.com"], "resources": ["pets"], "verbs": ["get", "list", "watch"]},
                ]}],
                "deployments": [{"name": "pets", "spec": {
                    "selector": {"matchLabels": {"app": "pets"}},
                    "template": {
                        "metadata": {"labels": {"app": "pets"}},
                        "spec": {"serviceAccountName": "pets", "containers": [{"name": "manager", "image": "pets:v1"}]},
                    },
                }}],
            }},
            "webhookdefinitions": [{
                "type": "ValidatingAdmissionWebhook", "deploymentName": "pets", "containerPort": 443,
                "targetPort": 9443, "generateName": "vpet.example.com", "webhookPath": "/validate",
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                "rules": [{
                    "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pets"],
                }],
            }],
        },
    });
    stage.write("bundle/manifests/pets.clusterserviceversion.yaml", &version.to_string());
}

#[test]
fn a_bundle_is_installed_without_olm() {
    let stage = Stage::new();
    bundle(&stage);
    stage.write(
        "bundle/metadata/annotations.yaml",
        "annotations: {operators.operatorframework.io.bundle.mediatype.v1: plain}\n",
    );
    assert!(stage.fails("bundle run").stderr.contains("only \"registry+v1\" is supported"));
    stage.write(
        "bundle/metadata/annotations.yaml",
        "annotations: {operators.operatorframework.io.bundle.mediatype.v1: registry+v1}\n",
    );
    let said = stage.succeeds("bundle run --no-wait");
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "namespace/pets-system created",
        "customresourcedefinition.apiextensions.k8s.io/pets.example.com created",
        "serviceaccount/pets created",
        "clusterrole.rbac.authorization.k8s.io/pets.v1.0.0-pets-c0 created",
        "clusterrolebinding.rbac.authorization.k8s.io/pets.v1.0.0-pets-c0 created",
        "secret/pets-service-cert created",
        "service/pets-service created",
        "deployment.apps/pets created",
        "validatingwebhookconfiguration.admissionregistration.k8s.io/vpet.example.com created",
    ];
    assert_eq!(lines, expected);
    // The operator's pods have the certificates of the first time: others would not be trusted until they are mounted.
    let again = stage.succeeds("bundle run --no-wait");
    for line in [
        "secret/pets-service-cert unchanged",
        "validatingwebhookconfiguration.admissionregistration.k8s.io/vpet.example.com unchanged",
    ] {
        assert!(again.lines().any(|said| said == line), "no {line:?} in {again}");
    }
    assert!(stage.fails("bundle run elsewhere").stderr.contains("there is no directory elsewhere"));
    let said = stage.fails("bundle run --timeout 1");
    assert!(said.stderr.contains("deployment.apps/pets is not rolled out after 1 s"), "{}", said.stderr);

    // And removed again, with the namespace that it brought along.
    stage.write("pet.yaml", super::PET);
    stage.succeeds("apply -f pet.yaml");
    let said = stage.fails("bundle cleanup");
    assert!(said.stderr.contains("to be deleted: 1 Pet: default/rex"), "{}", said.stderr);
    let said = stage.succeeds("bundle cleanup --yes");
    let mut gone: Vec<String> = said.lines().map(|line| line.replace(" deleted", " created")).collect();
    gone.sort();
    let mut all = expected.to_vec();
    all.sort_unstable();
    assert_eq!(gone, all);
    let said = stage.succeeds("bundle cleanup -o yaml");
    assert!(said.contains("result: absent") && !said.contains("result: deleted"), "{said}");
    // A namespace that was there before stays.
    stage.write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: ops}\n");
    stage.succeeds("apply -f namespace.yaml");
    assert!(!stage.succeeds("bundle run --no-wait -n ops").contains("namespace/ops"));
    let said = stage.windlass("bundle cleanup -n ops --keep-crds");
    assert!(said.status.success() && said.stderr.contains("the namespace ops stays"), "{said:?}");
    assert!(said.stdout.contains("deployment.apps/pets deleted"), "{said:?}");
    assert!(!said.stdout.contains("customresourcedefinition") && !said.stdout.contains("namespace/"), "{said:?}");
}

#[test]
fn a_newer_bundle_takes_the_place_of_the_older() {
    let stage = Stage::new();
    std::fs::create_dir_all(stage.sandbox.path("bundle/manifests")).unwrap();
    let bundle = |version: &str| {
        let rules = serde_json::json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let version = serde_json::json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": format!("pets.v{version}")},
            "spec": {
                "installModes": [
                    {"type": "AllNamespaces", "supported": true}, {"type": "SingleNamespace", "supported": true},
                ],
                "install": {"strategy": "deployment", "spec": {
                    "clusterPermissions": [{"serviceAccountName": "pets", "rules": rules}],
                    "permissions": [{"serviceAccountName": "pets", "rules": rules}],
                    "deployments": [{"name": "pets", "spec": {
                        "selector": {"matchLabels": {"app": "pets"}},
                        "template": {
                            "metadata": {"labels": {"app": "pets"}},
                            "spec": {"containers": [{"name": "manager", "image": "pets"}]},
                        },
                    }}],
                }},
            },
        });
        stage.write("bundle/manifests/pets.clusterserviceversion.yaml", &version.to_string());
    };
    bundle("1.0.0");
    stage.succeeds("bundle run --no-wait --watch-namespace zoo");
    stage.write(
        "other.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: pets.vet}\n",
    );
    stage.succeeds("apply -f other.yaml");
    bundle("1.1.0");
    let said = stage.succeeds("bundle run --no-wait --watch-namespace zoo");
    for line in [
        "namespace/pets-system configured",
        "namespace/zoo configured",
        "clusterrole.rbac.authorization.k8s.io/pets.v1.1.0-pets-c0 created",
        "clusterrole.rbac.authorization.k8s.io/pets.v1.0.0-pets-c0 deleted",
        "clusterrolebinding.rbac.authorization.k8s.io/pets.v1.0.0-pets-c0 deleted",
        "role.rbac.authorization.k8s.io/pets.v1.0.0-pets-p0 deleted",
        "rolebinding.rbac.authorization.k8s.io/pets.v1.0.0-pets-p0 deleted",
    ] {
        assert!(said.lines().any(|said| said == line), "no {line:?} in {said}");
    }
    assert!(!said.contains("pets.vet") && !said.contains("pets.v1.1.0-pets-c0 deleted"), "{said}");
    assert!(!stage.succeeds("bundle run --no-wait --watch-namespace zoo").contains("deleted"));
    // The version that is cleaned up need not be the one that made the namespaces.
    bundle("1.2.0");
    let said = stage.succeeds("bundle cleanup --yes --watch-namespace zoo");
    for line in [
        "namespace/pets-system deleted",
        "namespace/zoo deleted",
        "clusterrole.rbac.authorization.k8s.io/pets.v1.1.0-pets-c0 deleted",
        "clusterrolebinding.rbac.authorization.k8s.io/pets.v1.1.0-pets-c0 deleted",
    ] {
        assert!(said.lines().any(|said| said == line), "no {line:?} in {said}");
    }
    assert!(!said.contains("pets.vet"), "{said}");
}

/// A program that says what it needs, as an operator does. Images are made of programs, not of scripts.
pub(super) fn program(stage: &Stage) {
    let role =
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"pets"},"rules":[]}"#;
    let source =
        format!("fn main() {{ std::fs::write(std::env::var(\"WINDLASS_MANIFESTS\").unwrap(), {role:?}).unwrap(); }}");
    stage.write("operator.rs", &source);
    let mut rustc = std::process::Command::new("rustc");
    let built = rustc.args(["operator.rs", "-o", "operator"]).current_dir(stage.sandbox.path(".")).status().unwrap();
    assert!(built.success());
}

/// A program on the path that writes down what it is asked, and fails if `fails` exists.
fn engine(stage: &Stage, name: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(stage.sandbox.path("bin")).unwrap();
    let file = stage.sandbox.path("bin").join(name);
    let root = stage.sandbox.path(".").display().to_string();
    let text = format!(
        "#!/bin/sh\n[ -e {root}/{name}-fails ] && {{ echo no daemon >&2; exit 1; }}\necho {name} $* >> {root}/asked\n"
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_image_is_loaded_by_the_engine_that_is_there() {
    let stage = Stage::new();
    stage.sandbox.succeeds("init --name pets --domain example.com");
    program(&stage);
    let config = std::fs::read_to_string(&stage.cluster.kubeconfig).unwrap();
    let deploy = |context: &str| {
        stage.write("config.yaml", &config.replace("windlass-default", context));
        let mut command = stage.sandbox.command("deploy --program operator --no-wait --kubeconfig config.yaml");
        let path = std::env::var("PATH").unwrap();
        let without =
            std::env::split_paths(&path).filter(|path| !path.join("docker").exists() && !path.join("podman").exists());
        let paths = std::env::join_paths(std::iter::once(stage.sandbox.path("bin")).chain(without)).unwrap();
        let said: crate::process::Said = command.env("PATH", paths).output().unwrap().into();
        assert!(said.status.success(), "{said:?}");
        let asked = std::fs::read_to_string(stage.sandbox.path("asked")).unwrap_or_default();
        let _ = std::fs::remove_file(stage.sandbox.path("asked"));
        (said.stderr, asked)
    };
    // Without an engine there is the file.
    let (said, asked) = deploy("somewhere");
    assert!(said.contains("target/pets.tar") && said.contains("--push") && asked.is_empty(), "{said}");
    assert!(stage.sandbox.path("target/pets.tar").exists());
    engine(&stage, "podman");
    let (said, asked) = deploy("somewhere");
    assert!(said.contains("loaded the image with podman"), "{said}");
    assert!(asked.starts_with("podman load --input ") && asked.ends_with("target/pets.tar\n"), "{asked}");
    engine(&stage, "docker");
    assert!(deploy("somewhere").1.starts_with("docker load --input "));
    stage.write("docker-fails", "");
    let (said, asked) = deploy("somewhere");
    assert!(said.contains("no daemon") && asked.starts_with("podman load"), "{said}{asked}");
    // A cluster of `windlass up` has nothing to do with engines.
    assert_eq!(deploy("windlass-default").1, "");
    std::fs::remove_file(stage.sandbox.path("docker-fails")).unwrap();
    assert!(deploy("docker-desktop").1.starts_with("docker load --input "));
    engine(&stage, "kind");
    assert!(deploy("kind-dev").1.starts_with("kind load image-archive "));
}

#[test]
fn a_kustomization_is_applied_from_its_own_directory() {
    let stage = Stage::new();
    stage.write("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    let said = stage.fails("apply -k .");
    assert!(said.stderr.contains("kustomization.yaml"), "{}", said.stderr);
    stage.write("kustomization.yaml", "resources: [map.yaml]\n");
    assert_eq!(stage.succeeds("apply -k ."), "configmap/a created\n");
    stage.write("PROJECT", "version: \"3\"\n");
    assert_eq!(stage.succeeds("apply -k ."), "configmap/a unchanged\n");
    stage.write("kustomization.yaml", "resources: [map.yaml]\nhelmCharts: [{name: x}]\n");
    let said = stage.fails("apply -k .").stderr;
    assert!(said.contains("error: kustomization.yaml: the field `helmCharts` is not supported"), "{said}");
}
