// SPDX-License-Identifier: Apache-2.0

//! Be told of changes of Pods by a watch.
//!
//! A watch begins at a `resourceVersion` and ends now and then: after some minutes, or when a connection breaks. A new one
//! goes on where the last one ended, if the server still knows what has happened since; otherwise (410 Expired) everything
//! has to be listed again. A *bookmark* is an event without a change that says how far the watch is. With bookmarks a
//! watch of objects that seldom change does not fall behind.
//!
//! Doing all that right is what [informers](crate::informer) are for.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use windlass::kube::api::{WatchEvent, WatchParams};
use windlass::kube::{Api, Error, ResourceExt as _};

/// Begins a watch with an `added` for each Pod that exists.
pub const START: &str = "0";

/// After how long a server is asked again that did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Tells what happens until `say` returns false. A watch that has ended is followed by one that goes on from there.
pub async fn follow_on(pods: &Api<Pod>, mut say: impl FnMut(String) -> bool) {
    let (mut version, mut goes_on) = (START.to_owned(), true);
    while goes_on {
        let told = follow(pods, &mut version, |text| {
            goes_on = say(text);
            goes_on
        });
        match told.await {
            Ok(()) => {}
            // The server no longer knows what has happened since.
            Err(Error::Api(status)) if status.code == 410 => version = START.to_owned(),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Tells what happens from a `resourceVersion` on, until `say` returns false or the watch ends. `version` is then where to
/// go on.
pub async fn follow(pods: &Api<Pod>, version: &mut String, mut say: impl FnMut(String) -> bool) -> Result<(), Error> {
    // Bookmarks are part of the defaults.
    let mut events = pods.watch(&WatchParams::default(), version).await?.boxed();
    while let Some(event) = events.next().await {
        let text = match event? {
            WatchEvent::Added(pod) => changed("added", &pod, version),
            WatchEvent::Modified(pod) => changed("modified", &pod, version),
            WatchEvent::Deleted(pod) => changed("deleted", &pod, version),
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                format!("bookmark: up to {version}")
            }
            // The watch is of no more use; with 410 the version is too old.
            WatchEvent::Error(status) => return Err(Error::Api(status)),
        };
        if !say(text) {
            break;
        }
    }
    Ok(())
}

fn changed(what: &str, pod: &Pod, version: &mut String) -> String {
    *version = pod.resource_version().unwrap_or_default();
    format!("{what}: {}", pod.name_any())
}
