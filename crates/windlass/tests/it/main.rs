//! Operators against the embedded API server, in process.

#![allow(unreachable_pub)]

mod bench;

mod cache;
mod controller;
mod finalizer;
mod helpers;
mod lease;
mod manager;
mod webhook;
