//! From a CRD to its resources, and what its objects go through.

// Tables of `json!` literals read better by value.
#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::lifecycle::{AcceptedNames, begin_deletion, finish_deletion, serve, update_status};
use super::*;
use crate::field::FieldErrors;

fn crd(names: Value, versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.example.com", names.text("plural")), "uid": "u", "generation": 1},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions,
                 "conversion": {"strategy": "None"}}})
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
        "properties": {"spec": {"type": "object", "properties": spec}, "status": {"type": "object",
        "properties": {"ready": {"type": "boolean"}}}}}}})
}

fn lamps() -> Value {
    let names = json!({"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList",
        "shortNames": ["lp"], "categories": ["all"]});
    let mut one = version("v1", true, json!({"on": {"type": "boolean"}, "replicas": {"type": "integer"}}));
    one["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    one["additionalPrinterColumns"] = json!([{"name": "On", "type": "boolean", "jsonPath": ".spec.on"}]);
    one["selectableFields"] = json!([{"jsonPath": ".spec.on"}]);
    crd(names, json!([one]))
}

const NOW: &str = "2026-01-01T00:00:00Z";

#[test]
fn a_new_crd_is_established_and_served_at_once() {
    let mut crd = lamps();
    let taken = AcceptedNames::of([&crd]);
    assert!(update_status(&mut crd, &taken, NOW, true));
    assert!(!update_status(&mut crd, &taken, "later", true), "a second look changes nothing");
    assert_eq!(crd["status"]["acceptedNames"], crd["spec"]["names"]);
    assert_eq!(
        crd["status"]["conditions"],
        json!([
            {"type": "NamesAccepted", "status": "True", "lastTransitionTime": NOW,
             "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "lastTransitionTime": NOW,
             "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
        ])
    );
    let served = serve(&crd);
    let (resource, kind) = &served[0];
    assert_eq!(resource.api_version(), "example.com/v1");
    assert_eq!(resource.key("n", "a"), "/registry/example.com/lamps/n/a");
    assert!(resource.custom && resource.serves("create") && resource.subresource("scale").is_some());
    assert_eq!(resource.columns[0].json_path.as_deref(), Some(".spec.on"));
    assert_eq!(kind.versions[0].selectable_fields, ["spec.on".into()]);
}

#[test]
fn a_name_that_is_taken_is_not_accepted() {
    let mut first = lamps();
    update_status(&mut first, &AcceptedNames::default(), NOW, true);
    let mut second = crd(
        json!({"plural": "torches", "singular": "lamp", "kind": "Lamp", "listKind": "TorchList", "shortNames": ["lp"]}),
        json!([version("v1", true, json!({}))]),
    );
    let taken = AcceptedNames::of([&first, &second]);
    update_status(&mut second, &taken, NOW, true);
    assert_eq!(second["status"]["acceptedNames"], json!({"plural": "torches", "kind": "", "listKind": "TorchList"}));
    assert_eq!(
        second["status"]["conditions"],
        json!([
            {"type": "NamesAccepted", "status": "False", "lastTransitionTime": NOW,
             "reason": "KindConflict", "message": "\"Lamp\" is already in use"},
            {"type": "Established", "status": "False", "lastTransitionTime": NOW,
             "reason": "NotAccepted", "message": "not all names are accepted"},
        ])
    );
    assert!(serve(&second).is_empty());
    // Once the first is gone, the second gets its names.
    let taken = AcceptedNames::of([&second]);
    assert!(update_status(&mut second, &taken, "later", true));
    assert_eq!(second["status"]["acceptedNames"], second["spec"]["names"]);
    assert_eq!(serve(&second).len(), 1);
}

#[test]
fn approval_and_unusable_webhooks_show_in_the_conditions() {
    let mut crd = lamps();
    crd["spec"]["group"] = json!("x.k8s.io");
    crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    crd["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "bm90IGEgY2VydA=="}}});
    update_status(&mut crd, &AcceptedNames::default(), NOW, true);
    let reason = |index: usize| crd["status"]["conditions"][index]["reason"].as_str().unwrap_or_default();
    assert_eq!([reason(0), reason(1), reason(2)], ["NoConflicts", "InvalidCABundle", "UnapprovedAnnotation"]);
    assert!(serve(&crd).is_empty());
}

#[test]
fn deletion_waits_for_the_objects() {
    let mut crd = lamps();
    update_status(&mut crd, &AcceptedNames::default(), NOW, true);
    begin_deletion(&mut crd, NOW);
    assert_eq!(crd["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(crd["status"]["conditions"][2]["reason"], "InstanceDeletionPending");
    let (resource, kind) = &serve(&crd)[0];
    assert!(kind.terminating && !resource.serves("create") && resource.serves("delete"));
    finish_deletion(&mut crd, NOW);
    assert_eq!(crd["metadata"].get("finalizers"), None);
    assert_eq!(crd["status"]["conditions"][2]["reason"], "InstanceDeletionCompleted");
}

#[test]
fn deprecated_versions_name_a_better_one() {
    let mut old = version("v2beta1", false, json!({}));
    old["deprecated"] = json!(true);
    let mut older = version("v1alpha1", false, json!({}));
    older["deprecated"] = json!(true);
    older["deprecationWarning"] = json!("v1alpha1 is old");
    let names = json!({"plural": "multis", "kind": "Multi"});
    let versions = json!([version("v1", true, json!({})), version("v2", false, json!({})), old, older]);
    let kind = CustomKind::new(&crd(names, versions)).expect("has a storage version");
    let warning = |name: &str| kind.version(name).and_then(|version| version.deprecation.as_deref());
    assert_eq!(warning("v2beta1"), Some("example.com/v2beta1 Multi is deprecated; use example.com/v2 Multi"));
    assert_eq!(warning("v1alpha1"), Some("v1alpha1 is old"));
    assert_eq!(warning("v1"), None);
}

#[test]
fn reading_at_another_version_prunes_but_does_not_default() {
    let text = json!({"type": "string"});
    let names = json!({"plural": "multis", "kind": "Multi"});
    let versions = json!([
        version("v1", true, json!({"a": text, "b": text, "late": {"type": "string", "default": "x"}})),
        version("v2", false, json!({"a": text, "c": {"type": "string", "default": "dc"}})),
    ]);
    let kind = CustomKind::new(&crd(names, versions)).expect("has a storage version");
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Multi", "spec": {"a": "1", "b": "2"}});
    kind.from_storage(&mut object);
    assert_eq!(object["spec"], json!({"a": "1", "b": "2", "late": "x"}));
    kind.convert(&mut object, kind.version("v2").expect("declared"));
    assert_eq!(object, json!({"apiVersion": "example.com/v2", "kind": "Multi", "spec": {"a": "1"}}));
}

#[test]
fn status_is_its_own_only_as_a_subresource() {
    let kind = CustomKind::new(&lamps()).expect("has a storage version");
    let lamp = kind.strategy("v1");
    let old = json!({"metadata": {"name": "a"}, "spec": {"on": true}, "status": {"ready": true}});
    let mut new =
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"on": true}, "status": {"ready": false}});
    assert!(!lamp.desired_state_changed(&new, &old));
    lamp.prepare_update(&mut new, &old);
    assert_eq!(new["status"], json!({"ready": true}));
    new["extra"] = json!(1);
    assert!(lamp.desired_state_changed(&new, &old));
    lamp.prepare_create(&mut new);
    assert_eq!(new.get("status"), None);
    let mut status =
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"on": false}, "status": {"ready": false}});
    lamp.prepare_status_update(&mut status, &old);
    assert_eq!(status, json!({"metadata": {"name": "a"}, "spec": {"on": true}, "status": {"ready": false}}));
}

#[test]
fn objects_are_checked_for_their_type_first() {
    let kind = CustomKind::new(&lamps()).expect("has a storage version");
    let check = |object: Value| {
        let mut errors = FieldErrors::default();
        kind.strategy("v1").validate(&object, &mut errors);
        errors.to_string()
    };
    let wrong = check(json!({"apiVersion": "example.com/v1", "kind": "Lump", "spec": {"on": 1}}));
    assert_eq!(wrong, r#"kind: Invalid value: "Lump": must be Lamp"#);
    let negative = check(json!({"apiVersion": "example.com/v1", "kind": "Lamp", "spec": {"replicas": -1}}));
    assert_eq!(negative, ".spec.replicas: Invalid value: -1: should be a non-negative integer");
}

#[test]
fn finalizers_others_might_choose_are_warned_of() {
    let kind = CustomKind::new(&lamps()).expect("has a storage version");
    let object = json!({"metadata": {"finalizers": ["mine", "a.b", "example.com/x", "orphan", "old"]}});
    let old = json!({"metadata": {"finalizers": ["old"]}});
    assert_eq!(
        kind.strategy("v1").warnings(&object, Some(&old)),
        [
            "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"mine\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        ]
    );
}
