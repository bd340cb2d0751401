//! The network of a cluster on one machine: what kube-proxy, a network plugin, CoreDNS and an ingress controller are to a
//! cluster of many.
//!
//! - [`services`]: what Services and their EndpointSlices say, as a value: which addresses and ports lead to which
//!   endpoints. [`Directory`] holds it for all Services, and a [controller] keeps it current.
//! - [`dns`]: the cluster's names. [`ingress`]: HTTP from outside. [`policy`]: who may reach whom.
//! - [`cluster`]: a network namespace for the cluster and one for each pod, connected, with packet filter [rules] that
//!   forward Services to their endpoints. Linux only.
//! - [`resolver`] and [`variables`]: what a pod's containers are told about names and Services.
//! - [`exposure`] and [`forward`]: ports of the machine that lead into the cluster.
//! - [`network`]: all of it put together.
//!
//! Everything that decides is a pure function of the directory; the rest of the crate carries the decisions out.

// Compiled there once, instead of here and in every test.
use windlass_codecs as _;

pub mod controller;
pub mod services;

pub mod dns;
pub mod ingress;
pub mod policy;

pub mod resolver;
pub mod variables;

pub mod exposure;
pub mod forward;

#[cfg(target_os = "linux")]
pub mod cluster;
#[cfg(target_os = "linux")]
pub mod namespace;
#[cfg(target_os = "linux")]
pub mod netlink;
#[cfg(target_os = "linux")]
pub mod network;
pub mod range;
#[cfg(target_os = "linux")]
pub mod rules;

#[cfg(target_os = "linux")]
mod balancer;

#[cfg(target_os = "linux")]
pub use cluster::ClusterNetwork;
#[cfg(target_os = "linux")]
pub use network::{Network, NetworkOptions};
pub use range::Range;
pub use services::{Directory, ServiceName};
