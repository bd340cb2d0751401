//! An embeddable, Kubernetes-compatible API server.

pub mod codec;
pub mod field;
pub mod registry;
pub mod resource;
pub mod schema;
pub mod status;
