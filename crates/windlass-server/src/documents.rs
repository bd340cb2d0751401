//! Everything that is not a resource: discovery, OpenAPI, version, metrics, the list of paths.

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue, LOCATION, VARY};
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::api::Api;
use crate::body::{self, Body};
use crate::catalog::Snapshot;
use crate::codec::negotiate::{self, Accepted, Format};
use crate::codec::write;
use crate::discovery::{AGGREGATED_CONTENT_TYPE, Discovery};
use crate::openapi::{v2, v3};
use crate::request::{Query, Target};
use crate::status::Status;
use crate::tokens::TokenKey;
use crate::{remote, render, version};

mod tagged;

use tagged::Tagged;

const JSON: &str = "application/json";
/// Documents from this size on are compressed for clients that ask: as upstream has it, for OpenAPI and for
/// discovery.
const COMPRESS_OPENAPI: usize = 1400;
const COMPRESS_DISCOVERY: usize = 128 * 1024;

/// Answers a request that is not for a resource.
pub(crate) fn answer(
    api: &Api,
    target: &Target,
    method: &Method,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let snapshot = api.catalog.snapshot();
    if method != Method::GET && is_routed(&snapshot, target, path) {
        return Err(Status::method_not_allowed());
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_served =
        |version: &str, group: &str| snapshot.has_builtin_group(group) && snapshot.has_version(group, version);
    match target {
        Target::CoreVersions => negotiate::check_route(accept)?,
        Target::GroupVersion(group, version) if is_served(version, group) => negotiate::check_route(accept)?,
        _ => {}
    }
    match target {
        Target::CoreVersions => root(api, &snapshot, "api", accept, headers),
        Target::Groups => root(api, &snapshot, "apis", accept, headers),
        Target::Group(group)
            if (snapshot.has_group(group) || snapshot.remotes().has_group(group)) && !group.is_empty() =>
        {
            let name = format!("discovery {group}");
            document(&snapshot, &name, accept, |discovery| {
                remote::merge_group(snapshot.remotes(), group, discovery.api_group(group))
            })
        }
        Target::GroupVersion(group, version) if snapshot.has_version(group, version) => {
            let name = format!("discovery {group}/{version}");
            document(&snapshot, &name, accept, |discovery| discovery.resource_list(group, version))
        }
        Target::GroupVersion(group, _) if snapshot.has_builtin_group(group) => Err(Status::no_such_resource()),
        Target::Other if is_below_routes(&snapshot, path) => Err(Status::no_such_resource()),
        Target::Other => Ok(other(api, path, accept, query, headers)),
        _ => Ok(body::text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// Whether upstream serves this by routes, which know their methods. The rest it serves whatever the method.
fn is_routed(snapshot: &Snapshot, target: &Target, path: &str) -> bool {
    match target {
        Target::CoreVersions => true,
        Target::GroupVersion(group, _) => snapshot.has_builtin_group(group),
        Target::Other => {
            matches!(path, "/version" | "/version/" | "/.well-known/openid-configuration" | "/openid/v1/jwks")
        }
        _ => false,
    }
}

/// Whether a path that leads nowhere, because it has an empty segment, is below what upstream serves by routes.
fn is_below_routes(snapshot: &Snapshot, path: &str) -> bool {
    let group = || path.strip_prefix("/apis/").and_then(|path| path.split('/').next());
    path.trim_end_matches('/').contains("//")
        && (path.starts_with("/api/")
            || group().is_some_and(|name| !name.is_empty() && snapshot.has_builtin_group(name)))
}

/// `/api` or `/apis`: one document about everything for clients that understand it, otherwise just names.
fn root(
    api: &Api,
    snapshot: &Snapshot,
    which: &str,
    accept: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let is_aggregated = |target: &negotiate::Target| {
        (&*target.group, &*target.version, &*target.kind) == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
    };
    // The aggregated form wins wherever it stands among what the client takes.
    let aggregated = negotiate::negotiate(accept, |_, target| target.is_some_and(is_aggregated));
    let Some(accepted) = aggregated.filter(|accepted| accepted.target.is_some()) else {
        let address = api.advertised();
        return document(snapshot, &format!("discovery {which} {address}"), accept, |discovery| {
            if which == "api" {
                return Some(discovery.api_versions(&address));
            }
            let mut groups = discovery.api_group_list();
            remote::merge_groups(snapshot.remotes(), &mut groups);
            Some(groups)
        });
    };
    let (format, content_type) = (accepted.format, aggregated_type(accepted.format));
    let name = format!("discovery {which} aggregated {}", format.media_type());
    let bytes = snapshot.documents().get(&name, || {
        let discovery = Discovery::new(snapshot.resources());
        let value = if which == "api" {
            discovery.aggregated_core()
        } else {
            let mut groups = discovery.aggregated_apis();
            remote::merge_aggregated(snapshot.remotes(), &mut groups);
            groups
        };
        render::encode(&value, &Accepted { format, ..Accepted::json() }).unwrap_or_default()
    });
    let cache_control = Some("public");
    let tagged =
        Tagged { name: &name, bytes, content_type, tag: None, cache_control, compress_from: COMPRESS_DISCOVERY };
    Ok(tagged.answer(snapshot, headers))
}

/// The content type of the aggregated form; clients read its parameters to learn what they got.
fn aggregated_type(format: Format) -> &'static str {
    match format {
        Format::Json => AGGREGATED_CONTENT_TYPE,
        Format::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        Format::Protobuf => "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    }
}

fn document(
    snapshot: &Snapshot,
    name: &str,
    accept: &str,
    make: impl FnOnce(&Discovery<'_>) -> Option<Value>,
) -> Result<Response<Body>, Status> {
    let accepted = negotiate::negotiate(accept, |_, target| target.is_none()).ok_or_else(negotiate::no_format_fits)?;
    let format = accepted.format;
    let bytes = snapshot.documents().get(&format!("{name} {}", format.media_type()), || {
        let discovery = Discovery::new(snapshot.resources());
        let accepted = Accepted { format, ..Accepted::json() };
        let encode = |mut value: Value| {
            // The oldest documents carry no version, by which a message is found.
            if format == Format::Protobuf && value.get("apiVersion").is_none() {
                value["apiVersion"] = "v1".into();
            }
            render::encode(&value, &accepted).ok()
        };
        make(&discovery).and_then(encode).unwrap_or_default()
    });
    if bytes.is_empty() {
        return Err(Status::no_such_resource());
    }
    Ok(render::raw(StatusCode::OK, format.media_type(), bytes.into()))
}

fn other(api: &Api, path: &str, accept: &str, query: &Query, headers: &HeaderMap) -> Response<Body> {
    let snapshot = api.catalog.snapshot();
    match path {
        "/openapi/v2" => openapi_v2(api, &snapshot, accept, headers),
        "/openapi/v3" => openapi_v3_index(api, &snapshot),
        path if path.starts_with("/openapi/v3/") => {
            openapi_v3(api, &snapshot, &path["/openapi/v3/".len()..], accept, query, headers)
        }
        "/" => render::raw(StatusCode::OK, "application/json", encoded(&paths(&snapshot)).into()),
        "/version" | "/version/" => render::raw(StatusCode::OK, "application/json", encoded(&version::info()).into()),
        "/.well-known/openid-configuration" => {
            render::raw(StatusCode::OK, "application/json", encoded(&TokenKey::configuration()).into())
        }
        "/openid/v1/jwks" => {
            render::raw(StatusCode::OK, "application/jwk-set+json", encoded(&api.token_key.key_set()).into())
        }
        "/metrics" => {
            let mut text = api.metrics.render(*api.store.revision().borrow());
            text.insert_str(0, &api.flow_control.render_metrics());
            if let Some(audit) = &api.audit {
                text.insert_str(0, &audit.render_metrics());
            }
            render::raw(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        _ => body::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn openapi_v2(api: &Api, snapshot: &Snapshot, accept: &str, headers: &HeaderMap) -> Response<Body> {
    let describe = api.describe.as_ref();
    let offered = [JSON, v2::PROTOBUF_OLD_TYPE, v2::PROTOBUF_CONTENT_TYPE];
    let additions = || remote::additions(snapshot.remotes(), snapshot.resources(), describe);
    let (name, bytes, content_type) = match negotiate::choose(accept, &offered) {
        None => return without_document(StatusCode::NOT_ACCEPTABLE),
        Some(JSON) => {
            let name = "openapi v2 json";
            let json = || v2::json(snapshot.resources(), &additions(), describe);
            (name, snapshot.documents().get(name, json), JSON)
        }
        Some(_) => {
            let name = "openapi v2 protobuf";
            let protobuf = || v2::protobuf(snapshot.resources(), &additions(), describe);
            (name, snapshot.documents().get(name, protobuf), v2::PROTOBUF_CONTENT_TYPE)
        }
    };
    let tagged = Tagged { name, bytes, content_type, tag: None, cache_control: None, compress_from: COMPRESS_OPENAPI };
    tagged.answer(snapshot, headers)
}

fn openapi_v3_index(api: &Api, snapshot: &Snapshot) -> Response<Body> {
    let describe = api.describe.as_ref();
    let bytes = snapshot.documents().get("openapi v3", || {
        let discovery = Discovery::new(snapshot.resources());
        let documents = discovery
            .group_versions()
            .map(|(group, version, resources)| (group, version, v3::fingerprint(group, version, resources, describe)));
        let mut index = v3::index(documents);
        remote::merge_index(snapshot.remotes(), &mut index);
        encoded(&index)
    });
    render::raw(StatusCode::OK, "text/plain; charset=utf-8", bytes.into())
}

fn openapi_v3(
    api: &Api,
    snapshot: &Snapshot,
    path: &str,
    accept: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Response<Body> {
    let describe = api.describe.as_ref();
    if let Some(document) = remote::converted_document(snapshot.remotes(), path) {
        return render::raw(StatusCode::OK, JSON, encoded(document).into());
    }
    let discovery = Discovery::new(snapshot.resources());
    let found = discovery.group_versions().find(|(group, version, _)| v3::path(group, version) == path);
    let Some((group, version, resources)) = found else {
        return render::raw(StatusCode::NOT_FOUND, "", Body::empty());
    };
    let offered = [JSON, v3::PROTOBUF_CONTENT_TYPE, v3::PROTOBUF_OLD_TYPE];
    // Upstream's handler has nothing to say to a header that names no type.
    if negotiate::names_none(accept) {
        return without_document(StatusCode::OK);
    }
    let Some(chosen) = negotiate::choose(accept, &offered) else {
        return without_document(StatusCode::NOT_ACCEPTABLE);
    };
    let tag = snapshot
        .documents()
        .get(&format!("openapi v3 {path} tag"), || v3::fingerprint(group, version, resources, describe).into());
    let tag = String::from_utf8_lossy(&tag).into_owned();
    let wanted = query.get("hash");
    if wanted.is_some_and(|wanted| wanted != tag) {
        return moved(&format!("/openapi/v3/{path}?hash={tag}"));
    }
    let (name, content_type) = match chosen {
        JSON => (format!("openapi v3 {path}"), JSON),
        _ => (format!("openapi v3 {path} protobuf"), v3::PROTOBUF_CONTENT_TYPE),
    };
    let bytes = snapshot.documents().get(&name, || match chosen {
        JSON => v3::document(group, version, resources, describe),
        _ => v3::protobuf(group, version, resources, describe),
    });
    // A document that was asked for by its tag never changes.
    let cache_control = wanted.map(|_| "public, immutable");
    let tag = Some(tag);
    Tagged { name: &name, bytes, content_type, tag, cache_control, compress_from: COMPRESS_OPENAPI }
        .answer(snapshot, headers)
}

/// The answer of kube-openapi's handlers to a client that takes none of their forms: nothing.
fn without_document(code: StatusCode) -> Response<Body> {
    let mut response = render::raw(code, "", Body::empty());
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn moved(location: &str) -> Response<Body> {
    let mut response = render::raw(StatusCode::MOVED_PERMANENTLY, "", Body::empty());
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
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
    for remote in snapshot.remotes().all().filter(|remote| !remote.group.is_empty()) {
        paths.push(format!("/apis/{}", remote.group));
        paths.push(format!("/apis/{}/{}", remote.group, remote.version));
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
