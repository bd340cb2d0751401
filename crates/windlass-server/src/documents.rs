//! Everything that is not a resource: discovery, OpenAPI, version, metrics, the list of paths.

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::body::Body;
use crate::catalog::Snapshot;
use crate::codec::negotiate::{self, Accepted, Format};
use crate::codec::write;
use crate::discovery::Discovery;
use crate::openapi::{v2, v3};
use crate::request::Target;
use crate::status::Status;
use crate::{authn, health, render, version};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a request that is not for a resource.
pub(crate) fn answer(api: &Api, target: &Target, path: &str, headers: &HeaderMap) -> Response<Body> {
    let snapshot = api.catalog.snapshot();
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match target {
        Target::CoreVersions => root(&snapshot, "api", accept),
        Target::Groups => root(&snapshot, "apis", accept),
        Target::Group(group) if snapshot.has_group(group) && !group.is_empty() => {
            let name = format!("discovery {group}");
            document(&snapshot, &name, |discovery| discovery.api_group(group))
        }
        Target::GroupVersion(group, version) if snapshot.has_version(group, version) => {
            let name = format!("discovery {group}/{version}");
            document(&snapshot, &name, |discovery| discovery.resource_list(group, version))
        }
        Target::GroupVersion(group, _) if snapshot.has_builtin_group(group) => {
            render::status(&Status::no_such_resource(), &Accepted::json())
        }
        Target::Other => other(api, path, accept),
        _ => health::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// `/api` or `/apis`, as the client prefers: one document about everything, or just names.
fn root(snapshot: &Snapshot, which: &str, accept: &str) -> Response<Body> {
    let aggregated = negotiate::negotiate(accept, |format, target| {
        format == Format::Json
            && target.is_none_or(|target| {
                target.group == "apidiscovery.k8s.io"
                    && target.version == "v2"
                    && target.kind == "APIGroupDiscoveryList"
            })
    })
    .is_some_and(|accepted| accepted.target.is_some());
    let name = format!("discovery {which} {aggregated}");
    let bytes = snapshot.documents().get(&name, || {
        let discovery = Discovery::new(snapshot.resources());
        encoded(&match (which, aggregated) {
            ("api", false) => discovery.api_versions("127.0.0.1:6443"),
            ("api", true) => discovery.aggregated_core(),
            (_, false) => discovery.api_group_list(),
            (_, true) => discovery.aggregated_apis(),
        })
    });
    render::raw(StatusCode::OK, if aggregated { AGGREGATED } else { "application/json" }, bytes.into())
}

fn document(snapshot: &Snapshot, name: &str, make: impl FnOnce(&Discovery<'_>) -> Option<Value>) -> Response<Body> {
    let bytes = snapshot.documents().get(name, || {
        let discovery = Discovery::new(snapshot.resources());
        make(&discovery).map(|value| encoded(&value)).unwrap_or_default()
    });
    if bytes.is_empty() {
        return render::status(&Status::no_such_resource(), &Accepted::json());
    }
    render::raw(StatusCode::OK, "application/json", bytes.into())
}

fn other(api: &Api, path: &str, accept: &str) -> Response<Body> {
    let snapshot = api.catalog.snapshot();
    match path {
        "/openapi/v2" => openapi_v2(&snapshot, accept),
        "/openapi/v3" => openapi_v3_index(&snapshot),
        path if path.starts_with("/openapi/v3/") => openapi_v3(&snapshot, &path["/openapi/v3/".len()..]),
        "/" => render::raw(StatusCode::OK, "application/json", encoded(&paths(&snapshot)).into()),
        "/version" | "/version/" => render::raw(StatusCode::OK, "application/json", encoded(&version::info()).into()),
        "/.well-known/openid-configuration" => {
            render::raw(StatusCode::OK, "application/json", encoded(&authn::TokenKey::configuration()).into())
        }
        "/openid/v1/jwks" => {
            render::raw(StatusCode::OK, "application/jwk-set+json", encoded(&api.token_key.key_set()).into())
        }
        "/metrics" => {
            let text = api.metrics.render(*api.store.revision().borrow());
            render::raw(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        _ => health::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn openapi_v2(snapshot: &Snapshot, accept: &str) -> Response<Body> {
    if v2::prefers_protobuf(accept) {
        let bytes = snapshot.documents().get("openapi v2 protobuf", || v2::protobuf(snapshot.resources()));
        return render::raw(StatusCode::OK, v2::PROTOBUF_CONTENT_TYPE, bytes.into());
    }
    let bytes = snapshot.documents().get("openapi v2 json", || v2::json(snapshot.resources()));
    render::raw(StatusCode::OK, "application/json", bytes.into())
}

fn openapi_v3_index(snapshot: &Snapshot) -> Response<Body> {
    let bytes = snapshot.documents().get("openapi v3", || {
        let discovery = Discovery::new(snapshot.resources());
        let documents = discovery
            .group_versions()
            .map(|(group, version, resources)| (group, version, v3::fingerprint(group, version, resources)));
        encoded(&v3::index(documents))
    });
    render::raw(StatusCode::OK, "text/plain; charset=utf-8", bytes.into())
}

fn openapi_v3(snapshot: &Snapshot, path: &str) -> Response<Body> {
    let bytes = snapshot.documents().get(&format!("openapi v3 {path}"), || {
        let discovery = Discovery::new(snapshot.resources());
        let found = discovery.group_versions().find(|(group, version, _)| v3::path(group, version) == path);
        found.map(|(group, version, resources)| v3::document(group, version, resources)).unwrap_or_default()
    });
    if bytes.is_empty() {
        return health::text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    render::raw(StatusCode::OK, "application/json", bytes.into())
}

/// `/`: what there is.
fn paths(snapshot: &Snapshot) -> Value {
    let mut paths: Vec<String> =
        ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis"].map(Into::into).into();
    for (group, version, _) in Discovery::new(snapshot.resources()).group_versions() {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.push(format!("/apis/{group}/{version}"));
        }
    }
    paths.extend(
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"]
            .map(Into::into),
    );
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

fn encoded(value: &Value) -> Bytes {
    let mut out = write::to_vec(value);
    out.push(b'\n');
    out.into()
}
