//! The registry: what happens to an object between its decoding and its storage.

pub mod strategy;
