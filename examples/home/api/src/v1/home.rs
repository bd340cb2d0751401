// SPDX-License-Identifier: Apache-2.0

//! The kind Home: rooms, and how warm they are to be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// The rooms of a home. Whatever the operator is told, it is told here.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ajd.my.domain",
    version = "v1",
    kind = "Home",
    doc = "Rooms, and how warm they are to be.",
    plural = "homes",
    namespaced,
    status = "HomeStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Rooms", type_ = "integer", json_path = ".status.rooms"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HomeSpec {
    /// Where it is. A home does not move: the webhook refuses another address.
    #[schemars(length(min = 1))]
    pub address: String,

    /// Its rooms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["name"]))]
    pub rooms: Vec<Room>,

    /// Whether somebody lives there. The webhook refuses to delete such a home.
    #[serde(default)]
    pub occupied: bool,
}

/// A room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// What it is called.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9-]+$"))]
    pub name: String,

    /// How warm it is to be, in degrees Celsius. The webhook sets 20 if this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 30))]
    pub celsius: Option<i32>,
}

impl Room {
    /// How warm the room is to be.
    pub fn celsius(&self) -> i32 {
        self.celsius.unwrap_or(20)
    }
}

/// What the thermostats are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HomeStatus {
    /// How many rooms have a thermostat.
    #[serde(default)]
    pub rooms: i32,

    /// `Ready` says whether the thermostats are told what the spec asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
