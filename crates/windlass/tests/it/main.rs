//! Operators against the embedded API server, in process.

#![allow(unreachable_pub)]

// Compiled there once, instead of here.
use windlass_codecs as _;

mod bench;

mod access;
mod adversity;
mod cache;
mod controller;
mod crd_markers;
mod credentials;
mod decoding;
mod errors;
mod events;
mod finalizer;
mod informer;
mod lease;
mod lists;
mod manager;
mod metrics;
mod options;
mod own_writes;
mod process;
mod queue;
mod reconcile;
mod scopes;
mod shard;
mod shard_handover;
mod shard_remembered;
mod shard_streams;
mod shard_writes;
mod subresources;
mod webhook;
mod writes;
