// SPDX-License-Identifier: Apache-2.0

//! The kind Pet, in the version that is stored and that the operator works with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::civil::Date;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// The pet that the pet store is to have.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "petstore.example.com",
    version = "v1beta1",
    kind = "Pet",
    doc = "A pet in the pet store.",
    plural = "pets",
    namespaced,
    status = "PetStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Pet Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Species", type_ = "string", json_path = ".spec.species"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.id"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Birthday", type_ = "string", priority = 1, json_path = ".spec.birthday"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PetSpec {
    /// What the pet is called.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"\S"))]
    pub name: String,

    /// What sort of animal it is.
    pub species: Species,

    /// The day on which the pet was born, such as 2021-04-01.
    #[schemars(transform = crd::format("date"))]
    pub birthday: String,

    /// What becomes of the entry in the pet store when the Pet is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

impl PetSpec {
    /// The day on which the pet was born, if it is one of the calendar. The operator can read every Pet, and says in the
    /// status of one whose birthday is no day that it cannot be used.
    pub fn birthday(&self) -> Option<Date> {
        date(&self.birthday)
    }
}

/// A date, and nothing else: jiff takes the date of a time as well.
pub(crate) fn date(text: &str) -> Option<Date> {
    text.parse().ok().filter(|date: &Date| date.to_string() == text)
}

/// What sort of animal a pet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Species {
    /// A dog.
    Dog,
    /// A cat.
    Cat,
    /// A bird.
    Bird,
    /// A reptile.
    Reptile,
}

/// What becomes of the entry in the pet store when the Pet is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It is deleted.
    #[default]
    Delete,
    /// It stays in the store, and nothing in the cluster speaks of it any more.
    Retain,
}

/// The pet's entry in the pet store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PetStatus {
    /// The entry's id, which the pet store chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,

    /// The generation of the Pet that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready` says whether the entry is as the spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}

impl Pet {
    /// The id of the entry in the pet store, once it is known.
    pub fn entry_id(&self) -> Option<&str> {
        self.status.as_ref()?.id.as_deref()
    }

    /// The condition that says whether the entry is as the spec asks.
    pub fn ready(&self) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Ready")
    }
}
