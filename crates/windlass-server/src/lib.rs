//! An embeddable, Kubernetes-compatible API server.
//!
//! ```text
//! handler: authn ▸ authz ▸ registry { decode ▸ default ▸ own ▸ admission ▸ validate ▸ store } ▸ render
//! ```
//!
//! Start with [`Server`]: in a test as a tower service with no socket, in production with TLS. The API of this crate is
//! [`Server`], [`AdmissionPlugins`], [`Computed`], [`streams`], [`dialer`], [`authn`] and [`pki`]. Other modules are public for the other crates
//! of this workspace only, are not in this documentation, and change without notice.

mod computed;
mod server;
pub use admission::{AdmissionPlugin, AdmissionPlugins, UnknownPlugin};
pub use computed::Computed;
pub use server::{Listener, Server, ServerBuilder, ServerError, Service};

pub mod authn;
pub mod dialer;
pub mod pki;
pub mod streams;

mod admission;
#[doc(hidden)]
pub mod api;
mod api_services;
#[doc(hidden)]
pub mod apply;
#[doc(hidden)]
pub mod authz;
#[doc(hidden)]
pub mod body;
mod bootstrap;
#[doc(hidden)]
pub mod catalog;
mod cel;
#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod crd;
#[doc(hidden)]
pub mod depth;
#[doc(hidden)]
pub mod discovery;
mod documents;
mod effort;
#[doc(hidden)]
pub mod field;
#[doc(hidden)]
pub mod handler;
mod health;
mod kubernetes_service;
mod loopback;
mod metrics;
mod object;
#[doc(hidden)]
pub mod openapi;
#[doc(hidden)]
pub mod options;
#[doc(hidden)]
pub mod patch;
#[doc(hidden)]
pub mod quota;
mod references;
#[doc(hidden)]
pub mod registry;
mod render;
#[doc(hidden)]
pub mod request;
#[doc(hidden)]
pub mod resource;
mod reviews;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod selector;
#[doc(hidden)]
pub mod status;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod validation;
#[doc(hidden)]
pub mod version;
mod versions;
#[doc(hidden)]
pub mod watch;
mod webhook;
