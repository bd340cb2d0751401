// SPDX-License-Identifier: Apache-2.0

//! The kinds of opentelemetry-collector.

pub mod v1alpha1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::MergeError;
use kube::core::crd::merge_crds;

/// The definitions of all kinds, each with all its versions.
#[allow(clippy::vec_init_then_push)]
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, MergeError> {
    let mut definitions = Vec::new();
    definitions.push(merge_crds(vec![v1alpha1::OpenTelemetryCollector::crd()], "v1alpha1")?);
    Ok(definitions)
}
