//! The server as its clients see it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod big;
mod big_crd;
mod bindings;
mod bodies;
mod certificates;
mod classes;
mod client;
mod connect;
mod conversion;
mod definitions;
mod documents;
mod evictions;
mod hook;
mod hostile;
mod kube_client;
mod kubernetes_service;
mod nesting;
mod patches;
mod policies;
mod quotas;
mod resizes;
mod roles;
mod scales;
mod webhooks;
