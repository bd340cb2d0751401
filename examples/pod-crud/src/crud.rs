// SPDX-License-Identifier: Apache-2.0

//! Create, get, update and delete a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass::kube::api::{DeleteParams, PostParams};
use windlass::kube::{Api, Error};

/// The Pod that this program works with.
pub const NAME: &str = "foo";

/// Creates the Pod. One that exists is from a run that was interrupted, and is taken as it is.
pub async fn create(pods: &Api<Pod>) -> Result<Pod, Error> {
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(NAME.into()),
            labels: Some([("k".into(), "v".into())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "busybox".into(),
                image: Some("busybox:latest".into()),
                command: Some(vec!["sleep".into(), "1000".into()]),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    };
    match pods.create(&PostParams::default(), &pod).await {
        Err(Error::Api(status)) if status.reason == "AlreadyExists" => pods.get(NAME).await,
        result => result,
    }
}

/// Gives a Pod these labels and no others.
///
/// A Pod has other writers: the scheduler, the node, other programs. The API server takes an update only if it has the
/// `resourceVersion` of the object as it is now, and answers 409 Conflict otherwise. Then the object is read and changed
/// again. Nothing that somebody else has written is lost.
///
/// `windlass::CachedClient::modify` does the same, with delays between the attempts.
pub async fn label(pods: &Api<Pod>, name: &str, labels: &BTreeMap<String, String>) -> Result<Pod, Error> {
    loop {
        let mut pod = pods.get(name).await?;
        pod.metadata.labels = Some(labels.clone());
        match pods.replace(name, &PostParams::default(), &pod).await {
            Err(Error::Api(status)) if status.code == 409 => {} // once more, with what there is now
            result => return result,
        }
    }
}

/// Deletes a Pod. This returns at once; the Pod goes when its containers have stopped.
pub async fn delete(pods: &Api<Pod>, name: &str) -> Result<(), Error> {
    pods.delete(name, &DeleteParams::default()).await.map(drop)
}
