//! Protobuf round trips, special forms and hostile input.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::codec::body::{Expected, decode_body};
use crate::codec::go::{self, Special};
use crate::codec::negotiate::Format;
use crate::codec::typed::{decode_typed, normalize};
use crate::schema::{Schema, Type, builtin};

/// Through protobuf and back, normalised as a request would be.
fn round_trip(object: &Value) -> Value {
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = parse_group_version(&api_version).unwrap();
    let expected = Expected { group, version, kind: &kind, custom: false };
    let schema = builtin::definition(builtin::by_kind(group, version, &kind).unwrap());
    let bytes = encode(object).unwrap();
    let decoded = decode_body(&bytes, Format::Protobuf, expected).map_err(|status| status.message).unwrap();
    decode_typed(decoded, schema).unwrap().value
}

fn check(object: &Value) {
    let text = |key: &str| object[key].as_str().unwrap().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = parse_group_version(&api_version).unwrap();
    let schema = builtin::definition(builtin::by_kind(group, version, &kind).unwrap());
    let object = normalize(object.clone(), schema).unwrap();
    assert_eq!(round_trip(&object), object);
}

#[test]
fn the_wire_form_is_upstreams() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let expected: &[&[u8]] = &[
        b"k8s\0",
        b"\x0a\x0f",
        b"\x0a\x02v1\x12\x09ConfigMap",
        b"\x12\x0d",
        b"\x0a\x03\x0a\x01a",
        b"\x12\x06\x0a\x01k\x12\x01v",
        b"\x1a\0\x22\0",
    ];
    assert_eq!(encode(&object).unwrap(), expected.concat());
}

#[test]
fn objects_survive() {
    check(&json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2020-01-02T03:04:05Z", "labels": {"a": "b", "c": ""},
            "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {".": {}}},
                "time": "2020-01-02T03:04:05Z"}]},
        "spec": {
            "priority": 0, "enableServiceLinks": false, "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "cm", "defaultMode": 420}}],
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 10},
                "ports": [{"containerPort": 80}]}],
            "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
            "securityContext": {"runAsUser": 0, "supplementalGroups": [1, 2]},
        },
    }));
    check(&json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80, "targetPort": "web"},
        {"port": 81, "targetPort": 8081, "nodePort": 30000}], "clusterIP": "None"}}));
    check(&json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "AAEC", "b": ""}, "immutable": false}));
    check(&json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseDurationSeconds": 15,
        "renewTime": "2020-01-02T03:04:05.123456Z"}}));
    check(
        &json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 2, "data": {"x": [1, null, "y"]}}),
    );
    check(&json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "u", "extra": {"e": ["1", "2"]}}}));
    check(&json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{"name": "w", "clientConfig": {"caBundle": "AAEC", "url": "u"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}]}]}));
    check(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "x"}, "status": {"conditions": [{"type": "a", "status": "b", "lastTransitionTime": null}],
            "storedVersions": ["v1"]},
        "spec": {"group": "g", "scope": "Namespaced", "names": {"plural": "p", "kind": "K"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true, "maximum": 1.5, "minLength": 0,
                "properties": {"a": {"type": "array", "items": {"type": "string"}, "default": [1]},
                    "b": {"additionalProperties": false}, "c": {"additionalProperties": {"type": "integer"}}},
                "enum": [1, "x", {"y": null}], "dependencies": {"d": ["a"]}, "$ref": "r"}}}]}}));
}

#[test]
fn lists_events_and_metadata_are_encoded() {
    let whole = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "5"},
        "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]});
    assert_eq!(round_trip(&whole)["items"], json!([{"metadata": {"name": "a"}}]));
    for version in ["v1", "v1beta1"] {
        let partial = json!({"apiVersion": format!("meta.k8s.io/{version}"), "kind": "PartialObjectMetadataList",
            "metadata": {}, "items": [{"metadata": {"name": "a"}}]});
        assert!(encode(&partial).is_ok());
    }
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404,
        "details": {"causes": [{"field": "f"}]}});
    assert_eq!(round_trip(&status), status);
    let mut frame = b"before".to_vec();
    write_watch_frame("ADDED", b"xyz", &mut frame);
    assert_eq!(frame, b"before\0\0\0\x0e\x0a\x05ADDED\x12\x05\x0a\x03xyz");
    assert_eq!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Gear"})), Err(NotMarshalable));
}

#[test]
fn zero_values_of_generated_clients_disappear() {
    // name, an unset creationTimestamp and an empty namespace, as gogo-protobuf writes them.
    let raw = b"\x0a\x09\x0a\x01a\x1a\x00\x42\x00\x6a\x00\x20\x00";
    let bytes = seal("v1", "ConfigMap", raw);
    let expected = Expected { group: "", version: "v1", kind: "ConfigMap", custom: false };
    let schema = builtin::definition(builtin::by_kind("", "v1", "ConfigMap").unwrap());
    let decoded = decode_body(&bytes, Format::Protobuf, expected).map_err(|status| status.message).unwrap();
    assert_eq!(
        decode_typed(decoded, schema).unwrap().value,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": false,
            "metadata": {"name": "a", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}})
    );
}

#[test]
fn what_is_not_protobuf_is_refused() {
    let expected = Expected { group: "", version: "v1", kind: "ConfigMap", custom: false };
    let refused = |body: &[u8]| decode_body(body, Format::Protobuf, expected).unwrap_err().message;
    for (body, why) in [
        (&b""[..], "the object provided is unrecognized (must be of type ConfigMap): empty data (<empty>)"),
        (b"k8s\0", "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)"),
        (
            b"x",
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (78)",
        ),
    ] {
        assert_eq!(refused(body), why);
    }
    assert_eq!(
        refused(&seal("v1", "ConfigMap", b"\x0a\xff")),
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: unexpected EOF"#
    );
    assert_eq!(
        refused(&seal("v1", "Secret", b"")),
        r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#
    );
    assert!(decode_body(&seal("", "", b""), Format::Protobuf, expected).is_ok(), "the type defaults");
}

/// Some value of a type, of the kind that clients send.
fn sample(schema: &Schema, random: &mut fastrand::Rng, depth: usize) -> Value {
    let mut pick = |choices: Value| choices[random.usize(..choices.as_array().map_or(1, Vec::len))].clone();
    match go::special(schema) {
        Some(Special::Time) => return json!("2020-01-02T03:04:05Z"),
        Some(Special::MicroTime) => return json!("2020-01-02T03:04:05.123456Z"),
        Some(Special::Quantity) => return pick(json!(["100m", "1Gi", "5", "0"])),
        Some(Special::IntOrString) => return pick(json!([0, -5, "web"])),
        Some(_) => return json!({"x": [1, null, "\u{e9}"], "y": {}}),
        None => {}
    }
    match (schema.ty, schema.format.as_deref()) {
        (Type::Object, _) => {
            if let Some(values) = schema.additional.as_deref() {
                return ["a", "b"].map(|key| (key.to_owned(), sample(values, random, depth + 1))).into_iter().collect();
            }
            let known = schema.properties.iter().filter(|(name, _)| !matches!(&***name, "kind" | "apiVersion"));
            let chosen: Vec<_> = known.filter(|_| depth < 7 && random.usize(..10) < 6).collect();
            chosen.into_iter().map(|(name, field)| (name.to_string(), sample(field, random, depth + 1))).collect()
        }
        (Type::Array, _) => {
            let items = schema.items.as_deref().expect("lists have items");
            (0..random.usize(..3)).map(|_| sample(items, random, depth + 1)).collect()
        }
        (Type::String, Some("byte")) => pick(json!(["AAEC", "", "aGk="])),
        (Type::String, _) => pick(json!(["", "a", "h\u{e9}llo"])),
        (Type::Integer, Some("int32")) => pick(json!([0, 1, -1, i32::MAX])),
        (Type::Integer, _) => pick(json!([0, 1, -1, i64::MAX])),
        (Type::Number, _) => pick(json!([0, 1.5, -2.25])),
        (Type::Boolean, _) => pick(json!([true, false])),
        _ => json!({}),
    }
}

#[test]
fn samples_of_every_builtin_type_survive() {
    let mut random = fastrand::Rng::with_seed(36);
    let types = builtin::all().filter(|(name, _)| name.starts_with("io.k8s.api."));
    for (name, id) in types.filter(|(_, id)| go::is_struct(builtin::definition(*id))) {
        let (schema, message) = (builtin::definition(id), table::by_name(&table::message_name(name)).unwrap());
        for _ in 0..5 {
            let value = normalize(sample(schema, &mut random, 0), schema).unwrap();
            let mut raw = Vec::new();
            encode::fields(message, value.as_object().unwrap(), &mut raw);
            assert_eq!(normalize(decode::object(message, &raw).unwrap(), schema), Ok(value), "{name}");
        }
    }
}

#[test]
fn the_deepest_document_fits_the_stack() {
    let levels = crate::depth::SHALLOW - 6;
    let schema = format!("{}{{}}{}", r#"{"not":"#.repeat(levels), "}".repeat(levels));
    let body = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
    let kind = "CustomResourceDefinition";
    let expected = Expected { group: "apiextensions.k8s.io", version: "v1", kind, custom: false };
    let definition = builtin::definition(builtin::by_kind(expected.group, expected.version, kind).unwrap());
    let decoded = decode_body(body.as_bytes(), Format::Json, expected).map_err(|status| status.message).unwrap();
    let object = decode_typed(decoded, definition).unwrap().value;
    assert_eq!(round_trip(&object)["spec"]["versions"][0]["schema"], object["spec"]["versions"][0]["schema"]);
    assert_eq!(crate::codec::yaml::parse(crate::codec::yaml::write(&object).as_bytes()).unwrap().value, object);
}

#[test]
fn nesting_is_bounded() {
    let mut raw = Vec::new();
    for _ in 0..5000 {
        // A schema's `not`, which holds a schema.
        let mut outer = Vec::new();
        encode::bytes(28, &raw, &mut outer);
        raw = outer;
    }
    let message = table::by_name("k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
    assert_eq!(decode::object(message, &raw).unwrap_err(), "proto: exceeded max depth");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_never_panic(raw in prop::collection::vec(any::<u8>(), 0..80), kind in 0usize..580) {
        let _ = open(&raw);
        let (name, _) = builtin::all().nth(kind).unwrap();
        let message = table::by_name(&table::message_name(name)).unwrap();
        if let Ok(value) = decode::object(message, &raw) {
            let mut out = Vec::new();
            encode::fields(message, value.as_object().unwrap(), &mut out);
        }
    }
}
