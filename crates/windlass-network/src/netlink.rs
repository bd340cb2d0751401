//! Netlink, as far as this crate needs it: the kernel's interface for links, addresses and routes (`route`) and for packet
//! filters (`nft`).
//!
//! Messages are written and read as bytes, so that no system library, no `ip` and no `nft` is needed. A socket belongs to the
//! network namespace of the thread that made it, for as long as it lives: calls need not be made in that namespace.

pub(crate) mod nft;
pub(crate) mod route;

mod message;
mod socket;

pub use socket::NetlinkError;

pub(crate) use message::{Attributes, Message};
pub(crate) use socket::Socket;
