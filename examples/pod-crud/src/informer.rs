// SPDX-License-Identifier: Apache-2.0

//! Be told of changes of Pods by a shared informer, and read them from its cache.
//!
//! All informers of a factory that are about the same objects share one watch and one cache. The informer lists, watches,
//! comes back after failures and calls the handlers: a deletion that was missed is told, too. Every half hour it calls them
//! with all objects again.
//!
//! Objects of the cache are shared, in an `Arc`: Rust does not let a handler change them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use windlass::ObjectKey;
use windlass::informer::{Handler, Informer, InformerFactory};
use windlass::kube::Client;

/// An informer of Pods that says what happens. `start` the factory, and wait until it is `wait_synced` before you read:
/// the cache is filled by then.
pub fn pods(client: Client, say: impl Fn(String) + Clone + Send + Sync + 'static) -> (InformerFactory, Informer<Pod>) {
    let factory = InformerFactory::builder(client).resync(Duration::from_secs(30 * 60)).build();
    let pods = factory.informer::<Pod>();
    let (added, updated, deleted) = (say.clone(), say.clone(), say);
    let handler = Handler::<Pod>::new()
        .added(move |pod, _initial| added(format!("add pod: {}", ObjectKey::of(&pod))))
        .updated(move |_old, pod| updated(format!("update pod: {}", ObjectKey::of(&pod))))
        .deleted(move |pod| deleted(format!("delete pod: {}", ObjectKey::of(&pod))));
    pods.add_handler(handler).forever();
    (factory, pods)
}
