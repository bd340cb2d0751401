// SPDX-License-Identifier: Apache-2.0

//! The kinds of petstore.

pub mod v1alpha1;
pub mod v1beta1;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::MergeError;
use kube::core::crd::merge_crds;

/// The definitions of all kinds, each with all its versions.
#[allow(clippy::vec_init_then_push)]
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, MergeError> {
    let mut definitions = Vec::new();
    definitions.push(merge_crds(vec![v1alpha1::Pet::crd(), v1beta1::Pet::crd()], "v1beta1")?);
    Ok(definitions)
}
