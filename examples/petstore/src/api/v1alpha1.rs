//! `petstore.example.com/v1alpha1`: the Pet resource.
//!
//! A Pet says which pet the pet store is to have. Its status says which entry of the store that is,
//! and whether the entry is as the Pet says.
//!
//! What always holds: every object that the schema lets pass fits the type. One that did not would
//! never reach the operator, and could not even be deleted. A `date-time` of the schema may lie
//! outside the calendar, so a [`Birthday`] is kept as it was written, and a condition whose time
//! cannot be read counts as missing.

use std::{borrow::Cow, fmt};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use windlass::conditions;

use crate::store::{BlankName, Details, Species};

/// Keeps a Pet around until its entry is gone from the pet store.
pub const FINALIZER: &str = "pet.petstore.example.com";

/// The type of the condition that says whether the entry is as the Pet says.
pub const READY: &str = "Ready";

/// The pet that the pet store is to have.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "petstore.example.com",
    version = "v1alpha1",
    kind = "Pet",
    namespaced,
    doc = "A pet in the pet store.",
    status = "PetStatus",
    derive = "PartialEq",
    printcolumn = r#"{
        "name": "Pet Name", "type": "string", "description": "What the pet is called",
        "jsonPath": ".spec.name"
    }"#,
    printcolumn = r#"{
        "name": "Type", "type": "string", "description": "What sort of animal it is",
        "jsonPath": ".spec.type"
    }"#,
    printcolumn = r#"{
        "name": "ID", "type": "string", "description": "The entry in the pet store",
        "jsonPath": ".status.id"
    }"#,
    printcolumn = r#"{
        "name": "Ready", "type": "string", "description": "Whether the entry is as the Pet says",
        "jsonPath": ".status.conditions[?(@.type=='Ready')].status"
    }"#,
    printcolumn = r#"{
        "name": "Reason", "type": "string", "priority": 1, "description": "Why the Pet is ready or not",
        "jsonPath": ".status.conditions[?(@.type=='Ready')].reason"
    }"#,
    printcolumn = r#"{
        "name": "Birthday", "type": "string", "priority": 1, "description": "When the pet was born",
        "jsonPath": ".spec.birthday"
    }"#,
    printcolumn = r#"{
        "name": "Age", "type": "date", "description": "How long the Pet has existed",
        "jsonPath": ".metadata.creationTimestamp"
    }"#
)]
#[serde(rename_all = "camelCase")]
pub struct PetSpec {
    /// What the pet is called.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"\S"))]
    pub name: String,

    /// What sort of animal it is.
    #[serde(rename = "type")]
    pub pet_type: PetType,

    /// When the pet was born. The pet store keeps the day, in UTC.
    pub birthday: Birthday,
}

/// A time, as it was written. The schema calls it a `date-time`; whether it is one that can be used
/// shows in [`day`](Self::day).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Birthday(String);

impl Birthday {
    /// The day in UTC.
    pub fn day(&self) -> Result<Date, UnusableBirthday> {
        let unusable = |source| UnusableBirthday { text: self.0.clone(), source };
        let time: Timestamp = self.0.parse().map_err(unusable)?;
        Ok(TimeZone::UTC.to_datetime(time).date())
    }
}

impl<T: Into<String>> From<T> for Birthday {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Birthday {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Birthday {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Birthday".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A birthday is no time, or one that is outside the calendar or too exact.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the birthday {text:?} cannot be used: {source}")]
pub struct UnusableBirthday {
    /// What was written.
    text: String,
    source: jiff::Error,
}

/// Why a Pet that the schema lets pass is not one that the pet store can have.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSpec {
    /// The name is empty or white space.
    #[error(transparent)]
    Name(#[from] BlankName),
    /// The birthday names no day.
    #[error(transparent)]
    Birthday(#[from] UnusableBirthday),
}

/// What sort of animal a pet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PetType {
    /// A dog.
    Dog,
    /// A cat.
    Cat,
    /// A bird.
    Bird,
    /// A reptile.
    Reptile,
}

/// The pet's entry in the pet store.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PetStatus {
    /// The entry's id, handed out by the pet store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// The generation of the Pet that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready says whether the entry is as the Pet says.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "readable")]
    #[schemars(schema_with = "condition_list")]
    pub conditions: Vec<Condition>,
}

impl PetSpec {
    /// What the entry in the pet store is to say.
    pub fn details(&self) -> Result<Details, InvalidSpec> {
        Ok(Details::new(&self.name, self.pet_type.into(), self.birthday.day()?)?)
    }
}

impl Pet {
    /// The id of the entry in the pet store, once it is known.
    pub fn entry_id(&self) -> Option<&str> {
        self.status.as_ref()?.id.as_deref()
    }

    /// The condition that says whether the entry is as the Pet says.
    pub fn ready(&self) -> Option<&Condition> {
        conditions::find(&self.status.as_ref()?.conditions, READY)
    }
}

impl From<PetType> for Species {
    fn from(pet_type: PetType) -> Self {
        match pet_type {
            PetType::Dog => Self::Canine,
            PetType::Cat => Self::Feline,
            PetType::Bird => Self::Bird,
            PetType::Reptile => Self::Reptile,
        }
    }
}

/// The items that can be read.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<serde_json::Value>::deserialize(from)?;
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

/// The usual schema of conditions: at most one of each type, each owned on its own.
fn condition_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "What the condition is about.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {
                    "description": "Whether the condition holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, in one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, in words for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "description": "When the status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The generation of the object that the condition speaks of.",
                    "type": "integer",
                    "format": "int64",
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn pet(birthday: &str) -> Pet {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "petstore.example.com/v1alpha1",
            "kind": "Pet",
            "metadata": { "name": "thor" },
            "spec": { "name": "Thor", "type": "dog", "birthday": birthday },
        }))
        .unwrap()
    }

    #[test]
    fn a_birthday_is_a_day_in_utc() {
        for (text, day) in [
            ("2021-04-01T00:00:00Z", "2021-04-01"),
            ("2021-04-01T23:59:59Z", "2021-04-01"),
            ("2021-04-01T01:00:00+02:00", "2021-03-31"),
        ] {
            assert_eq!(pet(text).spec.birthday.day().unwrap().to_string(), day, "{text}");
        }
    }

    #[test]
    fn a_blank_name_has_no_details() {
        let mut spec = pet("2021-04-01T00:00:00Z").spec;
        assert_eq!(spec.details().unwrap().species(), Species::Canine);
        spec.name = "  ".into();
        assert!(matches!(spec.details(), Err(InvalidSpec::Name(BlankName))));
    }

    #[test]
    fn a_birthday_outside_the_calendar_is_kept_as_it_is_but_has_no_day() {
        for text in ["2020-01-01T00:00:00.123456789123Z", "9999-12-31T23:59:59-12:00", "2020-01-01T00:00:00+99:99"] {
            let odd = pet(text);
            assert_eq!(serde_json::to_value(&odd.spec).unwrap()["birthday"], text);
            let Err(InvalidSpec::Birthday(error)) = odd.spec.details() else { panic!("{text} has details") };
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_read_counts_as_missing() {
        let condition = |type_: &str, time: &str| {
            serde_json::json!({
                "type": type_, "status": "True", "reason": "Any", "message": "", "lastTransitionTime": time,
            })
        };
        let conditions = [condition("Odd", "9999-12-31T23:59:59-12:00"), condition("Good", "2020-01-01T00:00:00Z")];
        let status: PetStatus = serde_json::from_value(serde_json::json!({ "conditions": conditions })).unwrap();
        let types: Vec<_> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Good"]);
    }

    #[test]
    fn an_empty_status_is_empty_on_the_wire() {
        let status = serde_json::to_value(PetStatus::default()).unwrap();
        assert_eq!(status, serde_json::json!({}));
    }
}
