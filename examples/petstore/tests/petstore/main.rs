//! The pet store over a real socket, and the operator against an API server in this process.

#![allow(clippy::unwrap_used)]

mod binaries;
mod client;
mod cluster;
mod grpc;
mod kubectl;
mod manifests;
mod operator;
mod process;
mod serving;
