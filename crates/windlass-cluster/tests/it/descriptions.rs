//! What OpenAPI documents say about built-in kinds and their fields.

use serde_json::{Map, Value};
use windlass_cluster::Cluster;

async fn document(cluster: &Cluster, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    cluster.client().request(request).await.unwrap()
}

fn description(value: &Value) -> &str {
    value["description"].as_str().unwrap_or_default()
}

/// Which fields of definitions there are, and which have no description.
fn fields(definitions: &Map<String, Value>) -> (usize, Vec<String>) {
    let mut count = 0;
    let mut bare = Vec::new();
    for (name, definition) in definitions {
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            count += 1;
            if description(property).is_empty() {
                bare.push(format!("{name}: {field}"));
            }
        }
    }
    (count, bare)
}

#[tokio::test]
async fn nearly_all_fields_of_built_in_kinds_are_described() {
    let cluster = Cluster::start().await.unwrap();
    let all = document(&cluster, "/openapi/v2").await;
    let definitions = all["definitions"].as_object().unwrap();
    let (count, bare) = fields(definitions);
    assert!(count - bare.len() >= 2_300, "{} of {count} fields have no description: {bare:#?}", bare.len());
    let kinds = definitions.values().filter(|definition| definition.get("x-kubernetes-group-version-kind").is_some());
    let silent: Vec<&Value> = kinds.filter(|kind| description(kind).is_empty()).collect();
    assert!(silent.is_empty(), "{silent:#?}");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_described_reference_is_wrapped_in_version_3() {
    let cluster = Cluster::start().await.unwrap();
    let apps = document(&cluster, "/openapi/v3/apis/apps/v1").await;
    let schemas = apps["components"]["schemas"].as_object().unwrap();
    assert_eq!(fields(schemas).1.iter().filter(|field| !field.contains(".meta.v1.")).count(), 0);
    let selector = &schemas["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["selector"];
    assert!(selector.get("$ref").is_none(), "{selector}");
    assert_eq!(selector["allOf"][0]["$ref"], "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector");
    assert!(description(selector).contains("pods"), "{selector}");
    let v2 = document(&cluster, "/openapi/v2").await;
    let selector = &v2["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["selector"];
    assert!(selector.get("$ref").is_some() && description(selector).contains("pods"), "{selector}");
    cluster.stop().await.unwrap();
}
