//! For every marker of controller-gen: a Go type with it and the Rust type give the same definition.
//!
//! Go's side is in `tests/golden_crds`. What is put into one form before it is compared cannot differ in meaning; see
//! `normal` for each.

mod fields;
mod forms;
mod kinds;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::bench::{Bench, wait_for};

const GOLDEN: &str = include_str!("../golden_crds/crds.yaml");
const SOURCE: &str = include_str!("../golden_crds/types.go.txt");
const MARKERS: &str = include_str!("../golden_crds/markers.txt");
const TABLE: &str = include_str!("../../../../docs/reference/crd-markers.md");

/// A kind of the group, with the generator of this library.
macro_rules! kind {
    ($kind:tt, $plural:tt, $doc:tt, $(#[$attribute:meta])* $name:ident { $($fields:tt)* }) => {
        #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[kube(
            group = "golden.example.com",
            version = "v1",
            kind = $kind,
            plural = $plural,
            namespaced,
            doc = $doc,
            crates(schemars = "windlass::crd::schemars")
        )]
        #[serde(rename_all = "camelCase")]
        $(#[$attribute])*
        pub struct $name { $($fields)* }
    };
}
use kind;

fn rust() -> Vec<CustomResourceDefinition> {
    [values::definitions(), fields::definitions(), kinds::definitions()].concat()
}

/// Go's definitions, by name.
fn golden() -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(GOLDEN).expect("YAML");
    documents.into_iter().map(|definition| (name(&definition).to_string(), definition)).collect()
}

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().expect("a name")
}

/// A definition in the form in which it is compared.
fn normal(mut definition: Value) -> Value {
    // Which program made it.
    let metadata = definition["metadata"].as_object_mut().expect("metadata");
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove("controller-gen.kubebuilder.io/version");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    // The name of lists that the server gives if there is none.
    let list = format!("{}List", definition["spec"]["names"]["kind"].as_str().expect("a kind"));
    definition["spec"]["names"].as_object_mut().expect("names").entry("listKind").or_insert(list.into());
    for version in definition["spec"]["versions"].as_array_mut().expect("versions") {
        // No subresources.
        let version = version.as_object_mut().expect("a version");
        if version.get("subresources") == Some(&json!({})) {
            version.remove("subresources");
        }
        // Fields that every object has, and that the server describes itself.
        let root = &mut version["schema"]["openAPIV3Schema"];
        for field in ["apiVersion", "kind", "metadata"] {
            root["properties"].as_object_mut().expect("fields").remove(field);
        }
        order(root);
    }
    definition
}

/// Sorts what has no order, and makes all numbers of one kind: 1 is 1.0.
fn order(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                order(field);
                match (key.as_str(), field) {
                    ("required", Value::Array(names)) => names.sort_by_key(Value::to_string),
                    ("x-kubernetes-validations", Value::Array(rules)) => {
                        rules.sort_by_key(|rule| rule["rule"].to_string());
                    }
                    _ => {}
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(order),
        Value::Number(number) => *value = json!(number.as_f64()),
        _ => {}
    }
}

#[test]
fn go_and_rust_types_give_the_same_definition() {
    let mut golden = golden();
    let mut compared = Vec::new();
    for definition in rust() {
        let definition = serde_json::to_value(&definition).expect("written");
        let expected = golden.get(name(&definition)).unwrap_or_else(|| panic!("{} is not in Go", name(&definition)));
        let (found, expected) = (normal(definition.clone()), normal(expected.clone()));
        let words = || format!("{}\nfound {found:#}\nin Go {expected:#}", name(&definition));
        assert!(found == expected, "{}", words());
        compared.push(name(&definition).to_string());
    }
    golden.retain(|name, _| !compared.contains(name));
    assert!(golden.is_empty(), "no Rust type for {:?}", golden.keys());
}

/// Where the Go types have markers: each by its name, with what it stands on.
fn used() -> BTreeSet<(&'static str, &'static str)> {
    let known = |text: &str| {
        let is_it =
            |name: &&str| text.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':']));
        MARKERS.lines().filter_map(|line| line.split_whitespace().next()).find(is_it)
    };
    let (mut used, mut above) = (BTreeSet::new(), Vec::new());
    for line in SOURCE.lines().map(str::trim) {
        if let Some(marker) = line.strip_prefix("// +") {
            above.push(known(marker).unwrap_or_else(|| panic!("controller-gen does not know +{marker}")));
        } else if !line.starts_with("//") {
            let first = line.split_whitespace().next();
            let place = first.filter(|word| ["package", "type"].contains(word)).unwrap_or("field");
            used.extend(above.drain(..).map(|marker| (marker, place)));
        }
    }
    used
}

/// This marker is known there only to be refused: "k8s:enum must be set on a type, not a field".
const REFUSED: (&str, &str) = ("k8s:enum", "field");

#[test]
fn each_marker_has_cases_and_a_row() {
    let mut known = BTreeSet::new();
    for line in MARKERS.lines() {
        let mut words = line.split_whitespace();
        let marker = words.next().expect("a name");
        known.extend(words.map(|place| (marker, place)));
        let rows =
            TABLE.lines().filter(|line| line.starts_with("| ") && line.contains(&format!("`+{marker}`"))).count();
        assert_eq!(rows, 1, "rows of the table about +{marker}");
    }
    assert!(known.remove(&REFUSED));
    assert_eq!(used(), known);
}

#[tokio::test]
async fn servers_accept_each_definition() {
    let bench = Bench::start().await;
    let api: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    for (name, definition) in golden() {
        let definition = serde_json::from_value(definition).expect("a definition");
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        api.create(&dry, &definition).await.unwrap_or_else(|error| panic!("{name} of Go: {error}"));
    }
    let mut names: Vec<String> = Vec::new();
    for definition in rust() {
        let name = definition.metadata.name.clone().expect("a name");
        if !names.contains(&name) {
            api.create(&PostParams::default(), &definition).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            names.push(name);
        }
    }
    for name in &names {
        wait_for("each kind is established", async || {
            let definition = api.get(name).await.expect("read");
            let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
    }
}
