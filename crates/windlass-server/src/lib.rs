//! An embeddable, Kubernetes-compatible API server.

pub mod field;
pub mod patch;
pub mod registry;
pub mod resource;
pub mod schema;
pub mod status;
