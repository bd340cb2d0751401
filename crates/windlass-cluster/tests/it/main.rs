//! The embedded cluster as its users see it: through the API, in one process.
#![allow(clippy::unwrap_used)]

mod autoscaling;
mod bad_input;
mod daemon_sets;
mod descriptions;
mod events;
mod garbage;
mod health;
mod identities;
mod jobs;
mod kwok;
mod namespaces;
mod nodes;
mod objects;
mod policies;
mod recreation;
mod scheduler;
mod services;
mod simulated_nodes;
mod stateful_sets;
mod stopping;
mod usage;
mod volumes;
mod workloads;
