//! An embeddable, Kubernetes-compatible API server.

pub mod authn;
pub mod authz;
pub mod body;
pub mod crd;
pub mod discovery;
pub mod codec;
pub mod field;
pub mod options;
pub mod pki;
pub mod patch;
pub mod registry;
pub mod request;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod status;
pub mod validation;
pub mod table;
pub mod version;
pub mod watch;
