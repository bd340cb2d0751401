//! The other replicas: who is there, who is gone, and who divides the keys otherwise.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::leases::{ByName, holder, is_member, is_rival, left_in};

/// When a replica joined, by the server's clock, and who it is: replicas agree on who was first.
pub(super) type Joined = (Option<Time>, String);

/// The other replicas, as a round finds them.
pub(super) struct Others {
    /// Those that count as this one does, and this one.
    pub(super) members: BTreeSet<String>,
    /// When the first of these joined; `None` if only this one did, just now.
    joined: Option<Joined>,
    /// Whether one of the others that count as this one does holds a shard.
    peer_holds: bool,
    /// When the first of those that count otherwise joined.
    rival_joined: Option<Joined>,
    /// Whether one that counts otherwise holds a shard.
    pub(super) rival_holds: bool,
    /// The leases of those that have not been heard of within the lease duration, as seen, once there
    /// are no keys in them.
    pub(super) gone: Vec<(String, Option<String>)>,
}

impl Others {
    /// Whether to leave everything to those who count otherwise. Those who work go on, and others
    /// may help them; while nobody works, those begin of whom the first joined.
    pub(super) fn must_wait(&self, holds: bool) -> bool {
        let rivals_first = self.rival_joined.as_ref().is_some_and(|rival| {
            // One that has just joined is younger than everybody it finds.
            self.joined.as_ref().is_none_or(|own| rival < own)
        });
        match (holds || self.peer_holds, self.rival_holds) {
            (true, false) => false,
            (false, true) => true,
            _ => rivals_first,
        }
    }
}

/// Leases of others as last seen, and since when they are so.
#[derive(Default)]
pub(super) struct Roster {
    seen: HashMap<String, (Option<String>, Instant)>,
}

impl Roster {
    /// Looks at all leases but that of `me`, who joined then and divides the keys into so many
    /// shards.
    pub(super) fn look(
        &mut self,
        leases: &ByName,
        (me, shards): (&str, u32),
        joined: Option<Joined>,
        now: Instant,
    ) -> Others {
        let mut others = Others {
            members: BTreeSet::from([me.to_owned()]),
            joined,
            peer_holds: false,
            rival_joined: None,
            rival_holds: false,
            gone: Vec::new(),
        };
        self.seen.retain(|name, _| leases.contains_key(name));
        for (name, lease) in leases {
            let (changing, holder) = (self.is_live(name, lease, now), holder(lease));
            let live = changing && (holder.is_some() || !is_member(lease));
            match (is_member(lease), live, is_rival(lease, shards)) {
                (true, false, _) if left_in(lease).next().is_some() => {}
                (true, false, _) => others.gone.push((name.clone(), lease.metadata.resource_version.clone())),
                (true, true, true) => first(&mut others.rival_joined, joined_at(lease)),
                (true, true, false) => {
                    first(&mut others.joined, joined_at(lease));
                    others.members.extend(holder.map(str::to_owned));
                }
                (false, live, true) => others.rival_holds |= live && holder.is_some(),
                (false, live, false) => others.peer_holds |= live && holder.is_some_and(|holder| holder != me),
            }
        }
        others
    }

    /// Whether a lease has changed within its duration.
    fn is_live(&mut self, name: &str, lease: &Lease, now: Instant) -> bool {
        let version = lease.metadata.resource_version.clone();
        let unchanged = match self.seen.get(name) {
            Some((seen, since)) if *seen == version => *since,
            _ => now,
        };
        self.seen.insert(name.to_owned(), (version, unchanged));
        let duration = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default().max(0);
        unchanged + Duration::from_secs(duration as u64) > now
    }
}

/// When the replica of a lease joined.
pub(super) fn joined_at(lease: &Lease) -> Joined {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    (lease.metadata.creation_timestamp.clone(), holder.unwrap_or_default())
}

/// Keeps the earlier of two.
fn first(known: &mut Option<Joined>, other: Joined) {
    if known.as_ref().is_none_or(|known| other < *known) {
        *known = Some(other);
    }
}
