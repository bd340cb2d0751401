//! Samples that follow the schemas of their kinds, applied to a cluster that has these.

use serde_json::{Value, json};

use super::Stage;

const SAMPLE: &str = "config/samples/zoo_v1_pet.yaml";

fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pets.zoo.example.com"},
        "spec": {
            "group": "zoo.example.com", "scope": "Namespaced", "names": {"kind": "Pet", "plural": "pets"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": spec,
                    "status": {"type": "object", "required": ["phase"], "properties": {"phase": {"type": "string"}}},
                }}},
            }],
        },
    })
}

/// An operator, a script, whose code has this definition.
fn operator(stage: &Stage, definition: &Value) {
    use std::os::unix::fs::PermissionsExt as _;
    stage.write("said", &format!("{definition}\n"));
    stage.write("operator", "#!/bin/sh\ncat said > $WINDLASS_MANIFESTS\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(stage.sandbox.path("operator"), executable).unwrap();
}

#[test]
fn an_unedited_sample_is_accepted_after_the_types_change() {
    let stage = Stage::new();
    stage.sandbox.succeeds("init --domain example.com --name zoo");
    stage.sandbox.succeeds("create api --group zoo --version v1 --kind Pet");
    let read = || std::fs::read_to_string(stage.sandbox.path(SAMPLE)).unwrap();
    let generated = read();
    let write = |spec: &Value| {
        operator(&stage, &definition(spec));
        let said = stage.sandbox.succeeds("manifests --write --program operator");
        stage.sandbox.succeeds("manifests --check --program operator");
        stage.succeeds("install -f config/crd/bases");
        said
    };
    // The generated sample fits the generated types.
    let said = write(&json!({"type": "object", "properties": {"foo": {"type": "string"}}}));
    assert!(!said.contains("config/samples"), "{said}");
    assert_eq!(read(), generated);
    stage.succeeds("apply -k config/samples");

    let spec = json!({
        "type": "object", "required": ["name", "age", "legs", "vet", "colors", "home", "diet"],
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z][a-z]{3,}$", "maxLength": 10},
            "age": {"type": "integer", "minimum": 2, "maximum": 90},
            "legs": {"type": "integer", "default": 4},
            "colors": {"type": "array", "minItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "vet": {"type": "object", "required": ["email"], "properties": {
                "email": {"type": "string", "format": "email"}, "phone": {"type": "string"},
            }},
            "home": {"x-kubernetes-int-or-string": true},
            "diet": {
                "type": "object", "properties": {"meat": {"type": "boolean"}, "plants": {"type": "boolean"}},
                "oneOf": [{"required": ["meat"]}, {"required": ["plants"]}],
            },
        },
    });
    let said = write(&spec);
    assert!(said.contains(&format!("update {SAMPLE}")) && !said.contains(".windlass"), "{said}");
    assert!(!read().contains("foo") && read().contains("app.kubernetes.io/name: zoo"), "{}", read());
    stage.succeeds("apply -k config/samples");
    // Other fields replace it again, and with the generated ones it is as it was.
    let spec =
        json!({"type": "object", "required": ["size"], "properties": {"size": {"enum": ["S", "L"], "type": "string"}}});
    write(&spec);
    assert!(read().contains("size: S") && !read().contains("vet"), "{}", read());
    stage.succeeds("apply -k config/samples");

    // A command that changes the project leaves it alone, and one that removes the kind removes it.
    let made = read();
    stage.sandbox.succeeds("create api --group zoo --version v1 --kind Cage");
    stage.sandbox.succeeds("upgrade");
    assert_eq!(read(), made);
    stage.sandbox.succeeds("delete api --group zoo --version v1 --kind Pet --dry-run");

    // What a user has edited is theirs.
    stage.write(SAMPLE, &made.replace("size: S", "size: L"));
    let said = write(&json!({"type": "object", "required": ["weight"], "properties": {"weight": {"type": "integer"}}}));
    assert!(!said.contains("config/samples"), "{said}");
    assert!(read().contains("size: L"));
    assert!(stage.sandbox.fails("delete api --group zoo --version v1 --kind Pet").contains("has changes of yours"));
    stage.write(SAMPLE, &made);
    stage.sandbox.succeeds("delete api --group zoo --version v1 --kind Pet");
    assert!(!stage.sandbox.path(SAMPLE).exists());
}
