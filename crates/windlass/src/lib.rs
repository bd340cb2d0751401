//! Write Kubernetes operators: what client-go and controller-runtime are in Go, on [`kube`]'s
//! client and types.
//!
//! # A complete operator
//!
//! This operator keeps a pet in an external system for every `Pet` object, and removes it from that system before the
//! object is deleted.
//!
//! ```no_run
//! use std::sync::Arc;
//! use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use windlass::finalizer::{Finalize, Finalizer};
//! use windlass::{Context, Controller, Manager, Outcome};
//!
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "petstore.example.com", version = "v1", kind = "Pet", namespaced, status = "PetStatus")]
//! struct PetSpec {
//!     name: String,
//! }
//!
//! #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
//! struct PetStatus {
//!     id: Option<String>,
//!     #[serde(default)]
//!     conditions: Vec<Condition>,
//! }
//!
//! struct Store; // the external system
//!
//! impl Finalize<Pet> for Store {
//!     async fn reconcile(&self, pet: Arc<Pet>, ctx: Context) -> windlass::Result {
//!         let mut draft = ctx.draft(&pet);
//!         draft.status.get_or_insert_default().id.get_or_insert_with(|| "made by the store".to_string());
//!         draft.condition("Ready", true, "Stored", "the pet is in the store");
//!         if draft.commit(&ctx).await?.status {
//!             ctx.recorder().normal(&pet, "Stored", "the pet is in the store");
//!         }
//!         Ok(Outcome::Done)
//!     }
//!
//!     async fn cleanup(&self, _pet: Arc<Pet>, _ctx: Context) -> windlass::Result {
//!         Ok(Outcome::Done) // removed from the store: the object may be deleted
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let client = windlass::config::client().await?;
//!     let mut manager = Manager::builder(client).name("petstore").probes(":8081").metrics(":8080").build()?;
//!     let store = Finalizer::new("petstore.example.com/pet", Store);
//!     manager.add(Controller::<Pet>::new("pet").concurrency(4).complete(store))?;
//!     manager.run().await?; // until SIGINT or SIGTERM
//!     Ok(())
//! }
//! ```
//!
//! # A tour
//!
//! A change travels `watch → informer → cache → queue → reconcile → client`:
//!
//! 1. [`manager`]: everything an operator runs, started and stopped in order.
//! 2. [`controller`]: what to watch, which keys a change concerns, and the reconciler;
//!    [`predicate`]: which changes wake the controller.
//! 3. [`client`] and [`cache`]: cached reads that always show the process its own writes, live reads, writes.
//! 4. [`informer`] and [`queue`]: the machinery underneath, usable on its own. An informer factory calls handlers for
//!    objects that are added, updated and deleted, without a manager.
//! 5. Helpers for reconcilers: [`finalizer`] (clean up before an object is deleted), [`draft`] (send
//!    only what changed), [`children`] (apply the wanted children, delete the others), [`conditions`],
//!    [`owner`], [`events`], [`quantity`].
//! 6. [`lease`]: one replica works, the leader, and the others send no writes.
//! 7. [`shard`]: all replicas work, each on its part of the keys.
//! 8. [`webhook`]: defaulting, validating and converting, with certificates that the operator creates itself.
//! 9. [`metrics`]: under controller-runtime's names.
//! 10. [`config`]: the cluster and the credentials; [`rbac`]: the permissions that the operator needs.
//! 11. [`crd`]: definitions from types, with everything that controller-gen's markers say.
//!
//! # Features
//!
//! | | |
//! |---|---|
//! | `webhook` | the module [`webhook`], and metrics over HTTPS; on by default, needs `ring` or `aws-lc-rs` |
//! | `rustls-tls`, `openssl-tls` | the TLS implementation of the client; rustls by default |
//! | `ring`, `aws-lc-rs` | rustls' cryptography; ring by default |
//! | `v1_33` to `v1_37`, `earliest`, `latest` | the Kubernetes version of [`k8s_openapi`]'s types: a binary enables one |
//!
//! [`kube`], [`k8s_openapi`], [`schemars`], [`serde`] and [`serde_json`] are re-exported in the versions that this
//! crate uses.

pub mod manager;

pub mod controller;
pub mod predicate;

pub mod cache;
pub mod client;

pub mod informer;
pub mod queue;

pub mod children;
pub mod conditions;
pub mod draft;
pub mod events;
pub mod finalizer;
pub mod owner;
pub mod quantity;

pub mod lease;
pub mod shard;

pub mod config;
pub mod metrics;
pub mod rbac;
#[cfg(feature = "webhook")]
pub mod webhook;

mod decode;
mod fence;
mod host;
mod http_server;
mod key;
mod names;
mod object;
mod outage;
mod reflector;
mod remote_cluster;
mod report;
mod retry;
mod selector;
mod token_file;

pub use k8s_openapi;
pub use kube;
pub use schemars;
pub use serde;
pub use serde_json::{self, json};
pub use tokio_util::sync::CancellationToken;
pub use windlass_crd as crd;

pub use client::CachedClient;
pub use controller::{Context, Controller, Outcome, Reconcile, ReconcileError, ReconcileKey};
pub use draft::Draft;
pub use key::ObjectKey;
pub use manager::Manager;
pub use object::{AsObject, Object, TypedObject};

/// What a reconciler returns: an [`Outcome`], or an error that `?` makes of any other.
///
/// ```
/// use windlass::{Outcome, Result};
///
/// fn parse(text: &str) -> Result<u32> {
///     Ok(text.parse()?) // any error will do
/// }
///
/// async fn reconcile() -> Result {
///     parse("7")?;
///     Ok(Outcome::Done)
/// }
/// ```
pub type Result<T = Outcome, E = ReconcileError> = std::result::Result<T, E>;

/// The complete operator and the markers of the book compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/library.md")]
#[doc = include_str!("../../../docs/reference/crd-markers.md")]
mod on_one_page {}

/// The examples of the book's concepts and guides compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/concepts/objects.md")]
#[doc = include_str!("../../../docs/concepts/informers.md")]
#[doc = include_str!("../../../docs/concepts/controllers.md")]
#[doc = include_str!("../../../docs/concepts/finalizers.md")]
#[doc = include_str!("../../../docs/concepts/versions.md")]
#[doc = include_str!("../../../docs/concepts/webhooks.md")]
#[doc = include_str!("../../../docs/concepts/leader-election.md")]
#[doc = include_str!("../../../docs/how-to/migrate-from-kubebuilder.md")]
#[doc = include_str!("../../../docs/how-to/migrate-from-kube-rs.md")]
#[doc = include_str!("../../../docs/how-to/operate.md")]
mod book {}

#[cfg(test)]
mod tests {
    #[test]
    fn the_book_has_this_operator_in_60_lines() {
        let page = include_str!("../../../docs/reference/library.md");
        let operator = page.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("\n```").next());
        let operator = operator.expect("a complete operator");
        assert!(operator.lines().count() < 60, "{} lines", operator.lines().count());
        let above: Vec<&str> = include_str!("lib.rs").lines().map_while(|line| line.strip_prefix("//!")).collect();
        let above: Vec<&str> = above.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        assert!(above.join("\n").contains(operator), "the two differ");
    }
}
