//! An embeddable, Kubernetes-compatible API server.

pub mod discovery;
pub mod field;
pub mod openapi;
pub mod registry;
pub mod resource;
pub mod schema;
pub mod status;
pub mod table;
pub mod version;
