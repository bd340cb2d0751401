//! The embedded cluster as its users see it: through the API, in one process.
#![allow(clippy::unwrap_used)]

mod garbage;
mod helpers;
mod jobs;
mod namespaces;
mod policies;
mod services;
mod stopping;
mod volumes;
mod workloads;
