//! Changing: label, annotate, edit, patch, replace, scale, wait, delete.

use std::os::unix::fs::PermissionsExt as _;

use super::{SETTINGS, deployment, has, kubectl};

#[test]
fn labels_and_annotations_come_and_go() {
    kubectl!(cluster, k);
    k.feed("create -f -", SETTINGS);
    assert_eq!(k.run("label cm settings tier=front"), "configmap/settings labeled\n");
    has(&k.fails("label cm settings tier=back"), &["'tier' already has a value (front)"]);
    k.run("label cm settings tier=back --overwrite");
    assert_eq!(k.field("cm/settings", ".metadata.labels.tier"), "back");
    k.run("label cm settings tier-");
    assert_eq!(k.field("cm/settings", ".metadata.labels"), "");
    assert_eq!(k.run("annotate cm settings why=because"), "configmap/settings annotated\n");
    assert_eq!(k.field("cm/settings", ".metadata.annotations.why"), "because");
    has(&k.fails("label cm settings bad=-x"), &["invalid label value"]);
}

#[test]
fn an_object_is_edited() {
    kubectl!(cluster, k);
    k.feed("create -f -", SETTINGS);
    let editor = cluster.path("editor");
    std::fs::write(&editor, "#!/bin/sh\nsed -i 's/colour: red/colour: blue/' \"$1\"\n").unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    let edit = |object: &str| {
        let output = k.command(&format!("edit {object}")).env("KUBE_EDITOR", &editor).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(edit("cm/settings"), "configmap/settings edited\n");
    assert_eq!(k.field("cm/settings", ".data.colour"), "blue");
    has(&edit("cm/settings"), &["Edit cancelled, no changes made."]);
}

#[test]
fn each_type_of_patch_is_applied() {
    kubectl!(cluster, k);
    k.feed("create -f -", &deployment(2, "nginx:1"));
    let patched = "deployment.apps/web patched\n";
    let strategic = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}"#;
    assert_eq!(k.run(&format!("patch deploy web -p {strategic}")), patched);
    let images = ".spec.template.spec.containers[*].image";
    assert_eq!(k.field("deploy/web", images), "busybox nginx:1");
    let merge = r#"{"spec":{"paused":true,"template":{"spec":{"containers":[{"name":"web","image":"nginx:2"}]}}}}"#;
    assert_eq!(k.run(&format!("patch deploy web --type=merge -p {merge}")), patched);
    assert_eq!(k.field("deploy/web", images), "nginx:2");
    let json =
        r#"[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":7}]"#;
    assert_eq!(k.run(&format!("patch deploy web --type=json -p {json}")), patched);
    assert_eq!(k.field("deploy/web", ".spec.replicas"), "7");
    has(&k.fails(&format!("patch deploy web --type=json -p {json}")), &["The request is invalid"]);
    k.feed("create -f -", SETTINGS);
    has(&k.run(r#"patch cm settings --type=merge -p {"data":{"size":"1"}}"#), &["patched (no change)"]);
    has(&k.fails(r#"patch deploy web -p {"spec":{"replicas":"many"}}"#), &["unrecognized type: int32"]);
    has(&k.fails(r#"patch deploy web -p {"spec":{"replicas":-1}}"#), &["must be greater than or equal to 0"]);
}

#[test]
fn an_object_is_replaced() {
    kubectl!(cluster, k);
    k.feed("create -f -", SETTINGS);
    let uid = k.field("cm/settings", ".metadata.uid");
    let read = k.run("get cm settings -o yaml");
    assert_eq!(k.feed("replace -f -", &read.replace("red", "blue")), "configmap/settings replaced\n");
    assert_eq!(k.field("cm/settings", ".data.colour"), "blue");
    // What was read first has been replaced since.
    has(&k.refuses("replace -f -", &read.replace("red", "green")), &["Conflict", "the object has been modified"]);
    k.feed("replace --force -f -", SETTINGS);
    assert_ne!(k.field("cm/settings", ".metadata.uid"), uid);
    has(&k.fails("create cm settings"), &["configmaps \"settings\" already exists"]);
}

#[test]
fn workloads_are_scaled() {
    kubectl!(cluster, k);
    k.feed("create -f -", &deployment(2, "nginx"));
    assert_eq!(k.run("scale deployment web --replicas=4"), "deployment.apps/web scaled\n");
    assert_eq!(k.field("deploy/web", ".spec.replicas"), "4");
    has(&k.fails("scale deploy web --replicas=5 --current-replicas=9"), &["Expected replicas to be 9, was 4"]);
    k.run("set image deployment/web web=nginx:2");
    assert_eq!(k.field("deploy/web", ".spec.template.spec.containers[0].image"), "nginx:2");
    assert_eq!(k.field("deploy/web", ".metadata.generation"), "3");
}

#[test]
fn a_deployment_is_scaled_in_many_steps() {
    kubectl!(cluster, k);
    k.run("create deployment x --image=nginx --replicas=25");
    // Before 1.24 kubectl cannot wait for a field.
    let seen = k.spawn(r#"get deployment x --watch -o jsonpath={.spec.replicas}={.status.replicas}!{"\n"}"#);
    for replicas in [25, 50, 75, 70, 64, 50, 40, 33, 21, 5] {
        k.run(&format!("scale deployment x --replicas={replicas}"));
        seen.line_with(&format!("{replicas}={replicas}!"));
    }
    assert_eq!(k.run("get pods -l app=x -o name").lines().count(), 5);
}

#[test]
fn what_is_waited_for_comes() {
    kubectl!(cluster, k);
    k.pending_pod("solo");
    let waiting = k.spawn("wait --for=condition=Ready pod/solo --timeout=60s");
    let ready = r#"[{"op":"add","path":"/status/conditions","value":[{"type":"Ready","status":"True"}]}]"#;
    if k.at_least(24) {
        k.run(&format!("patch pod solo --subresource=status --type=json -p {ready}"));
        assert_eq!(waiting.line().as_deref(), Some("pod/solo condition met"));
        k.run("wait --for=jsonpath={.status.phase}=Pending pod/solo --timeout=60s");
    }
    drop(waiting);
    let waiting = k.spawn("wait --for=delete pod/solo --timeout=60s");
    k.run("delete pod solo --wait=false");
    waiting.wait();
    has(&k.fails("get pod solo"), &["NotFound"]);
    k.run("create configmap stays");
    has(&k.fails("wait --for=delete cm/stays --timeout=1s"), &["timed out waiting"]);
}

#[test]
fn objects_are_deleted() {
    kubectl!(cluster, k);
    for name in ["one", "two", "three"] {
        k.run(&format!("create secret generic {name}"));
    }
    k.run("label secret one tier=front");
    has(&k.run("delete secret one --dry-run=server"), &["secret \"one\" deleted", "(server dry run)"]);
    has(&k.run("delete secrets -l tier=front"), &["secret \"one\" deleted"]);
    assert_eq!(k.run("get secrets -o name"), "secret/three\nsecret/two\n");
    k.run("delete secrets --all");
    assert_eq!(k.run("get secrets -o name"), "");
    has(&k.fails("delete secret one"), &["NotFound"]);
    assert_eq!(k.run("delete secret one --ignore-not-found"), "");
    k.pending_pod("solo");
    k.run("delete pod solo --grace-period=0 --force");
    has(&k.fails("get pod solo"), &["NotFound"]);
}

#[test]
fn a_dry_run_changes_nothing() {
    kubectl!(cluster, k);
    has(&k.run("create cm dry --dry-run=server -o yaml"), &["  uid: "]);
    has(&k.fails("get cm dry"), &["NotFound"]);
    k.feed("create -f -", SETTINGS);
    k.run("label cm settings tier=front --dry-run=server");
    k.feed("apply --dry-run=server -f -", &deployment(1, "nginx"));
    assert_eq!(k.field("cm/settings", ".metadata.labels"), "");
    has(&k.fails("get deployment web"), &["NotFound"]);
    has(&k.refuses("apply --dry-run=server -f -", &deployment(1, "")), &["image: Required value"]);
}
