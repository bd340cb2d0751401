//! The server as its clients see it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod conversion;
mod hook;
mod kube_client;
mod policies;
mod webhooks;
