//! Links, addresses and routes.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use super::message::{CREATE, EXCL};
use super::{Attributes, Message, NetlinkError, Socket};
use crate::range::Range;

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;

const MAIN_TABLE: u8 = 254;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;

/// Which part of the system a route is of: ours. No other program uses this number.
pub(crate) const PROTOCOL: u8 = 87;

/// The links, addresses and routes of a network namespace.
#[derive(Debug)]
pub(crate) struct Routes {
    socket: Socket,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// What it is for, in the words of the one who made it.
    pub(crate) alias: String,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) to: Range,
    pub(crate) via: Via,
    /// Routes to the same range with a smaller number come first.
    pub(crate) priority: u32,
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// To neighbours on a link; connections from here come from the address, if there is one.
    Link(u32, Option<Ipv4Addr>),
    /// Through a gateway on a link.
    Gateway(u32, Ipv4Addr),
    /// Nowhere: senders are told.
    Unreachable,
}

fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

impl Routes {
    /// Those of the thread's network namespace.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let socket = Socket::open(None).map_err(|error| NetlinkError::new("open a netlink socket", error))?;
        Ok(Self { socket })
    }

    /// Makes two links that are connected: one here, and one with the name `eth0` in another namespace.
    pub(crate) fn add_pair(&self, name: &str, mtu: u32, peer: impl AsFd) -> Result<(), NetlinkError> {
        let mut message = Message::new(NEW_LINK, CREATE | EXCL, &link_header(0, 0));
        message.put_text(IFLA_IFNAME, name).put_u32(IFLA_MTU, mtu);
        message.nest(IFLA_LINKINFO, |info| {
            info.put_text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| {
                data.nest_with(VETH_INFO_PEER, &link_header(0, 0), |other| {
                    other.put_text(IFLA_IFNAME, "eth0").put_u32(IFLA_MTU, mtu);
                    other.put_u32(IFLA_NET_NS_FD, peer.as_fd().as_raw_fd() as u32);
                });
            });
        });
        self.socket.call(&format!("add the link {name}"), message)
    }

    /// Removes a link, and with it the one that it is connected to. Whether there was one.
    pub(crate) fn delete_link(&self, name: &str) -> Result<bool, NetlinkError> {
        let mut message = Message::new(DELETE_LINK, 0, &link_header(0, 0));
        message.put_text(IFLA_IFNAME, name);
        match self.socket.call(&format!("delete the link {name}"), message) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::NODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All links.
    pub(crate) fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let replies = self.socket.dump("list links", Message::new(GET_LINK, 0, &link_header(0, 0)))?;
        let links = replies.iter().filter(|(kind, _)| *kind == NEW_LINK).filter_map(|(_, body)| {
            let index = u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
            let attributes = Attributes(body.get(16..)?);
            let alias = attributes.text(IFLA_IFALIAS).unwrap_or_default().to_owned();
            Some(Link { index, name: attributes.text(IFLA_IFNAME)?.to_owned(), alias })
        });
        Ok(links.collect())
    }

    /// The number of a link.
    pub(crate) fn index(&self, name: &str) -> Result<u32, NetlinkError> {
        let mut message = Message::new(GET_LINK, 0, &link_header(0, 0));
        message.put_text(IFLA_IFNAME, name);
        let what = format!("find the link {name}");
        let replies = self.socket.ask(&what, message)?;
        let found = replies.iter().find_map(|(_, body)| Some(u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?)));
        found.ok_or_else(|| NetlinkError::new(what, Errno::NODEV))
    }

    /// Makes a link carry traffic.
    pub(crate) fn up(&self, index: u32) -> Result<(), NetlinkError> {
        self.socket.call("set a link up", Message::new(NEW_LINK, 0, &link_header(index, IFF_UP)))
    }

    /// Says what a link is for.
    pub(crate) fn set_alias(&self, index: u32, alias: &str) -> Result<(), NetlinkError> {
        let mut message = Message::new(NEW_LINK, 0, &link_header(index, 0));
        message.put_text(IFLA_IFALIAS, alias);
        self.socket.call("set the alias of a link", message)
    }

    /// Adds an address to a link, if it has not got it.
    pub(crate) fn add_address(&self, index: u32, address: Ipv4Addr) -> Result<(), NetlinkError> {
        let mut header = [AF_INET, 32, 0, SCOPE_UNIVERSE, 0, 0, 0, 0];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut message = Message::new(NEW_ADDRESS, CREATE | EXCL, &header);
        message.put(IFA_LOCAL, &address.octets()).put(IFA_ADDRESS, &address.octets());
        existing(self.socket.call(&format!("add the address {address}"), message))
    }

    /// Adds a route, if there is none like it.
    pub(crate) fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = route_message(NEW_ROUTE, CREATE | EXCL, route);
        existing(self.socket.call(&format!("add the route to {}", route.to), message))
    }

    /// Removes a route. Whether there was one.
    pub(crate) fn delete_route(&self, route: &Route) -> Result<bool, NetlinkError> {
        match self.socket.call(&format!("delete the route to {}", route.to), route_message(DELETE_ROUTE, 0, route)) {
            Ok(()) => Ok(true),
            Err(error) if error.is(Errno::SRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The unreachable routes of ours.
    pub(crate) fn unreachable(&self) -> Result<Vec<Route>, NetlinkError> {
        let mut header = [0; 12];
        header[0] = AF_INET;
        let replies = self.socket.dump("list routes", Message::new(GET_ROUTE, 0, &header))?;
        let routes = replies.iter().filter(|(kind, _)| *kind == NEW_ROUTE).filter_map(|(_, body)| {
            let fixed = body.get(..12)?;
            if (fixed[5], fixed[7]) != (PROTOCOL, UNREACHABLE) {
                return None;
            }
            let attributes = Attributes(&body[12..]);
            let to: [u8; 4] = attributes.get(RTA_DST)?.try_into().ok()?;
            let to = Range::new(Ipv4Addr::from(to), fixed[1])?;
            Some(Route { to, via: Via::Unreachable, priority: attributes.u32(RTA_PRIORITY).unwrap_or_default() })
        });
        Ok(routes.collect())
    }
}

const UNICAST: u8 = 1;
const UNREACHABLE: u8 = 7;

fn route_message(kind: u16, flags: u16, route: &Route) -> Message {
    let (scope, type_) = match route.via {
        Via::Link(..) => (SCOPE_LINK, UNICAST),
        Via::Gateway(..) => (SCOPE_UNIVERSE, UNICAST),
        Via::Unreachable => (SCOPE_UNIVERSE, UNREACHABLE),
    };
    let header = [AF_INET, route.to.bits(), 0, 0, MAIN_TABLE, PROTOCOL, scope, type_, 0, 0, 0, 0];
    let mut message = Message::new(kind, flags, &header);
    if route.to.bits() > 0 {
        message.put(RTA_DST, &route.to.first().octets());
    }
    match route.via {
        Via::Link(index, source) => {
            message.put_u32(RTA_OIF, index);
            if let Some(source) = source {
                message.put(RTA_PREFSRC, &source.octets());
            }
        }
        Via::Gateway(index, gateway) => {
            message.put_u32(RTA_OIF, index).put(RTA_GATEWAY, &gateway.octets());
        }
        Via::Unreachable => {}
    }
    if route.priority != 0 {
        message.put_u32(RTA_PRIORITY, route.priority);
    }
    message
}

/// What exists already is as good as made.
fn existing(result: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match result {
        Err(error) if error.is(Errno::EXIST) => Ok(()),
        result => result,
    }
}
