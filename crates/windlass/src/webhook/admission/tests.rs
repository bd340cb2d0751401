#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;

/// Wants `legs`, and says who was asked.
struct Legs;

impl Defaulter<ConfigMap> for Legs {
    async fn set_defaults(&self, map: &mut ConfigMap, request: &Request<ConfigMap>) -> Result<(), Denied> {
        let known = if request.old_object.is_some() { "old" } else { "new" };
        map.data.get_or_insert_default().insert("known".into(), known.into());
        Ok(())
    }
}

impl Validate<ConfigMap> for Legs {
    async fn validate_create(&self, map: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
        if map.data.as_ref().is_some_and(|data| data.contains_key("legs")) {
            return Ok("created".into());
        }
        Err("no legs".into())
    }

    async fn validate_update(&self, _: &ConfigMap, _: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
        Ok("updated".into())
    }

    async fn validate_delete(&self, _: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
        Err("stays".into())
    }
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn leaving(mut map: Value) -> Value {
    map["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    map
}

fn request(operation: &str, old: &Value, new: &Value) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    json!({"uid": "7", "kind": kind, "resource": resource, "name": "a", "operation": operation,
        "userInfo": {}, "object": new, "oldObject": old, "dryRun": false})
}

/// What a validator's answer says: the warnings of one that admits, or why not.
async fn judge(operation: &str, old: &Value, new: &Value) -> Vec<String> {
    match validate::<ConfigMap>(&Legs, &request(operation, old, new)).await {
        Ok(warnings) => warnings.into_iter().collect(),
        Err(denied) => vec![format!("denied: {}", denied.into_parts().0.message)],
    }
}

/// Wants all that a type of its own requires.
struct Pets;

#[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
#[kube(group = "example.com", version = "v1", kind = "Pet", namespaced, schema = "disabled")]
struct PetSpec {
    name: String,
    born: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
    legs: Vec<Leg>,
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Leg {
    length: i32,
}

impl Defaulter<Pet> for Pets {
    async fn set_defaults(&self, pet: &mut Pet, _: &Request<Pet>) -> Result<(), Denied> {
        if pet.spec.name.is_empty() {
            pet.spec.name = "thor".into();
        }
        Ok(())
    }
}

impl Validate<Pet> for Pets {
    async fn validate_create(&self, pet: &Pet, _: &Request<Pet>) -> Verdict {
        Ok(format!("{:?} {:?} {:?}", pet.spec.name, pet.spec.born.0, pet.spec.legs).into())
    }
}

#[tokio::test]
async fn nulls_and_missing_fields_of_reviewed_objects_are_zero_values() {
    let pet = json!({
        "apiVersion": "example.com/v1", "kind": "Pet", "metadata": {"name": "a", "creationTimestamp": null},
        "spec": {"name": null, "legs": [null, {"length": 3}]},
    });
    let mut review = request("CREATE", &Value::Null, &pet);
    review["kind"] = json!({"group": "example.com", "version": "v1", "kind": "Pet"});
    let warnings: Vec<String> = validate::<Pet>(&Pets, &review).await.unwrap().into_iter().collect();
    assert_eq!(warnings, ["\"\" 0001-01-01T00:00:00Z [Leg { length: 0 }, Leg { length: 3 }]"]);
    // Only what the webhook changed is changed.
    let response = set_defaults::<Pet>(&Pets, review).await.unwrap();
    let patch = serde_json::to_value(response.patch().unwrap()).unwrap();
    assert_eq!(patch.as_array().unwrap().len(), 1, "{patch}");
    assert_eq!((&patch[0]["path"], &patch[0]["value"]), (&json!("/spec/name"), &json!("thor")));
}

const MISFIT: &str = "oldObject does not fit ConfigMap: data.legs: invalid type: integer, expected a string";

#[tokio::test]
async fn what_is_stored_and_no_longer_fits_can_be_repaired() {
    let (broken, whole) = (map(&json!({"legs": 4})), map(&json!({"legs": "4"})));
    assert_eq!(judge("UPDATE", &whole, &whole).await, ["updated"]);
    assert_eq!(judge("UPDATE", &broken, &whole).await, ["created", MISFIT]);
    assert_eq!(judge("UPDATE", &broken, &map(&json!({}))).await, ["denied: no legs"], "it is judged all the same");
    let refused = judge("UPDATE", &whole, &broken).await;
    assert!(refused[0].starts_with("denied: object does not fit"), "{refused:?}");

    let known = async |old: &Value| {
        let response = set_defaults::<ConfigMap>(&Legs, request("UPDATE", old, &whole)).await.unwrap();
        serde_json::to_value(response.patch().unwrap()).unwrap()[0]["value"].clone()
    };
    assert_eq!(known(&whole).await, "old");
    assert_eq!(known(&broken).await, "new");
}

#[tokio::test]
async fn what_is_stored_and_no_longer_fits_can_be_deleted() {
    let (broken, whole) = (map(&json!({"legs": 4})), map(&json!({"legs": "4"})));
    assert_eq!(judge("DELETE", &whole, &Value::Null).await, ["denied: stays"]);
    assert_eq!(judge("DELETE", &broken, &Value::Null).await, [MISFIT]);
    assert!(judge("DELETE", &Value::Null, &Value::Null).await[0].contains("no object"));

    // With finalizers, it is gone once they are.
    let mut held = leaving(broken.clone());
    held["metadata"]["finalizers"] = json!(["example.com/legs"]);
    let free = leaving(broken.clone());
    assert_eq!(judge("UPDATE", &held, &free).await, [MISFIT.replace("oldObject", "object")]);
    let response = set_defaults::<ConfigMap>(&Legs, request("UPDATE", &held, &free)).await.unwrap();
    assert!(response.is_allowed() && response.patch().is_none());
    for (old, new) in [
        (&held, leaving(map(&json!({"legs": 5})))),
        (&held, leaving(json!({"metadata": {}, "data": {"legs": 4}}))),
        (&broken, free),
    ] {
        let refused = judge("UPDATE", old, &new).await;
        assert!(refused[0].starts_with("denied: object does not fit"), "{refused:?}");
    }
}

/// Is asked about deletes alone.
struct Deletes;

impl Validate<ConfigMap> for Deletes {
    const OPERATIONS: &'static [Operation] = &[Operation::Delete];

    async fn validate_create(&self, _: &ConfigMap, _: &Request<ConfigMap>) -> Verdict {
        Ok(Warnings::none())
    }
}

#[test]
fn a_validator_names_its_operations() {
    let operations = |hook: Admission| hook.rules[0].operations.clone().unwrap();
    assert_eq!(operations(Admission::validating::<ConfigMap>(Legs)), ["CREATE", "UPDATE"]);
    assert_eq!(operations(Admission::validating::<ConfigMap>(Deletes)), ["DELETE"]);
    let told = Admission::validating::<ConfigMap>(Deletes).operations([Operation::Connect]);
    assert_eq!(operations(told), ["CONNECT"]);
}
