//! The server as its clients see it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod answers;
mod big;
mod big_crd;
mod client;
mod conversion;
mod definitions;
mod evictions;
mod hook;
mod hostile;
mod kube_client;
mod policies;
mod quotas;
mod roles;
mod webhooks;
