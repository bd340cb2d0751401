//! A pet store, and the operator that keeps Pet resources in it.
//!
//! The store is a gRPC server that knows nothing of Kubernetes ([`server`], [`store`]). The operator
//! watches Pets ([`api`]) and keeps one entry of the store for each of them
//! ([`operator`], [`client`]).

pub mod api;
pub mod client;
pub mod operator;
pub mod proto;
pub mod sampler;
pub mod server;
pub mod store;
