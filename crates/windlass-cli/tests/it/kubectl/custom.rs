//! Custom resources, from their definition to their deletion.

use serde_json::{Value, json};

use super::{Kubectl, cells, has, kubectl};
use crate::process::eventually;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.windlass.dev}
spec:
  group: test.windlass.dev
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Wanted, type: integer, jsonPath: .spec.replicas}
    - {name: Note, type: string, jsonPath: .spec.note, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: A gadget of the tests.
        properties:
          spec:
            type: object
            description: What the gadget is to be.
            required: [colour]
            properties:
              colour: {type: string, enum: [red, green], description: Its colour.}
              replicas: {type: integer, minimum: 0, default: 1}
              note: {type: string}
          status:
            type: object
            properties:
              replicas: {type: integer}
              phase: {type: string}
";

fn gadget(name: &str, spec: &str) -> String {
    format!("apiVersion: test.windlass.dev/v1\nkind: Gadget\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

fn define(k: &Kubectl) {
    k.feed("apply -f -", DEFINITION);
    k.run("wait --for=condition=Established crd/gadgets.test.windlass.dev --timeout=60s");
}

#[test]
fn custom_resources_are_used_like_any_other() {
    kubectl!(cluster, k);
    define(&k);
    assert_eq!(
        k.feed("apply -f -", &gadget("lamp", "{colour: red, note: bright}")),
        "gadget.test.windlass.dev/lamp created\n"
    );
    assert_eq!(cells(&k.run("get gadgets")), [["NAME", "COLOUR", "WANTED"], ["lamp", "red", "1"]]);
    assert_eq!(cells(&k.run("get gd -o wide"))[1], ["lamp", "red", "1", "bright"]);
    has(&k.run("get all"), &["gadget.test.windlass.dev/lamp"]);
    assert_eq!(k.run("scale gadget lamp --replicas=3"), "gadget.test.windlass.dev/lamp scaled\n");
    assert_eq!(k.field("gd/lamp", ".spec.replicas"), "3");
    has(&k.run("describe gadget lamp"), &["Kind:         Gadget", "Colour:    red"]);
    k.run(r#"patch gadget lamp --type=merge -p {"spec":{"colour":"green"}}"#);
    assert_eq!(k.field("gd/lamp", ".metadata.generation"), "3");
    k.feed("apply --server-side --force-conflicts -f -", &gadget("lamp", "{colour: red}"));
    assert_eq!(k.field("gd/lamp", ".spec.colour"), "red");
    k.run("delete gadgets --all");
    assert_eq!(k.run("get gadgets -o name"), "");
}

#[test]
fn a_custom_resources_status_is_apart_from_its_spec() {
    kubectl!(cluster, k);
    define(&k);
    k.feed("create -f -", &(gadget("lamp", "{colour: red}") + "status: {phase: Ignored}\n"));
    assert_eq!(k.field("gd/lamp", ".status"), "");
    if !k.at_least(24) {
        return;
    }
    let patch = r#"{"spec":{"colour":"green"},"status":{"phase":"Lit","replicas":2}}"#;
    k.run(&format!("patch gadget lamp --subresource=status --type=merge -p {patch}"));
    assert_eq!(k.field("gd/lamp", ".status.phase"), "Lit");
    assert_eq!(k.field("gd/lamp", ".spec.colour"), "red");
    assert_eq!(k.field("gd/lamp", ".metadata.generation"), "1");
    assert_eq!(k.run("get gadget lamp --subresource=scale -o jsonpath={.status.replicas}"), "2");
}

#[test]
fn a_schema_is_enforced_and_explained() {
    kubectl!(cluster, k);
    define(&k);
    let refused = k.refuses("apply --validate=false -f -", &gadget("lamp", "{colour: mauve, replicas: -1}"));
    has(&refused, &["spec.colour: Unsupported value: \"mauve\"", "\"red\", \"green\"", "spec.replicas: Invalid value"]);
    has(&k.refuses("create -f -", &gadget("lamp", "{}")), &["colour"]);
    has(&k.refuses("create -f -", &gadget("lamp", "{colour: red, typo: 1}")), &["unknown field \"", "typo"]);
    has(&k.run("explain gadget"), &["A gadget of the tests.", "status\t<Object>"]);
    has(&k.run("explain gadget.spec"), &["What the gadget is to be.", "Its colour.", "-required-"]);
    has(&k.run("explain gd --recursive"), &["colour\t<string>", "replicas\t<integer>"]);
    assert_eq!(cells(&k.run("api-resources --api-group=test.windlass.dev --no-headers"))[0][0], "gadgets");
}

#[test]
fn a_definition_is_deleted_with_its_objects() {
    kubectl!(cluster, k);
    define(&k);
    k.feed("create -f -", &gadget("lamp", "{colour: red}"));
    let watch = k.spawn("get gadgets --watch --output-watch-events --no-headers");
    watch.line_with("ADDED");
    k.run("delete crd gadgets.test.windlass.dev --timeout=60s");
    // The watch tells of the deletion, then ends with what it watches.
    watch.line_with("DELETED");
    while watch.line().is_some() {}
    crate::process::eventually("the kind is gone", || {
        let said = k.command("get gadgets").output().unwrap();
        (!said.status.success()).then_some(())
    });
    define(&k);
    assert_eq!(k.run("get gadgets -o name"), "");
}

#[test]
fn dependents_go_when_a_definition_is_replaced() {
    kubectl!(cluster, k);
    define(&k);
    let gadgets: Vec<String> = (0..40).map(|at| gadget(&format!("g{at}"), "{colour: red}")).collect();
    k.feed("create -f -", &gadgets.join("---\n"));
    let gadgets: Value = serde_json::from_str(&k.run("get gadgets -o json")).unwrap();
    let maps = gadgets["items"].as_array().unwrap().iter().flat_map(|gadget| {
        let owner = json!({
            "apiVersion": "test.windlass.dev/v1", "kind": "Gadget",
            "name": gadget["metadata"]["name"], "uid": gadget["metadata"]["uid"],
        });
        let name = gadget["metadata"]["name"].as_str().unwrap().to_owned();
        (0..4).map(move |nth| {
            let metadata = json!({
                "name": format!("{name}-{nth}"), "labels": {"owned": "true"}, "ownerReferences": [owner],
            });
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        })
    });
    let maps = json!({"apiVersion": "v1", "kind": "List", "items": maps.collect::<Vec<_>>()});
    k.feed("create -f -", &maps.to_string());
    let owned = || k.run("get configmaps -l owned -o name");
    assert_eq!(owned().lines().count(), 160);
    k.feed("delete -f -", DEFINITION);
    k.feed("apply -f -", DEFINITION);
    eventually("the ConfigMaps are collected", || owned().is_empty().then_some(()));
}
