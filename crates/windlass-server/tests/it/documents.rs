//! Documents that clients keep: their tags, their forms, compressed or not.

use std::io::Read as _;

use serde_json::{Value, json};
use windlass_server::Server;

use crate::client::{create, get_with, start};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

fn header<'a>(response: &'a http::Response<bytes::Bytes>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn define(server: &Server) {
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    create(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
}

#[tokio::test]
async fn a_client_that_has_a_document_gets_none() {
    let server = start().await;
    let mut tags = Vec::new();
    for (path, accept, content_type, cache_control) in [
        ("/api", AGGREGATED, AGGREGATED, "public"),
        ("/apis", AGGREGATED, AGGREGATED, "public"),
        ("/openapi/v2", "application/json", "application/json", "no-cache, private"),
        ("/openapi/v2", V2_PROTOBUF, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", "no-cache, private"),
        ("/openapi/v3/apis/apps/v1", "*/*", "application/json", "no-cache, private"),
        (
            "/openapi/v3/apis/apps/v1",
            V3_PROTOBUF,
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            "no-cache, private",
        ),
    ] {
        let response = get_with(&server, path, &[("accept", accept)]).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(header(&response, "content-type"), content_type, "{path}");
        assert_eq!(header(&response, "cache-control"), cache_control, "{path}");
        assert_eq!(header(&response, "vary"), "Accept", "{path}");
        let tag = header(&response, "etag");
        assert!(tag.len() > 60 && tag.starts_with('"') && tag.ends_with('"'), "{path}: {tag}");
        let again = get_with(&server, path, &[("accept", accept), ("if-none-match", tag)]).await;
        assert_eq!((again.status().as_u16(), again.body().len()), (304, 0), "{path}");
        assert_eq!(header(&again, "etag"), tag);
        tags.push(tag.to_owned());
    }
    define(&server).await;
    for (path, tag) in [("/apis", &tags[1]), ("/openapi/v2", &tags[2])] {
        let accept = if path == "/apis" { AGGREGATED } else { "application/json" };
        let response = get_with(&server, path, &[("accept", accept), ("if-none-match", tag)]).await;
        assert_eq!(response.status(), 200, "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn tagged_documents_may_be_kept_for_ever() {
    let server = start().await;
    let index = get_with(&server, "/openapi/v3", &[]).await;
    let index: Value = serde_json::from_slice(index.body()).unwrap();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let response = get_with(&server, url, &[]).await;
    assert_eq!((response.status().as_u16(), header(&response, "cache-control")), (200, "public, immutable"));
    assert!(url.ends_with(header(&response, "etag").trim_matches('"')));
    let other = get_with(&server, "/openapi/v3/apis/apps/v1?hash=AB", &[]).await;
    assert_eq!((other.status().as_u16(), header(&other, "location")), (301, url));
    assert_eq!(get_with(&server, "/openapi/v3/apis/none/v1", &[]).await.status(), 404);
    assert_eq!(get_with(&server, "/openapi/v2", &[("accept", "text/html")]).await.status(), 406);
    server.stop().await.unwrap();
}

/// kube-openapi's handlers answer without a body; that of one group's document takes a header without types for no wish.
#[tokio::test]
async fn openapi_in_no_known_form_is_no_document() {
    let server = start().await;
    for (path, accept, code) in [
        ("/openapi/v3", ";", 200),
        ("/openapi/v3", "text/html", 200),
        ("/openapi/v3/api/v1", ";", 200),
        ("/openapi/v3/api/v1", "text/html", 406),
        ("/openapi/v2", ";", 406),
        ("/openapi/v2", "text/html", 406),
    ] {
        let answer = get_with(&server, path, &[("accept", accept)]).await;
        assert_eq!(answer.status(), code, "{path} {accept}");
        if path != "/openapi/v3" {
            assert!(answer.body().is_empty() && header(&answer, "content-type").is_empty(), "{path} {accept}");
            assert_eq!(header(&answer, "vary"), "Accept");
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn large_documents_are_compressed_when_asked() {
    let server = start().await;
    let plain = get_with(&server, "/openapi/v2", &[]).await;
    let small = get_with(&server, "/openapi/v2", &[("accept-encoding", "gzip")]).await;
    assert_eq!(header(&small, "content-encoding"), "gzip");
    assert!(small.body().len() * 5 < plain.body().len());
    let mut inflated = Vec::new();
    flate2::read::GzDecoder::new(&small.body()[..]).read_to_end(&mut inflated).unwrap();
    assert!(inflated == plain.body()[..], "another document");
    let refused = get_with(&server, "/openapi/v2", &[("accept-encoding", "gzip;q=0, br")]).await;
    assert_eq!(header(&refused, "content-encoding"), "");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn discovery_comes_in_every_format() {
    let server = start().await;
    for path in ["/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"] {
        let response = get_with(&server, path, &[("accept", "application/vnd.kubernetes.protobuf")]).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(header(&response, "content-type"), "application/vnd.kubernetes.protobuf", "{path}");
        assert!(response.body().starts_with(b"k8s\0"), "{path}");
        let response = get_with(&server, path, &[("accept", "application/yaml")]).await;
        assert_eq!(header(&response, "content-type"), "application/yaml", "{path}");
        let response = get_with(&server, path, &[("accept", "application/json;as=Foo;g=x;v=v1")]).await;
        assert_eq!(response.status(), 406, "{path}");
        // The aggregated form wins, and what is not understood is passed over.
        let accept = format!("application/json, {AGGREGATED}");
        let response = get_with(&server, path, &[("accept", &accept)]).await;
        let aggregated = matches!(path, "/api" | "/apis");
        assert_eq!(header(&response, "content-type"), if aggregated { AGGREGATED } else { "application/json" });
    }
    let accept = AGGREGATED.replace("application/json", "application/vnd.kubernetes.protobuf");
    let response = get_with(&server, "/apis", &[("accept", &accept)]).await;
    assert_eq!(header(&response, "content-type"), accept);
    assert!(response.body().starts_with(b"k8s\0"));
    server.stop().await.unwrap();
}
