// SPDX-License-Identifier: Apache-2.0

//! The kind At: a command, and the time at which it runs once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// What is to run, and when. It can be edited until the command has started.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cnat.programming-kubernetes.info",
    version = "v1alpha1",
    kind = "At",
    doc = "A command, and the time at which it runs once.",
    plural = "ats",
    namespaced,
    status = "AtStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    // The API server refuses the edit, so nobody waits for an effect that never comes.
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase == 'PENDING' || self.spec == oldSelf.spec").message("spec cannot be changed: the command has started"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AtSpec {
    /// When to run the command, in UTC: `2019-07-03T02:00:00Z`.
    // A plain text, so that the operator has to say in the status that it cannot read a time. With
    // `#[schemars(transform = crd::format("date-time"))]` the API server would refuse it, which is usually better.
    pub schedule: String,

    /// What to run, in a shell.
    #[schemars(length(min = 1))]
    pub command: String,

    /// How late the command may start, for example because the operator was not running. Without it any delay is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
}

/// How far the command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Its time has not come.
    #[default]
    Pending,
    /// Its Pod exists.
    Running,
    /// It has ended, well or badly, or will never run.
    Done,
}

/// What became of the command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtStatus {
    /// How far the command is.
    #[serde(default)]
    pub phase: Phase,

    /// When the Pod was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,

    /// `Succeeded` is unknown until the command has ended; its reason says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
