//! An embeddable, Kubernetes-compatible API server.

pub mod authn;
pub mod authz;
pub mod body;
pub mod crd;
pub mod discovery;
pub mod field;
pub mod options;
pub mod pki;
pub mod registry;
pub mod request;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod status;
pub mod validation;
pub mod version;
pub mod watch;
