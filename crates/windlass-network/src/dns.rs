//! The cluster's DNS: what CoreDNS is to a cluster of many machines.
//!
//! [`zone`] answers questions from the [directory](crate::Directory) of Services, as a pure function; [`server`] is the
//! sockets around it, and forwards what is not about the cluster. [`message`] is the wire format.

pub mod message;
pub mod server;
pub mod zone;
