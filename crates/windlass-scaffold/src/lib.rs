//! Operator projects as values.
//!
//! A project is described by its [`Project`] file. [`render`](render::render) makes of it the [`Tree`] of all files
//! that are generated, a [`Plan`] compares that with what is on disk, and [`write`](write::write) carries the plan
//! out: all of it, or nothing. A command such as `create api` is a [change](command) of the description and nothing
//! more: taking it back, showing it first and coming to a newer version need no code of their own.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod builtin;
pub mod bundle;
pub mod chart;
pub mod command;
pub mod kustomize;
pub mod leftover;
mod line_ends;
pub mod manifests;
mod merge;
pub mod name;
pub mod package;
pub mod plan;
pub mod project;
mod record;
pub mod render;
pub mod sample;
pub mod scaffold;
mod template;
pub mod tree;
pub mod types;
pub mod upgrade;
pub mod write;

pub use plan::Plan;
pub use project::Project;
pub use tree::Tree;
