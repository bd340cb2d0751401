// SPDX-License-Identifier: Apache-2.0

//! Be told of changes of Pods by a watch.
//!
//! A watch begins at a `resourceVersion` and ends now and then: after some minutes, or when a connection breaks. A new one
//! goes on where the last one ended, if the server still knows what has happened since; otherwise (410 Expired) everything
//! has to be listed again. A *bookmark* is an event without a change that says how far the watch is. With bookmarks a
//! watch of objects that seldom change does not fall behind.
//!
//! Doing all that right is what [informers](crate::informer) are for.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use windlass::kube::api::{WatchEvent, WatchParams};
use windlass::kube::{Api, Error, ResourceExt as _};

/// Tells what happens from a `resourceVersion` on, until `say` returns false or the watch ends. Returns where to go on.
///
/// With `0` the watch begins with an `added` for each Pod that exists.
pub async fn follow(pods: &Api<Pod>, from: &str, mut say: impl FnMut(String) -> bool) -> Result<String, Error> {
    // Bookmarks are part of the defaults.
    let mut events = pods.watch(&WatchParams::default(), from).await?.boxed();
    let mut version = from.to_owned();
    while let Some(event) = events.next().await {
        let text = match event? {
            WatchEvent::Added(pod) => changed("added", &pod, &mut version),
            WatchEvent::Modified(pod) => changed("modified", &pod, &mut version),
            WatchEvent::Deleted(pod) => changed("deleted", &pod, &mut version),
            WatchEvent::Bookmark(bookmark) => {
                version = bookmark.metadata.resource_version;
                format!("bookmark: up to {version}")
            }
            // The watch is of no more use; with 410 the version is too old.
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        if !say(text) {
            break;
        }
    }
    Ok(version)
}

fn changed(what: &str, pod: &Pod, version: &mut String) -> String {
    *version = pod.resource_version().unwrap_or_default();
    format!("{what}: {}", pod.name_any())
}
