//! Rust types for the kinds of a `CustomResourceDefinition`.
//!
//! ```text
//! text ▸ Definition ▸ model (types as values) ▸ names ▸ Rust source
//! ```
//!
//! [`Definition::parse`] reads definitions, [`Definition::to_rust`] gives a source file. The file uses `kube`,
//! `k8s-openapi` (feature `schemars`), `schemars`, `serde` and `serde_json`, and nothing else.
//!
//! *Invariant:* `Kind::crd()` of a generated type gives what the API server enforces in the original: the same
//! schema after [`normal`] has taken out what has no effect. *Invariant:* whatever a definition contains, the
//! generator ends, and what it prints is Rust.

mod build;
mod definition;
mod doc;
mod identifier;
mod literal;
mod model;
pub mod normal;
mod print;

pub use definition::{Definition, DefinitionError, DefinitionVersion, documents};
