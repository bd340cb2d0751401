//! The built-in kinds of Kubernetes, and the kinds that CustomResourceDefinitions define.
//!
//! A kind is its schema and, for what a schema cannot say, a [`Strategy`](strategy::Strategy): [`strategy_of`] finds it.
//! [`resource::builtins`] says which resources there are, [`table`] what `kubectl get` prints of them, [`quota`] what their
//! objects use of the things that quotas limit, [`references`] what a pod names, [`pod_security`] what a pod may ask for.
//! [`discovery`] and [`openapi`] are the documents about resources, [`version`] is the Kubernetes they are of. [`crd`] is the same for custom kinds: what a
//! definition says, and how objects of its kind behave.
//!
//! ```
//! use serde_json::json;
//! use windlass_api::field::FieldErrors;
//!
//! let pods = windlass_kinds::strategy_of("", "Pod");
//! let mut pod = json!({"spec": {"containers": [{"name": "web"}]}});
//! pods.default(&mut pod);
//! assert_eq!(pod["spec"]["restartPolicy"], "Always");
//!
//! let mut errors = FieldErrors::default();
//! pods.validate(&pod, &mut errors);
//! assert_eq!(errors.to_string(), "spec.containers[0].image: Required value");
//! ```
//!
//! *Invariant:* objects are JSON values, the time is an argument, and nothing here does I/O. What needs other objects or
//! the network is the server's business.
//!
//! The crate is made for the other crates of Windlass and changes with them. See
//! `docs/design/0009-crates-of-the-server.md` for where the lines are and why.

use windlass_api::{codec, field, object, patch, rules, schema, status, validation};
use windlass_cel as cel;

pub mod crd;
pub mod discovery;
pub mod list;
pub mod openapi;
pub mod pod_security;
pub mod quota;
pub mod references;
pub mod resource;
pub mod strategy;
pub mod table;
pub mod version;

mod builtin;
pub use builtin::{BuiltinKind, builtin_kind, strategy_of};
