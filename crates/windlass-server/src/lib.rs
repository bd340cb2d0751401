//! An embeddable, Kubernetes-compatible API server.
//!
//! ```text
//! handler: authn ▸ authz ▸ registry { decode ▸ default ▸ own ▸ admission ▸ validate ▸ store } ▸ render
//! ```
//!
//! Start with [`Server`]: in a test as a tower service with no socket, in production with TLS. The API of this crate is
//! [`Server`], [`AdmissionPlugins`], [`Computed`], [`streams`], [`dialer`], [`authn`] and [`pki`]. Other modules are public for the other crates
//! of this workspace only, are not in this documentation, and change without notice.

use windlass_api::{apply, codec, field, object, patch, schema, selector, status, validation};
use windlass_cel as cel;
use windlass_kinds::{discovery, openapi, quota, references, resource, table};

mod compaction;
mod server;
pub use admission_config::{AdmissionPlugin, AdmissionPlugins, UnknownPlugin};
pub use audit::{AuditOptions, AuditPolicy, AuditPolicyError};
pub use catalog::Computed;
pub use flow_control::FlowControlOptions;
pub use server::{Listener, Server, ServerBuilder, ServerError, Service};
pub use windlass_kinds::pod_security::{
    PodSecurity, PodSecurityLevel, PodSecurityPolicy, PodSecurityStandard, PodSecurityVersion,
};
#[doc(hidden)]
pub use windlass_kinds::version;

pub mod authn;
pub mod dialer;
pub mod pki;
pub mod streams;

mod admission;
mod admission_config;
mod aggregator;
mod answer;
#[doc(hidden)]
pub mod api;
mod api_services;
mod attributes;
#[doc(hidden)]
mod audit;
mod authz;
#[doc(hidden)]
pub mod body;
mod bootstrap;
#[doc(hidden)]
pub mod catalog;
mod context;
#[doc(hidden)]
pub mod crd;
#[doc(hidden)]
pub mod depth;
mod documents;
mod effort;
#[doc(hidden)]
mod flow_control;
#[doc(hidden)]
pub mod handler;
mod health;
mod identity_lease;
mod kubernetes_service;
mod loopback;
mod metrics;
mod node_pods;
#[doc(hidden)]
pub mod options;
mod rbac;
#[doc(hidden)]
pub mod registry;
#[doc(hidden)]
pub mod remote;
mod render;
#[doc(hidden)]
pub mod request;
mod state;
mod stored;
mod sweep;
mod tokens;
mod user;
mod versions;
#[doc(hidden)]
pub mod watch;
mod webhook;

/// The examples of the book about the server compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/admission-plugins.md")]
mod book {}
