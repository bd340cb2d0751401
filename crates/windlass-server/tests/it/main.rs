//! The server as its clients see it.
#![allow(clippy::unwrap_used)]

mod kube_client;
