//! An embeddable, Kubernetes-compatible API server.

pub mod apply;
pub mod field;
pub mod patch;
pub mod registry;
pub mod resource;
pub mod schema;
pub mod status;
