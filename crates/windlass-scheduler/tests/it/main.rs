//! The core, put to a naive implementation and to tables.
// Tables read better without references to JSON.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod build;
mod devices;
mod differential;
mod filters;
mod naive;
mod preemption;
mod random;
mod scores;
mod storage;
mod volumes;
