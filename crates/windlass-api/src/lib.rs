//! What a Kubernetes object is, apart from what a server does with it.
//!
//! Objects are JSON values and bytes; there is no Rust type per kind. A [`schema::Schema`] says everything that a
//! machine can know about a kind, and every module walks it: [`codec`] between bytes and values, [`validation`] and
//! [`rules`] to check them, [`patch`] and [`apply`] to change them. Failures are [`field::FieldErrors`] and
//! [`status::Status`], in the words that clients match on.
//!
//! ```
//! use windlass_api::selector::LabelSelector;
//!
//! let selector = LabelSelector::parse("app in (web, api), !canary").expect("a selector");
//! assert!(selector.matches(|key| (key == "app").then(|| "web".into())));
//! assert!(!selector.matches(|key| (key == "canary").then(|| "true".into())));
//! ```
//!
//! *Invariant:* these are pure functions. Nothing here does I/O or reads a clock; the time is an argument.
//! *Invariant:* nothing here knows a particular kind, but for what the tables of facts say (`facts/`): those of fields, of Go's
//! types and of protobuf are here, because a schema and a codec are made of them.
//!
//! The crate is made for the other crates of Windlass and changes with them. See
//! `docs/design/0009-crates-of-the-server.md` for where the lines are and why.

pub mod apply;
pub mod codec;
pub mod depth;
pub mod field;
pub mod jsonpath;
pub mod object;
pub mod patch;
pub mod resource;
pub mod rules;
pub mod schema;
pub mod selector;
pub mod status;
pub mod validation;
