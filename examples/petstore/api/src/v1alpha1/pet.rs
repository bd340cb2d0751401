// SPDX-License-Identifier: Apache-2.0

//! The kind Pet, in the version that the pet store began with.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

// The status did not change.
pub use crate::v1beta1::pet::PetStatus;

/// The pet that the pet store is to have.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "petstore.example.com",
    version = "v1alpha1",
    kind = "Pet",
    doc = "A pet in the pet store.",
    plural = "pets",
    namespaced,
    status = "PetStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Pet Name", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.id"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PetSpec {
    /// What the pet is called.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"\S"))]
    pub name: String,

    /// What sort of animal it is.
    pub r#type: PetType,

    /// When the pet was born. The pet store keeps the day, in UTC.
    #[schemars(transform = crd::format("date-time"))]
    pub birthday: String,
}

/// What sort of animal a pet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
