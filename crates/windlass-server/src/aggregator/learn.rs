//! Asks the server behind an APIService what it serves: its discovery and OpenAPI documents.
//!
//! What cannot be read stays as it was known. Mirrors `handler_discovery.go` of `kube-aggregator/pkg/apiserver` and the
//! downloaders of its OpenAPI controllers.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use crate::authn::{MASTERS, User};
use crate::remote::{Backend, CONVERTED, Fetched, Known, converted, filtered, version_of_legacy};
use crate::validation::access::Access as _;

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const OPENAPI_TIMEOUT: Duration = Duration::from_secs(60);

/// What the server says now about the group version of an APIService.
pub(super) async fn ask(backend: &Backend, spec: &Value, before: Known) -> Known {
    let (group, version) = (spec.text("group"), spec.text("version"));
    let (discovery, openapi) = tokio::join!(discovery(backend, group, version), openapi(backend, group, version));
    let (openapi_v2, openapi_v3) = openapi;
    Known {
        is_fresh: discovery.is_some(),
        discovery,
        openapi_v3: openapi_v3.unwrap_or(before.openapi_v3),
        openapi_v2: openapi_v2.or(before.openapi_v2),
    }
}

/// The entry of the group version in the aggregated discovery document. None if the server does not answer.
async fn discovery(backend: &Backend, group: &str, version: &str) -> Option<Value> {
    let mut user = User::new("system:kube-aggregator", []);
    user.groups = vec![MASTERS.to_owned()];
    let fetch = async |path: &str, accept: &str| {
        let fetched: Fetched = backend.fetch(path, accept, None, &user, DISCOVERY_TIMEOUT).await.ok()?;
        Some(fetched)
    };
    let accept = format!("{AGGREGATED},{JSON}");
    let (parts, body) = fetch("/apis", &accept).await?;
    if parts.status == StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let is_aggregated = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|kind| {
        let has = |part: &str| kind.split(';').any(|known| known.trim() == part);
        has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList")
    });
    if parts.status == StatusCode::OK && is_aggregated {
        let document: Value = serde_json::from_slice(&body).ok()?;
        let found = document.list("items").iter().filter(|item| item.at("metadata").text("name") == group);
        let mut entry = found
            .flat_map(|item| item.list("versions"))
            .find(|entry| entry.text("version") == version)
            .cloned()
            .unwrap_or_else(|| json!({"version": version}));
        name_kinds(&mut entry);
        return Some(entry);
    }
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let (parts, body) = fetch(&path, JSON).await?;
    if parts.status != StatusCode::OK {
        return None;
    }
    Some(version_of_legacy(version, &serde_json::from_slice(&body).ok()?))
}

/// Resources without a kind get an empty one: some versions of client-go cannot do without.
fn name_kinds(entry: &mut Value) {
    let empty = || json!({"group": "", "version": "", "kind": ""});
    for resource in entry.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
        if !resource.has("responseKind") {
            resource["responseKind"] = empty();
        }
        for below in resource.get_mut("subresources").and_then(Value::as_array_mut).into_iter().flatten() {
            if !below.has("responseKind") {
                below["responseKind"] = empty();
            }
        }
    }
}

type OpenApi = (Option<Arc<Value>>, Option<Map<String, Value>>);

/// The part of the version 2 document about the group version, and the paths of the version 3 index. A server without
/// version 3 gets an entry with the converted document.
async fn openapi(backend: &Backend, group: &str, version: &str) -> OpenApi {
    let mut user = User::new("system:aggregator", []);
    user.groups.clear();
    let (v2, v3) = tokio::join!(
        backend.fetch("/openapi/v2", JSON, None, &user, OPENAPI_TIMEOUT),
        backend.fetch("/openapi/v3", JSON, None, &user, OPENAPI_TIMEOUT)
    );
    let parsed = |fetched: &Result<Fetched, String>| -> Option<Value> {
        let (parts, body) = fetched.as_ref().ok()?;
        serde_json::from_slice(body).ok().filter(|_| parts.status == StatusCode::OK)
    };
    let v2_document = parsed(&v2);
    let v2_part = v2_document.as_ref().map(|document| Arc::new(filtered(document, group, version)));
    let has_no_v3 = v3.as_ref().is_ok_and(|(parts, _)| parts.status == StatusCode::NOT_FOUND);
    let paths = if has_no_v3 {
        v2_document.as_ref().map(|document| {
            let mut part = filtered(document, group, version);
            part["info"] = document.at("info").clone();
            let entry = json!({CONVERTED: converted(&part)});
            Map::from_iter([(format!("apis/{group}/{version}"), entry)])
        })
    } else {
        parsed(&v3).and_then(|document| document.at("paths").as_object().cloned())
    };
    (v2_part, paths)
}
