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
fn an_operator_is_undeployed_without_its_kinds() {
    let stage = Stage::new();
    project(&stage);
    stage.write("pet.yaml", super::PET);
    stage.succeeds("apply -k config/default");
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

#[test]
fn a_bundle_is_installed_without_olm() {
    let stage = Stage::new();
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
    assert!(stage.fails("bundle run elsewhere").stderr.contains("there is no directory elsewhere"));
    let said = stage.fails("bundle run --timeout 1");
    assert!(said.stderr.contains("deployment.apps/pets is not rolled out after 1 s"), "{}", said.stderr);
}
