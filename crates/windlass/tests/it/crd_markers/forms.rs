//! Types that `kube`'s own generator panics on or makes unstructural schemas of: served, and checked by the server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass::crd;

use super::kind;
use crate::bench::{Bench, wait_for};

kind! { "Form", "forms", "Form has values of many forms.", FormSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<External>,
    #[serde(skip_serializing_if = "Option::is_none")]
    internal: Option<Internal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adjacent: Option<Adjacent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    untagged: Option<Untagged>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed: Option<Mixed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<Level>,
    // Written as null.
    note: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    names: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Node>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<(i32, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flat: Option<Flat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<PodTemplateSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = crd::immutable)]
    class: Option<String>,
    #[serde(default)]
    defaulted: Defaulted,
}}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum External {
    /// A path.
    File(String),
    Claim {
        name: String,
    },
}

/// Tagged within.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
enum Internal {
    /// A disk.
    Disk { size: String },
    /// A claim.
    Claim { size: bool },
    /// Nothing.
    None,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Flag(bool),
    Words(Vec<String>),
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    /// By name.
    Named { name: String },
    /// By label.
    Labelled { labels: BTreeMap<String, String> },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum Mixed {
    Never,
    Every { minutes: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
enum Level {
    /// Little.
    Low,
    /// Much.
    High,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Node {
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    children: Vec<Node>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Flat {
    name: String,
    #[serde(flatten)]
    target: External,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Defaulted {
    name: Option<String>,
    count: i32,
}

async fn served(bench: &Bench) -> Api<DynamicObject> {
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    definitions.create(&PostParams::default(), &Form::crd()).await.expect("the definition is accepted");
    let forms = Api::namespaced_with(bench.kube.clone(), "default", &ApiResource::erase::<Form>(&()));
    wait_for("forms are served", async || forms.list(&ListParams::default()).await.is_ok()).await;
    forms
}

fn form(name: &str, spec: &Value) -> DynamicObject {
    let form = json!({
        "apiVersion": "golden.example.com/v1", "kind": "Form", "metadata": { "name": name }, "spec": spec,
    });
    serde_json::from_value(form).expect("an object")
}

#[tokio::test]
async fn enums_of_all_forms_are_accepted_and_checked() {
    let bench = Bench::start().await;
    let forms = served(&bench).await;
    let accepted = [
        json!({ "external": { "file": "/tmp" } }),
        json!({ "external": { "claim": { "name": "a" } } }),
        json!({ "internal": { "type": "Disk", "size": "1Gi" } }),
        json!({ "internal": { "type": "Claim", "size": true } }),
        json!({ "internal": { "type": "None" } }),
        json!({ "adjacent": { "kind": "Flag", "value": true } }),
        json!({ "adjacent": { "kind": "Words", "value": ["a", "b"] } }),
        json!({ "untagged": { "name": "a" } }),
        json!({ "untagged": { "labels": { "a": "b" } } }),
        json!({ "mixed": "Never" }),
        json!({ "mixed": { "Every": { "minutes": 5 } } }),
        json!({ "level": "Low", "note": null, "names": ["a", "b"], "pair": [1, "a"] }),
        json!({ "node": { "name": "a", "children": [{ "name": "b", "children": [{ "name": "c" }] }] } }),
        json!({ "flat": { "name": "a", "file": "/tmp", "more": 1 } }),
        json!({ "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c" }] } } }),
    ];
    for (index, spec) in accepted.iter().enumerate() {
        let created = forms.create(&PostParams::default(), &form(&format!("form-{index}"), spec)).await;
        let created = created.unwrap_or_else(|error| panic!("{spec}: {error}"));
        // Nothing is pruned, and the type reads what the server gives.
        for (field, value) in spec.as_object().expect("fields") {
            assert_eq!(created.data["spec"][field], *value, "{field}");
        }
        let read: FormSpec = serde_json::from_value(created.data["spec"].clone()).expect("read");
        assert_eq!(read.defaulted.count, 0);
    }
    let refused = [
        json!({ "external": { "file": "/tmp", "claim": { "name": "a" } } }),
        json!({ "external": {} }),
        json!({ "internal": { "type": "Disk" } }),
        json!({ "internal": { "type": "Tape", "size": "1Gi" } }),
        json!({ "adjacent": { "kind": "Number", "value": 1 } }),
        json!({ "adjacent": { "kind": "Flag" } }),
        json!({ "untagged": {} }),
        json!({ "level": "Middle" }),
        json!({ "names": ["a", "a"] }),
        json!({ "pair": [1] }),
        json!({ "flat": { "name": "a" } }),
    ];
    for spec in &refused {
        let error = forms.create(&PostParams::default(), &form("refused", spec)).await;
        let Err(kube::Error::Api(status)) = error else { panic!("{spec} was accepted") };
        assert_eq!(status.reason, "Invalid", "{spec}: {status:?}");
    }
}

#[tokio::test]
async fn an_immutable_optional_field_stays_once_set() {
    let bench = Bench::start().await;
    let forms = served(&bench).await;
    forms.create(&PostParams::default(), &form("a", &json!({}))).await.expect("created");
    let put = async |spec: Value| {
        let mut next = form("a", &spec);
        next.metadata.resource_version = forms.get("a").await.expect("read").metadata.resource_version;
        forms.replace("a", &PostParams::default(), &next).await.map(|_| ()).map_err(|error| error.to_string())
    };
    put(json!({ "class": "fast" })).await.expect("set once");
    let changed = put(json!({ "class": "slow" })).await.expect_err("changed");
    assert!(changed.contains("field is immutable"), "{changed}");
    let removed = put(json!({})).await.expect_err("removed");
    assert!(removed.contains("field class is immutable once set"), "{removed}");
    put(json!({ "class": "fast", "level": "Low" })).await.expect("kept");
}

/// `UniqueItems=true` of controller-gen: refused by servers, where a set does the same.
#[tokio::test]
async fn unique_items_are_refused_and_sets_are_not() {
    let bench = Bench::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.kube.clone());
    let mut definition = serde_json::to_value(Form::crd()).expect("written");
    let names = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/names";
    let names = definition.pointer_mut(names).expect("the field");
    assert_eq!(names["x-kubernetes-list-type"], "set");
    names["uniqueItems"] = true.into();
    let definition = serde_json::from_value(definition).expect("a definition");
    let error = definitions.create(&PostParams::default(), &definition).await.expect_err("refused");
    assert!(error.to_string().contains("uniqueItems cannot be set to true"), "{error}");
}
