// SPDX-License-Identifier: Apache-2.0

//! Read objects whose type the program does not have. Fields are found by name, at run time: convenient for programs that
//! work with any kind, such as a garbage collector, and a source of errors for all others.

use windlass::kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use windlass::kube::{Api, Client, Error};

/// Reads an At of the example `at`, if there is one.
pub async fn at(client: Client, namespace: &str, name: &str) -> Result<Option<DynamicObject>, Error> {
    let kind = GroupVersionKind::gvk("cnat.programming-kubernetes.info", "v1alpha1", "At");
    // The plural is in the address of the objects: `ats`. It is guessed from the kind here; discovery knows it.
    let resource = ApiResource::from_gvk(&kind);
    Api::<DynamicObject>::namespaced_with(client, namespace, &resource).get_opt(name).await
}

/// When an At runs, if it says so.
pub fn schedule(at: &DynamicObject) -> Option<&str> {
    at.data["spec"]["schedule"].as_str()
}
