//! Between bytes and objects: JSON, YAML and protobuf in both directions, and which of them a client wants.
//!
//! Everything here is pure and synchronous. A request body goes through [`decode_body`]: its format's
//! parser makes a JSON value and notes duplicate keys, then `kind` and `apiVersion` are compared with
//! what the endpoint serves. Built-in kinds go on to the typed decoder, custom resources to pruning.

pub mod body;
pub mod gnostic;
mod go;
pub(crate) mod go_json;
pub mod json;
pub mod negotiate;
pub mod peek;
pub mod protobuf;
pub mod time;
pub mod typed;
pub mod unstructured;
pub mod write;
pub mod yaml;

pub use body::{Decoded, Expected, decode_body};
pub use typed::{Typed, decode_typed};
pub use windlass_cel::go::{base64, duration, quantity};
pub use write::write_object;
