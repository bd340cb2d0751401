#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResource;
use kube::api::{DynamicObject, PartialObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;

/// The time of Go's `time.Time{}`.
fn zero_time() -> Timestamp {
    "0001-01-01T00:00:00Z".parse().unwrap()
}

/// A type with a required field of each sort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Everything {
    time: Time,
    micro_time: MicroTime,
    text: String,
    number: i32,
    unsigned: u64,
    fraction: f64,
    flag: bool,
    list: Vec<String>,
    map: BTreeMap<String, i32>,
    inner: Inner,
    any: Value,
    #[schemars(with = "String")]
    bytes: ByteString,
    quantity: Quantity,
    port: IntOrString,
    pair: Option<(i32, i32)>,
    optional: Option<String>,
    #[serde(default = "seven")]
    seven: i32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Inner {
    name: String,
    at: Time,
}

fn seven() -> i32 {
    7
}

fn nothing() -> Everything {
    Everything {
        time: Time(zero_time()),
        micro_time: MicroTime(zero_time()),
        text: String::new(),
        number: 0,
        unsigned: 0,
        fraction: 0.0,
        flag: false,
        list: Vec::new(),
        map: BTreeMap::new(),
        inner: Inner { name: String::new(), at: Time(zero_time()) },
        any: Value::Null,
        bytes: ByteString::default(),
        quantity: Quantity("0".into()),
        port: IntOrString::Int(0),
        pair: None,
        optional: None,
        seven: 7,
    }
}

#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Sample", namespaced)]
struct SampleSpec {
    everything: Everything,
    list: Vec<Everything>,
    map: BTreeMap<String, Everything>,
    lists: Vec<Vec<Inner>>,
}

/// Decodes, and checks that what is kept of the text decodes to the same without repair.
fn decoded<T: DeserializeOwned + Serialize + Debug>(json: &Value) -> T {
    let text = json.to_string();
    let decode = |json: &[u8]| serde_json::from_slice::<T>(json);
    let Err(error) = decode(text.as_bytes()) else {
        return decode(text.as_bytes()).unwrap();
    };
    let (object, json) = repair(text.as_bytes(), &error, decode).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(format!("{:?}", decode(&json).unwrap()), format!("{object:?}"));
    object
}

fn refused<T: DeserializeOwned + Debug>(json: &Value) -> String {
    from_slice::<T>(json.to_string().as_bytes()).unwrap_err().to_string()
}

fn nulls() -> Value {
    let fields = serde_json::to_value(nothing()).unwrap();
    let names = fields.as_object().unwrap().keys().filter(|name| *name != "seven");
    names.map(|name| (name.clone(), Value::Null)).collect()
}

#[test]
fn missing_fields_have_their_zero_values() {
    assert_eq!(decoded::<Everything>(&json!({})), nothing());
}

#[test]
fn nulls_are_zero_values() {
    assert_eq!(decoded::<Everything>(&nulls()), nothing());
    let null = decoded::<Everything>(&json!({"seven": null}));
    assert_eq!(null.seven, 0, "a null is the zero value also where a missing field has a default");
}

#[test]
fn nulls_and_missing_fields_are_found_in_lists_and_maps() {
    let sample: SampleSpec = decoded(&json!({
        "list": [null, nulls(), {}, {"inner": {"at": null}, "number": 4}],
        "map": {"a": null, "b.c/d": nulls(), "e": {"list": [null, "x"]}},
        "lists": [null, [null, {}], []],
    }));
    assert_eq!(sample.everything, nothing());
    assert_eq!(sample.list, [nothing(), nothing(), nothing(), Everything { number: 4, ..nothing() }]);
    assert_eq!(sample.map["a"], nothing());
    assert_eq!(sample.map["b.c/d"], nothing());
    assert_eq!(sample.map["e"].list, ["", "x"], "an element of a list does not go");
    let inner = nothing().inner;
    assert_eq!(sample.lists, [vec![], vec![inner.clone(), inner], vec![]]);
}

#[test]
fn an_object_may_be_nearly_empty() {
    let sample: Sample = decoded(&json!({"metadata": {"name": "a", "creationTimestamp": null}, "spec": null}));
    assert_eq!(sample.metadata.name.as_deref(), Some("a"));
    assert_eq!((sample.spec.everything, sample.spec.list.len()), (nothing(), 0));
    let sample: Sample = decoded(&json!({"metadata": {"name": "a"}}));
    assert_eq!(sample.spec.everything, nothing());
}

#[test]
fn a_service_condition_without_a_time_is_read() {
    let service: Service = decoded(&json!({
        "metadata": {"name": "web", "creationTimestamp": null},
        "spec": {"ports": [{"port": 80, "targetPort": null}]},
        "status": {"conditions": [
            {"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": null},
            {"type": "B", "status": null},
        ], "loadBalancer": {}},
    }));
    let conditions = service.status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].last_transition_time, Time(zero_time()));
    assert_eq!((conditions[1].type_.as_str(), conditions[1].status.as_str()), ("B", ""));
    assert_eq!(conditions[1].last_transition_time, Time(zero_time()));
    // As it is written back, and as a server reads it: the zero time.
    assert_eq!(serde_json::to_value(&conditions[0]).unwrap()["lastTransitionTime"], "0001-01-01T00:00:00Z");
}

#[test]
fn kinds_known_at_run_time_and_metadata_are_read() {
    let json = json!({
        "apiVersion": "v1", "kind": "Sample", "spec": {"a": null},
        "metadata": {"name": "a", "managedFields": [{"time": null}], "ownerReferences": [{"uid": null, "name": "o"}]},
    });
    let dynamic: DynamicObject = decoded(&json);
    assert_eq!(dynamic.data, json!({"spec": {"a": null}}), "what has no type stays as it is");
    let partial: PartialObjectMeta<Service> = decoded(&json);
    assert_eq!(partial.metadata.owner_references.unwrap()[0].name, "o");
}

#[test]
fn what_is_buffered_is_read_without_its_nulls() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        own: String,
        #[serde(flatten)]
        shared: Shared,
        choice: Option<Choice>,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Shared {
        name: String,
        count: i32,
        #[serde(default)]
        extra: String,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Choice {
        A {
            #[serde(default)]
            text: String,
        },
    }
    let expected = Outer {
        own: String::new(),
        shared: Shared { name: String::new(), count: 0, extra: String::new() },
        choice: Some(Choice::A { text: String::new() }),
    };
    let all = json!({"own": null, "name": null, "count": null, "extra": null, "choice": {"type": "A", "text": null}});
    assert_eq!(decoded::<Outer>(&all), expected);
    assert_eq!(decoded::<Outer>(&json!({"choice": {"type": "A"}})), expected);
}

#[test]
fn an_enum_is_its_default_or_refused() {
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    enum Phase {
        #[default]
        Unknown,
        Ready,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Defaulted {
        #[serde(default)]
        phase: Phase,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Required {
        text: String,
        phase: Phase,
    }
    assert_eq!(decoded::<Defaulted>(&json!({"phase": null})).phase, Phase::Unknown);
    assert_eq!(refused::<Required>(&json!({"text": null, "phase": null})), "phase: expected a variant of an enum");
    assert_eq!(refused::<Vec<Required>>(&json!([{"phase": "Ready"}, {}])), "[1].phase: missing field");
}

#[test]
fn an_error_names_the_field_and_not_the_value() {
    let check = |json: Value, expected: &str| {
        let error = refused::<SampleSpec>(&json);
        assert_eq!(error, expected);
    };
    check(json!({"list": [{}, {"number": "hunter2"}]}), "list[1].number: invalid type: string, expected i32");
    check(
        json!({"map": {"a.b": {"inner": {"at": "hunter2"}}}}),
        "map[\"a.b\"].inner.at: its type does not accept the value",
    );
    check(json!({"everything": {"pair": [1, 2, 3]}}), "everything.pair[2]: trailing characters");
    check(json!([]), "invalid length 0, expected struct SampleSpec with 4 elements");
    let secret = refused::<Secret>(&json!({"data": {"a": "not base64: hunter2"}}));
    assert!(secret.starts_with("data.a: ") && !secret.contains("hunter2"), "{secret}");
    let text = from_slice::<Secret>(b"{\"data\": {\"a\": nonsense").unwrap_err().to_string();
    assert!(text.starts_with("expected "), "{text}");
}

#[test]
fn many_nulls_are_filled_together_and_too_many_give_up() {
    let condition = json!({"at": null});
    let many = json!({"lists": [vec![condition; 20_000]]});
    assert_eq!(decoded::<SampleSpec>(&many).lists[0].len(), 20_000);
    let names: serde_json::Map<String, Value> = (0..5_000).map(|n| (format!("n{n}"), Value::Null)).collect();
    let error = refused::<BTreeMap<String, i32>>(&Value::Object(names));
    assert!(error.ends_with("invalid type: null, expected i32"), "{error}");
}

#[test]
fn a_value_is_read_like_a_text() {
    assert_eq!(from_ref::<Everything>(&nulls()).unwrap(), nothing());
    assert_eq!(
        from_ref::<Everything>(&json!({"flag": 1})).unwrap_err().to_string(),
        "flag: invalid type: integer, expected a boolean"
    );
}
