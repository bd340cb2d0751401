//! What the server does about CustomResourceDefinitions: it watches them, decides whether each takes effect, serves what
//! they define, and deletes the objects of those that go. What a definition means is in `windlass_kinds::crd`.

mod cleanup;
pub mod controller;
mod inquiry;
