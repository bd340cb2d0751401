//! Which nodes are alive, and whether failures are so many that nothing should be evicted.
//!
//! A state machine without I/O: signs of life, node states and the time go in. Mirrors upstream's
//! `pkg/controller/nodelifecycle/node_lifecycle_controller.go`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long a node that has reported its state may be silent (`--node-monitor-grace-period`).
pub(super) const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// How long a node may take until its first report (`--node-startup-grace-period`).
pub(super) const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// Time between two nodes of a zone that get a `NoExecute` taint (`--node-eviction-rate`).
const EVICTION_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
/// The same in a large zone where many nodes fail (`--secondary-node-eviction-rate`).
const SECONDARY_INTERVAL: SignedDuration = SignedDuration::from_secs(100);
/// Nodes above which a zone is large (`--large-cluster-size-threshold`).
const LARGE: usize = 50;
/// The percentage of unhealthy nodes from which on a zone is disrupted (`--unhealthy-zone-threshold`).
const UNHEALTHY_PERCENT: usize = 55;

/// What a node's object says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The node has no Ready condition.
    Nothing,
    /// The heartbeat of the Ready condition.
    Heartbeat(Option<Timestamp>),
}

/// What is known about a node's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The node was not known before.
    pub(super) first: bool,
    /// How long until it has been silent for too long; nothing when it has.
    pub(super) left: Option<Duration>,
}

/// Whether a node may get a `NoExecute` taint now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    Now,
    /// Other nodes of its zone got one a moment ago.
    After(Duration),
    /// Too much has failed.
    Never,
}

#[derive(Debug)]
struct Health {
    probe: Timestamp,
    report: Report,
    renewed: Option<Timestamp>,
}

/// A node as its zone counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) zone: String,
    pub(super) ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ZoneState {
    #[default]
    Normal,
    /// Many nodes are unhealthy.
    Partial,
    /// All nodes are unhealthy.
    Full,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    unready: usize,
    state: ZoneState,
    last_taint: Option<Timestamp>,
}

impl Zone {
    fn current(&self) -> ZoneState {
        let total = self.ready + self.unready;
        if self.ready == 0 {
            ZoneState::Full
        } else if self.unready > 2 && self.unready * 100 >= total * UNHEALTHY_PERCENT {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    fn count(&mut self, ready: bool) -> &mut usize {
        if ready { &mut self.ready } else { &mut self.unready }
    }

    fn interval(&self) -> Option<SignedDuration> {
        match self.state {
            ZoneState::Normal | ZoneState::Full => Some(EVICTION_INTERVAL),
            ZoneState::Partial if self.ready + self.unready > LARGE => Some(SECONDARY_INTERVAL),
            ZoneState::Partial => None,
        }
    }
}

/// Watches over all nodes.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    health: HashMap<String, Health>,
    places: HashMap<String, Place>,
    zones: BTreeMap<String, Zone>,
    /// No node of any zone is healthy: more likely the controller is cut off than all nodes are.
    all_disrupted: bool,
    seeded: bool,
}

impl Monitor {
    /// Counts all nodes there are, once: one at a time, the first unhealthy one would be all there is.
    pub(super) fn seed(&mut self, nodes: impl IntoIterator<Item = (String, Option<Place>)>, now: Timestamp) {
        if std::mem::replace(&mut self.seeded, true) {
            return;
        }
        for (name, place) in nodes {
            self.place(&name, place);
        }
        self.update_zones(now);
    }

    /// Whether [`seed`](Self::seed) was called.
    pub(super) fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// A node's lease was seen. A lease that was not renewed since is no sign of life.
    pub(super) fn renewed(&mut self, name: &str, renewed: Timestamp, now: Timestamp) {
        if let Some(health) = self.health.get_mut(name)
            && health.renewed.is_none_or(|known| known < renewed)
        {
            health.renewed = Some(renewed);
            health.probe = now;
        }
    }

    /// A node's object was seen.
    pub(super) fn observe(&mut self, name: &str, report: Report, now: Timestamp) -> Seen {
        let grace = if report == Report::Nothing { STARTUP_GRACE } else { GRACE };
        let first = !self.health.contains_key(name);
        let fresh = || Health { probe: now, report, renewed: None };
        let health = self.health.entry(name.to_owned()).or_insert_with(fresh);
        if health.report != report {
            health.report = report;
            health.probe = now;
        }
        let left = grace - now.duration_since(health.probe);
        Seen { first, left: Duration::try_from(left).ok().filter(|left| !left.is_zero()) }
    }

    /// A node is in a zone, ready or not; nothing for one that zones do not count. Returns whether rules have changed for
    /// other nodes.
    pub(super) fn settle(&mut self, name: &str, place: Option<Place>, now: Timestamp) -> bool {
        self.place(name, place) && self.update_zones(now)
    }

    /// A node is gone. Returns whether rules have changed for other nodes.
    pub(super) fn forget(&mut self, name: &str, now: Timestamp) -> bool {
        self.health.remove(name);
        self.settle(name, None, now)
    }

    /// Whether no node at all is healthy.
    pub(super) fn is_all_disrupted(&self) -> bool {
        self.all_disrupted
    }

    /// Asks for a `NoExecute` taint for a node of a zone, and counts it when it is given.
    pub(super) fn permit(&mut self, zone: &str, now: Timestamp) -> Permit {
        if self.all_disrupted {
            return Permit::Never;
        }
        let zone = self.zones.entry(zone.to_owned()).or_default();
        let Some(interval) = zone.interval() else { return Permit::Never };
        let left = zone.last_taint.map(|last| interval - now.duration_since(last));
        if let Some(left) = left.and_then(|left| Duration::try_from(left).ok()).filter(|left| !left.is_zero()) {
            return Permit::After(left);
        }
        zone.last_taint = Some(now);
        Permit::Now
    }

    fn place(&mut self, name: &str, place: Option<Place>) -> bool {
        if self.places.get(name) == place.as_ref() {
            return false;
        }
        if let Some(old) = self.places.remove(name)
            && let Some(zone) = self.zones.get_mut(&old.zone)
        {
            *zone.count(old.ready) -= 1;
        }
        if let Some(place) = place {
            *self.zones.entry(place.zone.clone()).or_default().count(place.ready) += 1;
            self.places.insert(name.to_owned(), place);
        }
        true
    }

    /// Finds out what state each zone is in, and returns whether one has changed.
    fn update_zones(&mut self, now: Timestamp) -> bool {
        self.zones.retain(|_, zone| zone.ready + zone.unready > 0);
        let mut changed = false;
        for zone in self.zones.values_mut() {
            let state = zone.current();
            changed |= std::mem::replace(&mut zone.state, state) != state;
        }
        let all = !self.zones.is_empty() && self.zones.values().all(|zone| zone.state == ZoneState::Full);
        let was = std::mem::replace(&mut self.all_disrupted, all);
        if was && !all {
            // Nothing is known about the time in between: every node gets another grace period.
            self.health.values_mut().for_each(|health| health.probe = now);
        }
        changed || was != all
    }
}
