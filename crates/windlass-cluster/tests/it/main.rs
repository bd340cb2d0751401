//! The embedded cluster as its users see it: through the API, in one process.
#![allow(clippy::unwrap_used)]

mod garbage;
mod jobs;
mod namespaces;
mod objects;
mod policies;
mod recreation;
mod services;
mod stopping;
mod volumes;
mod workloads;
