//! Write Kubernetes operators: informers, cache, work queue, controllers, manager, events.

pub mod cache;
pub mod client;
pub mod informer;
mod key;
mod object;
pub mod queue;

pub use client::Client;
pub use key::ObjectKey;
pub use object::Object;
