// SPDX-License-Identifier: Apache-2.0

//! The kind Guestbook: a web page on which visitors leave messages, and the Redis that keeps them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass_crd as crd;

/// How large the guestbook is, and who reaches it.
///
/// Fields that are left out get their defaults from the webhook. The operator knows the same defaults, so it works
/// without the webhook as well.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "webapp.my.domain",
    version = "v1",
    kind = "Guestbook",
    doc = "A page on which visitors leave messages, and the Redis that keeps them.",
    plural = "guestbooks",
    shortname = "gb",
    namespaced,
    status = "GuestbookStatus",
    derive = "PartialEq",
    crates(schemars = "windlass_crd::schemars"),
    printcolumn(name = "Frontends", type_ = "integer", json_path = ".status.availableFrontends"),
    printcolumn(name = "Followers", type_ = "integer", json_path = ".status.availableFollowers"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookSpec {
    /// How many Pods serve the page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 50))]
    pub frontends: Option<i32>,

    /// How many Redis followers answer reads. Without any, the leader does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub followers: Option<i32>,

    /// The type of the frontend's Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<ServiceType>,

    /// While this is true, the webhook refuses to delete the guestbook.
    #[serde(default)]
    pub deletion_protection: bool,
}

/// Who reaches a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Pods of the cluster.
    #[default]
    ClusterIP,
    /// Everybody who reaches a node.
    NodePort,
    /// Everybody who reaches the load balancer.
    LoadBalancer,
}

impl GuestbookSpec {
    /// How many Pods serve the page.
    pub fn frontends(&self) -> i32 {
        self.frontends.unwrap_or(3)
    }

    /// How many Redis followers there are.
    pub fn followers(&self) -> i32 {
        self.followers.unwrap_or(2)
    }

    /// The type of the frontend's Service.
    pub fn service_type(&self) -> ServiceType {
        self.service_type.unwrap_or_default()
    }
}

/// What of the guestbook works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestbookStatus {
    /// How many Pods serve the page.
    #[serde(default)]
    pub available_frontends: i32,

    /// How many followers answer reads.
    #[serde(default)]
    pub available_followers: i32,

    /// `Ready` says whether visitors can use the page as the spec asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = crd::list_map(["type"]))]
    pub conditions: Vec<Condition>,
}
