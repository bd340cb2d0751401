//! What the typed decoder accepts, changes, reports and refuses.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::codec::body::{Expected, decode_body};
use crate::codec::negotiate::Format;
use crate::schema::builtin;

fn decode(group: &str, version: &str, kind: &str, body: &[u8]) -> Result<Typed, String> {
    let schema = builtin::definition(builtin::by_kind(group, version, kind).expect(kind));
    let expected = Expected { group, version, kind, custom: false };
    decode_typed(decode_body(body, Format::Json, expected).expect("the body is an object"), schema)
}

/// The decoded object without its type.
fn decoded(group: &str, version: &str, kind: &str, body: &Value) -> Value {
    let mut value = decode(group, version, kind, body.to_string().as_bytes()).expect("decodes").value;
    let schema = builtin::definition(builtin::by_kind(group, version, kind).expect(kind));
    assert_eq!(normalize(value.clone(), schema).as_ref(), Ok(&value), "not idempotent");
    let map = value.as_object_mut().unwrap();
    map.remove("kind");
    map.remove("apiVersion");
    value
}

fn pod(spec: &Value) -> Value {
    decoded("", "v1", "Pod", &json!({"spec": spec}))["spec"].clone()
}

fn refused(group: &str, version: &str, kind: &str, body: &str) -> String {
    decode(group, version, kind, body.as_bytes()).expect_err(body)
}

#[test]
fn wrong_types_are_named_as_in_go() {
    for (kind, body, expected) in [
        (
            "ConfigMap",
            r#"{"data":{"n":5}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":"str"}}"#,
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "ConfigMap",
            r#"{"metadata":{"name":true}}"#,
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.name of type string",
        ),
        ("Pod", r#"{"spec":"x"}"#, "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            "Pod",
            r#"{"spec":{"restartPolicy":1}}"#,
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            "Pod",
            r#"{"spec":{"volumes":[{"configMap":[]}]}}"#,
            "json: cannot unmarshal array into Go struct field Volume.spec.volumes.VolumeSource.configMap of type v1.ConfigMapVolumeSource",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"priority":1e2}}"#,
            "json: cannot unmarshal number 1e2 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            r#"{"spec":{"containers":[{"ports":[{"containerPort":"80"}]}]}}"#,
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            "Service",
            r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
            "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        ("ConfigMap", r#"{"binaryData":{"t":"***"}}"#, "illegal base64 data at input byte 0"),
        (
            "Pod",
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"lots"}}}]}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "Pod",
            r#"{"metadata":{"creationTimestamp":5}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ] {
        assert_eq!(refused("", "v1", kind, body), expected);
    }
    let body = r#"{"spec":{"renewTime":"yesterday"}}"#;
    let expected =
        r#"parsing time "yesterday" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "yesterday" as "2006""#;
    assert_eq!(refused("coordination.k8s.io", "v1", "Lease", body), expected);
}

#[test]
fn of_several_errors_the_first_in_the_document_counts() {
    let body = r#"{"spec":{"restartPolicy":1,"containers":"x"}}"#;
    assert!(refused("", "v1", "Pod", body).contains("restartPolicy"));
    // A type that decodes itself stops the decoder, and so comes before what was only noted.
    let body = r#"{"data":{"a":1},"metadata":{"creationTimestamp":"x"}}"#;
    assert!(refused("", "v1", "ConfigMap", body).starts_with("parsing time"));
}

#[test]
fn metadata_of_custom_resources_is_its_own_root() {
    let error = normalize(json!({"labels": {"a": 1}}), builtin::object_meta()).unwrap_err();
    assert_eq!(error, "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string");
}

#[test]
fn unknown_and_duplicate_fields_are_reported_in_document_order() {
    let body = r#"{"spec":{"containers":[{"name":"c","imag":"typo","ports":[{"prt":1}]}],"bogus":{"x":1,"x":2},
        "hostNetwork":true,"hostNetwork":true},"metadata":{"bogus":1,"labels":{"a":"1","a":"2"}}}"#;
    let typed = decode("", "v1", "Pod", body.as_bytes()).unwrap();
    let errors: Vec<_> = typed.strict.iter().map(|e| e.message.as_str()).collect();
    assert_eq!(
        errors,
        [
            r#"unknown field "spec.containers[0].imag""#,
            r#"unknown field "spec.containers[0].ports[0].prt""#,
            r#"unknown field "spec.bogus""#,
            r#"duplicate field "spec.hostNetwork""#,
            r#"unknown field "metadata.bogus""#,
            r#"duplicate field "metadata.labels.a""#,
        ]
    );
    assert_eq!(typed.value["spec"].get("bogus"), None);
}

#[test]
fn zero_values_come_and_go_as_in_go() {
    assert_eq!(
        decoded("", "v1", "ConfigMap", &json!({"data": null, "binaryData": {}, "metadata": {"labels": {}}})),
        json!({"metadata": {}})
    );
    assert_eq!(
        pod(&json!({
            "hostNetwork": false, "priority": 0, "enableServiceLinks": false, "nodeName": "", "securityContext": {},
            "affinity": null, "tolerations": [], "containers": [{"name": "c", "env": [{"name": "A"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        })),
        json!({
            "priority": 0, "enableServiceLinks": false, "securityContext": {},
            "containers": [{"name": "c", "env": [{"name": "A"}], "resources": {}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        })
    );
    assert_eq!(
        decoded("", "v1", "Pod", &json!({})),
        json!({"metadata": {}, "spec": {"containers": null}, "status": {}})
    );
    assert_eq!(
        decoded("rbac.authorization.k8s.io", "v1", "ClusterRole", &json!({"rules": []})),
        json!({"metadata": {}, "rules": null})
    );
    assert_eq!(
        decoded("", "v1", "Service", &json!({"spec": {"ports": [{"port": 80}]}})),
        json!({"metadata": {}, "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}}})
    );
    assert_eq!(decoded("autoscaling", "v1", "Scale", &json!({"spec": {"replicas": 0}}))["spec"], json!({}));
    // In lists and maps a null is the zero value of the element.
    assert_eq!(decoded("", "v1", "ConfigMap", &json!({"data": {"a": null}}))["data"], json!({"a": ""}));
    assert_eq!(pod(&json!({"containers": [null]}))["containers"], json!([{"name": "", "resources": {}}]));
}

#[test]
fn values_are_written_in_canonical_form() {
    assert_eq!(
        pod(&json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 0.1, "memory": "1024Mi"}}}]}))["containers"]
            [0]["resources"],
        json!({"limits": {"cpu": "100m", "memory": "1Gi"}})
    );
    assert_eq!(
        decoded("", "v1", "ConfigMap", &json!({"metadata": {"creationTimestamp": "2020-01-01T01:00:00.5+01:00"}}))["metadata"]
            ["creationTimestamp"],
        "2020-01-01T00:00:00Z"
    );
    assert_eq!(decoded("", "v1", "Secret", &json!({"data": {"a": "YW\nJj"}}))["data"]["a"], "YWJj");
}

/// Searched for each mistake from its start, this body would take minutes.
#[test]
fn many_mistakes_do_not_take_their_square() {
    let started = std::time::Instant::now();
    let entry = "{\"time\":\"x\"}";
    let body = format!("{{\"metadata\":{{\"managedFields\":[{}]}}}}", vec![entry; 100_000].join(","));
    let why = refused("", "v1", "ConfigMap", &body);
    assert!(why.starts_with("parsing time \"x\" as "), "{why}");
    let labels: Vec<String> = (0..100_000).map(|i| format!("\"l{i:06}\":{i}")).collect();
    let why = refused("", "v1", "ConfigMap", &format!("{{\"metadata\":{{\"labels\":{{{}}}}}}}", labels.join(",")));
    assert!(why.starts_with("json: cannot unmarshal number into Go struct field "), "{why}");
    assert!(started.elapsed() < std::time::Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn schemas_of_custom_resources_pass_through_their_own_decoders() {
    let crd = |schema: Value| {
        let body = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}).to_string();
        decode("apiextensions.k8s.io", "v1", "CustomResourceDefinition", body.as_bytes())
    };
    let schema = json!({
        "type": "object", "default": {"any": [1, null]}, "minLength": 0, "maximum": 5.0,
        "properties": {"a": {"type": "array", "items": {"type": "string", "uniqueItems": false}}},
        "additionalProperties": {"nullable": true}, "dependencies": {"d": ["a"]},
    });
    let typed = crd(schema).unwrap();
    assert_eq!(
        typed.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        json!({
            "type": "object", "default": {"any": [1, null]}, "minLength": 0, "maximum": 5,
            "properties": {"a": {"type": "array", "items": {"type": "string"}}},
            "additionalProperties": {"nullable": true}, "dependencies": {"d": ["a"]},
        })
    );
    let typed = crd(json!({"properties": {"a": {"oops": 1}}, "items": {"oops": 1}})).unwrap();
    let errors: Vec<_> = typed.strict.iter().map(|e| e.message.as_str()).collect();
    assert_eq!(errors, [r#"unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.oops""#]);
    assert_eq!(crd(json!({"additionalProperties": 5})).unwrap_err(), "boolean or JSON schema expected");
    assert_eq!(
        crd(json!({"items": {"type": 5}})).unwrap_err(),
        "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.type of type string"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_value_decodes_or_is_refused(value in crate::codec::json::tests::any_value(), kind in 0usize..500) {
        let (_, id) = builtin::all().nth(kind).unwrap();
        if let Ok(value) = normalize(value, builtin::definition(id)) {
            prop_assert_eq!(normalize(value.clone(), builtin::definition(id)), Ok(value));
        }
    }
}

#[test]
fn the_empty_object_of_every_kind_is_stable() {
    for (name, id) in builtin::all() {
        let once = normalize(json!({}), builtin::definition(id)).unwrap_or_default();
        let twice = normalize(once.clone(), builtin::definition(id)).unwrap_or_default();
        assert_eq!(once, twice, "{name}");
    }
}
