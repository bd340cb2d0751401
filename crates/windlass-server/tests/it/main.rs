//! The server as its clients see it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod conversion;
mod evictions;
mod hook;
mod kube_client;
mod quotas;
mod roles;
mod webhooks;
