//! What cannot become types is refused with what to do.

use windlass_scaffold::types::Definition;

const HEAD: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: xs.a.b}\n";

#[track_caller]
fn refused(text: &str, part: &str) {
    let result = Definition::parse(text).and_then(|definitions| definitions[0].to_rust());
    let error = result.unwrap_err().to_string();
    assert!(error.contains(part), "{part:?} is not in: {error}");
}

#[test]
fn what_is_no_definition_is_refused() {
    refused("", "there is no CustomResourceDefinition in it; `kubectl get crd");
    refused("kind: Pod\n---\nkind: Service\n---\nkind: Pod\n", "only Pod, Service;");
    refused("a: [", "neither YAML nor JSON");
    refused("{\"a\": ", "neither YAML nor JSON");
    refused("kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1beta1\n", "not served since 1.22");
    refused("kind: CustomResourceDefinition\napiVersion: v1\n", "its apiVersion is \"v1\"");
    refused(HEAD, "xs.a.b is not a valid CustomResourceDefinition: spec:");
    let spec = |kind: &str, versions: &str| {
        format!(
            "{HEAD}spec: {{group: a.b, scope: Cluster, names: {{kind: {kind}, plural: xs}}, versions: {versions}}}\n"
        )
    };
    refused(&spec("X", "[]"), "it has no versions");
    refused(&spec("'X y'", "[{name: v1, served: true, storage: true}]"), "its kind is \"X y\"");
    refused(&spec("X", "[{name: v1, served: true, storage: true}]"), "version v1 of xs.a.b has no schema");
    refused(&spec("X", "[{name: 'v1; x', served: true, storage: true}]"), "its version is \"v1; x\"");
    let level = "{type: object, properties: {a: {type: array, items: ";
    let schema = format!("{}{{type: string}}{}", level.repeat(78), "}}}".repeat(78));
    let version = format!("[{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]");
    refused(&spec("X", &version), "the schema of version v1 nests too deeply");
    let deep = "a: ".to_owned() + &"[".repeat(100_000);
    refused(&deep, "neither YAML nor JSON");
}

#[test]
fn a_definition_is_in_a_file_once() {
    let text = super::read("names.yaml");
    assert_eq!(Definition::parse(&format!("{text}\n---\n{text}")).unwrap().len(), 1);
    let other = text.replace("type: boolean", "type: string");
    refused(&format!("{text}\n---\n{other}"), "names.example.com is in there twice, and the two differ");
}

#[test]
fn versions_and_kinds_are_chosen_by_name() {
    let mut definitions = Definition::parse(&super::read("versions.yaml")).unwrap();
    let error = definitions[0].keep_version("v2").unwrap_err().to_string();
    assert!(error.contains("it has: v1, v1beta1, v1alpha1"), "{error}");
    definitions[0].keep_version("v1beta1").unwrap();
    assert_eq!(definitions[0].versions.len(), 1);
    assert!(!definitions[0].to_rust().unwrap().contains("pub mod "));
    let error = Definition::of_kind(definitions, "Widget").unwrap_err().to_string();
    assert!(error.contains("there are: Gadget"), "{error}");
}

#[test]
fn a_megabyte_with_thirty_levels_becomes_types() {
    // 30 levels of fields, and about a megabyte.
    let mut schema = serde_json::json!({"type": "string", "description": "x".repeat(50)});
    for level in 0..30 {
        let mut properties = serde_json::Map::new();
        for number in 0..330 {
            let leaf = serde_json::json!({"type": "string", "description": format!("{level} {}", "y".repeat(60))});
            properties.insert(format!("field{number}"), leaf);
        }
        properties.insert(format!("level{level}"), schema);
        schema = serde_json::json!({"type": "object", "properties": properties});
    }
    let crd = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "xs.a.b"},
        "spec": {"group": "a.b", "scope": "Cluster", "names": {"kind": "X", "plural": "xs"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
        }]},
    });
    let text = crd.to_string();
    assert!(text.len() > 1_000_000, "{}", text.len());
    let source = Definition::parse(&text).unwrap()[0].to_rust().unwrap();
    assert!(source.contains("pub struct Level1 {"));
}
