// SPDX-License-Identifier: Apache-2.0

//! The pet store: a gRPC service that knows nothing of Kubernetes. It stands for what your operator manages.
//!
//! ```text
//! client ── gRPC ──► server ──► inventory (memory, searched)
//!                       └─────► database  (disk, written first)
//! ```
//!
//! The operator uses [`client`] alone. [`server`] serves; [`inventory`] has the pets, [`database`] keeps them.

pub mod client;
pub mod database;
pub mod inventory;
pub mod message;
pub mod proto;
pub mod sampler;
pub mod server;
