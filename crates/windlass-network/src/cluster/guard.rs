//! Guard routes: outside the cluster, its ranges lead nowhere.
//!
//! Nothing of ours sends packets for pods or Services outside of the cluster's namespace. A program of the user may, by
//! mistake, and they would leave the machine through its default route. An unreachable route for each range keeps them. It
//! is the last choice among routes to the same range, and more specific routes come first, so a network of the user's that
//! uses the same addresses stays reachable.

use crate::netlink::NetlinkError;
use crate::netlink::route::{Route, Routes, Via};
use crate::range::Range;

/// Where the numbers of guard routes begin: after those of all other programs.
const BASE: u32 = 0xfffe_0000;

/// The guard routes of a cluster, in the network namespace of the calling thread. Needs `CAP_NET_ADMIN` there.
#[derive(Debug)]
pub struct Guard {
    /// Says whose routes they are: clusters with the same ranges have one route each.
    priority: u32,
}

impl Guard {
    /// Those of a cluster.
    pub fn new(cluster: &str) -> Self {
        Self { priority: BASE | crate::exposure::hash(cluster) as u32 & 0xffff }
    }

    /// Adds the routes.
    pub fn add(&self, ranges: &[Range]) -> Result<(), NetlinkError> {
        let routes = Routes::open()?;
        for range in ranges {
            routes.add_route(&self.route(*range))?;
        }
        Ok(())
    }

    /// Removes the routes, also those that another process has added.
    pub fn remove(&self) -> Result<(), NetlinkError> {
        let routes = Routes::open()?;
        for range in self.routes()? {
            routes.delete_route(&self.route(range))?;
        }
        Ok(())
    }

    /// The ranges that have a route.
    pub fn routes(&self) -> Result<Vec<Range>, NetlinkError> {
        let all = Routes::open()?.unreachable()?;
        Ok(all.into_iter().filter(|route| route.priority == self.priority).map(|route| route.to).collect())
    }

    fn route(&self, to: Range) -> Route {
        Route { to, via: Via::Unreachable, priority: self.priority }
    }
}
