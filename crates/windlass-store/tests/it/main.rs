//! The store's tests from outside: one binary, a module a concern.
#![allow(clippy::unwrap_used, reason = "a failing unwrap is a failing test")]

mod contract;
mod crash;
mod damage;
mod durable;
mod history;
mod model;
