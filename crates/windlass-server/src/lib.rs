//! An embeddable, Kubernetes-compatible API server.
//!
//! ```text
//! handler: authn ▸ authz ▸ registry { decode ▸ default ▸ own ▸ admission ▸ validate ▸ store } ▸ render
//! ```
//!
//! Start with [`Server`]: in a test as a tower service with no socket, in production with TLS.

mod server;
pub use server::{Listener, Server, ServerBuilder, ServerError, Service};

pub mod authn;
pub mod pki;

mod admission;
pub mod api;
mod api_services;
pub mod apply;
pub mod authz;
pub mod body;
mod bootstrap;
pub mod catalog;
mod cel;
pub mod codec;
pub mod crd;
pub mod depth;
pub mod discovery;
mod documents;
mod effort;
pub mod field;
pub mod handler;
mod health;
mod kubernetes_service;
mod loopback;
mod metrics;
mod object;
pub mod openapi;
pub mod options;
pub mod patch;
pub mod quota;
pub mod registry;
mod render;
pub mod request;
pub mod resource;
mod reviews;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
pub mod validation;
pub mod version;
mod versions;
pub mod watch;
mod webhook;
