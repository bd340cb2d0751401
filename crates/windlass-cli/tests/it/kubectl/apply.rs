//! `apply`, `apply --server-side`, `diff`.

use super::{SETTINGS, deployment, has, kubectl};

#[test]
fn apply_creates_configures_and_leaves_alone() {
    kubectl!(cluster, k);
    assert_eq!(k.feed("apply -f -", &deployment(2, "nginx:1")), "deployment.apps/web created\n");
    assert_eq!(k.feed("apply -f -", &deployment(2, "nginx:1")), "deployment.apps/web unchanged\n");
    let revision = k.field("deploy/web", ".metadata.resourceVersion");
    // What another manager adds stays, what is applied wins, what is no longer applied goes.
    k.run("label deployment web other=stays");
    k.run("scale deployment web --replicas=9");
    let relabelled = deployment(3, "nginx:2").replacen("labels: {app: web}", "labels: {tier: web}", 1);
    assert_eq!(k.feed("apply -f -", &relabelled), "deployment.apps/web configured\n");
    assert_ne!(k.field("deploy/web", ".metadata.resourceVersion"), revision);
    assert_eq!(k.field("deploy/web", ".spec.replicas"), "3");
    assert_eq!(k.field("deploy/web", ".metadata.labels.other"), "stays");
    assert_eq!(k.field("deploy/web", ".metadata.labels.app"), "");
    has(&k.run("apply view-last-applied deployment/web"), &["image: nginx:2", "replicas: 3"]);
}

#[test]
fn apply_takes_several_documents_and_prunes() {
    kubectl!(cluster, k);
    let map =
        |name: &str| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: a}}}}\n");
    let said = k.feed("apply -f -", &(map("one") + &map("two") + &map("three")));
    assert_eq!(said.lines().count(), 3);
    let prune = if k.at_least(26) { "--prune-allowlist" } else { "--prune-whitelist" };
    let said = k.feed(&format!("apply -f - --prune -l set=a {prune}=core/v1/ConfigMap"), &map("two"));
    has(&said, &["configmap/two unchanged", "configmap/one pruned", "configmap/three pruned"]);
    assert_eq!(k.run("get cm -l set=a -o name"), "configmap/two\n");
}

#[test]
fn invalid_manifests_are_refused_with_reasons() {
    kubectl!(cluster, k);
    let typo = deployment(1, "nginx").replace("replicas", "replicsa");
    has(&k.refuses("apply -f -", &typo), &["unknown field \"", "replicsa"]);
    has(&k.feed("apply --validate=false -f -", &typo), &["created"]);
    let named = deployment(1, "nginx").replace("{name: web,", "{name: Web_,");
    has(&k.refuses("apply -f -", &named), &["metadata.name: Invalid value: \"Web_\"", "RFC 1123"]);
    let mismatch = deployment(1, "nginx").replace("matchLabels: {app: web}", "matchLabels: {app: other}");
    has(&k.refuses("create -f -", &mismatch), &["`selector` does not match template `labels`"]);
}

#[test]
fn server_side_apply_knows_who_owns_what() {
    kubectl!(cluster, k);
    let applied = "configmap/settings serverside-applied\n";
    assert_eq!(k.feed("apply --server-side -f -", SETTINGS), applied);
    let revision = k.field("cm/settings", ".metadata.resourceVersion");
    assert_eq!(k.feed("apply --server-side -f -", SETTINGS), applied);
    assert_eq!(k.field("cm/settings", ".metadata.resourceVersion"), revision);
    let blue = SETTINGS.replace("red", "blue");
    let conflict = k.refuses("apply --server-side --field-manager=other -f -", &blue);
    has(&conflict, &["Apply failed with 1 conflict: conflict with \"kubectl\"", ".data.colour"]);
    k.feed("apply --server-side --field-manager=other --force-conflicts -f -", &blue);
    assert_eq!(k.field("cm/settings", ".data.colour"), "blue");
    // Who no longer applies a field that another still does takes nothing away.
    let less = SETTINGS.replace("colour: red, ", "");
    assert_eq!(k.feed("apply --server-side -f -", &less), applied);
    assert_eq!(k.field("cm/settings", ".data.colour"), "blue");
    let managers = ".metadata.managedFields[*].manager";
    assert_eq!(k.field("cm/settings", managers), "kubectl other");
}

#[test]
fn client_side_apply_moves_to_server_side_apply() {
    kubectl!(cluster, k);
    k.feed("apply -f -", &deployment(2, "nginx:1"));
    let said = k.feed("apply --server-side --force-conflicts -f -", &deployment(4, "nginx:2"));
    assert_eq!(said, "deployment.apps/web serverside-applied\n");
    assert_eq!(k.field("deploy/web", ".spec.replicas"), "4");
}

#[test]
fn a_diff_shows_what_apply_would_change() {
    kubectl!(cluster, k);
    k.feed("apply -f -", SETTINGS);
    assert_eq!(k.feed("diff -f -", SETTINGS), "");
    for how in ["diff -f -", "diff --server-side --force-conflicts -f -"] {
        let said = k.fed(how, &SETTINGS.replace("red", "blue"));
        assert_eq!(said.status.code(), Some(1), "{how}: {said:?}");
        has(&said.stdout, &["-  colour: red\n", "+  colour: blue\n"]);
    }
    let said = k.fed("diff -f -", &deployment(3, "nginx:1"));
    has(&said.stdout, &["+  generation: 1\n", "+  replicas: 3\n"]);
    assert_eq!(k.field("cm/settings", ".data.colour"), "red");
}
